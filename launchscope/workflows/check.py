"""How a check goes: measure, decide, measure again before failing, write the baseline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from launchscope.cli.console import Console
from launchscope.errors import InputError

if TYPE_CHECKING:
    from launchscope.gate import Baseline, BaselinePlace
    from launchscope.gate.limits import Limits
    from launchscope.model import Check, Profile
    from launchscope.workflows.repeats import Repeats


@dataclass(frozen=True)
class Gate:
    """What a check is held against, as flags and settings file say."""

    workload: str
    place: BaselinePlace | None
    flags: Limits
    config: Limits
    missing: str
    strict: bool
    confirm: bool
    update: bool


def checked(gate: Gate, source: Repeats, screen: Console) -> Check:
    """The Check; with `written` where the measurement became the baseline."""
    from launchscope.gate import check as judge
    from launchscope.gate import confirmed, limits_in_force

    if gate.update:
        source.all()
    profile = source.profile
    found, lacks = _baseline(gate, profile)
    limits = limits_in_force(gate.flags, gate.config, profile.mode)

    def judged(profile: Profile) -> Check:
        return judge(
            profile, found, limits, workload=gate.workload, strict=gate.strict, missing=lacks
        )

    result = judged(profile)
    while not gate.update and result.outcome == "failed" and source.more():
        result = judged(source.profile)
    if gate.confirm and not gate.update and result.outcome == "failed" and source.again():
        screen.progress("measuring again, to confirm")
        source.all()
        result = confirmed(result, judged(source.profile), strict=gate.strict)
    missing = found is None and gate.place is not None
    if gate.place is None or not (gate.update or (missing and gate.missing == "write")):
        return result
    source.all()
    _same_device(found, source.profile)
    written = gate.place.write(gate.workload, source.profile)
    return replace(result, written=str(written), processes=source.processes)


def _same_device(found: Baseline | None, profile: Profile) -> None:
    """A single file must not change its device in silence; a folder has one for each."""
    from launchscope.gate import not_comparable

    if found is None:
        return
    apart = not_comparable(profile, found.profile)
    if apart is not None:
        raise InputError(
            f"{found.place} is left as it is: {apart}",
            hint="name a folder with --baseline: it holds one file per device",
        )


def _baseline(gate: Gate, profile: Profile) -> tuple[Baseline | None, str | None]:
    """The baseline, or why there is none; both None where none was asked for."""
    if gate.place is None:
        return None, None
    found = gate.place.find(gate.workload, profile)
    if found is not None:
        return found, None
    others = gate.place.others(gate.workload)
    known = f" (there are {', '.join(others)})" if others else ""
    return None, f"there is no baseline of {gate.workload} in {gate.place}{known}"
