"""What a report of a Check says, apart from how it looks; every format lays out the same."""

from __future__ import annotations

from dataclasses import dataclass

from launchscope.gate.wording import figure
from launchscope.model import Change, Check, LimitCheck
from launchscope.report.content import short_kernel

BADGES = {
    "passed": "PASSED",
    "failed": "FAILED",
    "inconclusive": "INCONCLUSIVE",
    "not_compared": "NOT COMPARED",
}
WRITTEN = "BASELINE WRITTEN"
_KINDS = {"blocker": "blockers", "op": "device operations", "kernel": "kernels"}
_STALE = "the baseline is stale: measure it again with --update-baseline to hold what was gained"


@dataclass(frozen=True)
class LimitRow:
    metric: str
    limit: str
    baseline: str
    now: str
    outcome: str  # passed | failed | inconclusive | not compared
    reason: str


@dataclass(frozen=True)
class ChangeRow:
    """`difference` is signed: "+2"."""

    kind: str
    name: str
    before: str
    after: str
    difference: str
    where: str


@dataclass(frozen=True)
class CheckContent:
    title: str
    badge: str
    headline: str
    basis: str
    context: tuple[str, ...]
    limits: tuple[LimitRow, ...]
    failures: tuple[str, ...]
    changes: tuple[ChangeRow, ...]
    changes_left: int
    compared: bool  # with a baseline
    warnings: tuple[str, ...]
    next: tuple[str, ...]


def check_content(
    check: Check, *, top: int = 12, next_commands: tuple[str, ...] = ()
) -> CheckContent:
    """Everything a report shows of a Check. `top` bounds the changes."""
    warnings = list(check.warnings)
    warnings += [
        f"{limit.metric}: {limit.reason}"
        for limit in check.limits
        if limit.outcome == "inconclusive"
        or (limit.outcome == "not_compared" and check.outcome != "not_compared")
    ]
    if check.stale and not check.written:
        warnings.append(_STALE)
    return CheckContent(
        title=" ".join((check.target.name, *check.target.args)),
        badge=WRITTEN if check.written else BADGES[check.outcome],
        headline=_headline(check),
        basis=_basis(check),
        context=_context(check),
        limits=tuple(map(_row, check.limits)),
        failures=tuple(f"{d.metric} {d.reason}" for d in check.limits if d.outcome == "failed"),
        changes=tuple(map(change_row, check.changes[:top])),
        changes_left=max(0, len(check.changes) - top),
        compared=check.baseline is not None and check.outcome != "not_compared",
        warnings=tuple(dict.fromkeys(warnings)),
        next=next_commands,
    )


def change_row(change: Change) -> ChangeRow:
    return ChangeRow(
        _KINDS[change.kind],
        short_kernel(change.name) if change.kind == "kernel" else change.name,
        f"{change.before:g}",
        f"{change.after:g}",
        f"{change.after - change.before:+g}",
        _where(change),
    )


def told(change: Change) -> str:
    """In half a sentence: `aten.mul +2 (3 to 5) at train.py:47`."""
    row = change_row(change)
    place = f" at {row.where}" if row.where else ""
    return f"{row.name} {row.difference} ({row.before} to {row.after}){place}"


def _where(change: Change) -> str:
    places = ", ".join(map(str, change.where))
    return places if change.appeared or not places else f"{places} of the baseline"


def _row(limit: LimitCheck) -> LimitRow:
    return LimitRow(
        limit.metric,
        limit.limit,
        "" if limit.baseline is None else _ranged(limit.baseline, limit.baseline_low,
                                                  limit.baseline_high, limit.unit),
        _ranged(limit.value, limit.low, limit.high, limit.unit),
        limit.outcome.replace("_", " "),
        limit.reason,
    )  # fmt: skip


def _ranged(value: float | None, low: float | None, high: float | None, unit: str) -> str:
    text = figure(value, unit)
    if low is None or high is None or low == high:
        return text
    return f"{text} ({figure(low, unit)} to {figure(high, unit)})"


def _headline(check: Check) -> str:
    if check.written is None:
        return check.headline
    if check.baseline is None:
        return f"The first baseline of {check.workload}: {check.written}. Commit it."
    return f"{check.written} holds this measurement now. Against what it held: {check.headline}"


def _basis(check: Check) -> str:
    """How it was come by."""
    runs = "1 process" if check.processes == 1 else f"{check.processes} fresh processes"
    kind = "structure only, nothing timed" if check.mode == "rehearsal" else "measured"
    against = f" · against {check.baseline}" if check.baseline is not None else ""
    return f"{kind} · {runs}{against}"


def _context(check: Check) -> tuple[str, ...]:
    environment = check.environment
    machine = [environment.device or "no CUDA device"]
    machine += [
        f"{name} {version}"
        for name, version in (("PyTorch", environment.torch), ("CUDA", environment.cuda))
        if version
    ]
    source = f" · step from {check.source}" if check.source else ""
    return (" · ".join(machine) + source,)
