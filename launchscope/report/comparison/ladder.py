"""The section on ways to adopt: one row a way."""

from __future__ import annotations

from dataclasses import dataclass

from launchscope import wording
from launchscope.model import Comparison, Rung, Trajectory

_NOTHING = "–"
_LONGEST_REASON = 40  # a longer one stands below the table
WAYS = {
    "eager": "eager",
    "replay": "replay of the whole step",
    "compile": 'torch.compile(mode="reduce-overhead")',
    "graphed": "make_graphed_callables",
}
_LEFT_HEADINGS = ("way", "result against eager")


@dataclass(frozen=True)
class LadderSection:
    title: str
    headline: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    details: tuple[str, ...]

    @staticmethod
    def is_left(heading: str) -> bool:
        return heading in _LEFT_HEADINGS


def ladder_sections(comparison: Comparison) -> tuple[LadderSection, ...]:
    sections = []
    for ladder in comparison.ladders:
        named = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in ladder.parameters.items())
        rows = tuple(_row(rung) for rung in ladder.rungs)
        details = tuple(line for rung in ladder.rungs for line in _details(rung))
        sections.append(
            LadderSection(
                "Ways to adopt" + (f", {named}" if named else ""),
                "" if ladder.headline == comparison.headline else ladder.headline,
                ("way", "iteration, ms", "speed-up", "set-up", "reserved", "in graphs",
                 "result against eager"),
                rows,
                details,
            )
        )  # fmt: skip
    return tuple(sections)


def _row(rung: Rung) -> tuple[str, ...]:
    if rung.iteration_ms is None or rung.iteration_ms.value is None:
        why = "failed" if rung.failure is None else rung.failure.reason
        short = why if len(why) <= _LONGEST_REASON else "not measured, see below"
        return (rung.mode, *(_NOTHING,) * 5, short)
    mark = "~" if rung.projected else ""
    return (
        rung.mode,
        mark + wording.number(rung.iteration_ms),
        _NOTHING if rung.speedup is None else wording.times(rung.speedup),
        _NOTHING if rung.setup_ms is None else _duration(rung.setup_ms),
        _NOTHING if rung.memory_mib is None else f"{rung.memory_mib:,.0f} MiB",
        _NOTHING if rung.graph_share_pct is None else wording.pct(rung.graph_share_pct),
        trajectory_text(rung.trajectory),
    )


def _duration(ms: float) -> str:
    return f"{wording.figures(ms / 1e3)} s" if ms >= 1e3 else wording.ms(ms)


def trajectory_text(trajectory: Trajectory) -> str:
    """`loss within 0.02 % over 16 steps`."""
    if trajectory.status == "reference":
        return "–"
    if trajectory.status == "not_compared":
        return "not compared"
    what = {"loss": "loss", "output": "output", "update": "update"}[trajectory.what]
    if trajectory.largest_pct == 0:
        return f"{what} equal, {trajectory.steps} steps"
    if trajectory.largest_pct is None:
        return f"{what} {trajectory.status}, {trajectory.steps} steps"
    by = wording.pct(trajectory.largest_pct)
    if 0 < trajectory.largest_pct < 0.05:
        by = f"{trajectory.largest_pct:.1g} %"
    if trajectory.status == "follows":
        return f"{what} within {by}, {trajectory.steps} steps"
    limit = trajectory.tolerance_pct
    return f"{what} off by {by}" + ("" if limit is None else f" (limit {wording.pct(limit)})")


def _details(rung: Rung) -> list[str]:
    """What does not fit into a row."""
    found = []
    timed = rung.iteration_ms is not None and rung.iteration_ms.value is not None
    if rung.failure is not None and (timed or len(rung.failure.reason) > _LONGEST_REASON):
        hint = f" ({rung.failure.hint})" if rung.failure.hint else ""
        found.append(f"{rung.mode}: {rung.failure.reason}{hint}")
    if rung.projected:
        found.append(
            f"{rung.mode}: ~ projected from the replay measured in place; the others are measured"
        )
    trajectory = rung.trajectory
    if trajectory.reason and rung.failure is None:
        found.append(f"{rung.mode}: {trajectory.reason}")
    adoption = rung.adoption
    if adoption is None or rung.mode != "compile" or rung.iteration_ms is None:
        return found
    if adoption.settle_ms:
        again = adoption.recompilations
        text = f"compile: the first compiled step took {_duration(adoption.settle_ms[0])}"
        if again is not None:
            text += f", {again} recompilation{'' if again == 1 else 's'} after it"
        if adoption.graph_breaks:
            text += f", {adoption.graph_breaks} graph breaks"
        found.append(text)
    if adoption.skips:
        found += [
            f"compile: Inductor made no CUDA graph of {count} part{'' if count == 1 else 's'}: "
            f"{reason}"
            for reason, count in adoption.skips
        ]
    else:
        found.append("compile: Inductor skipped no CUDA graph")
    return found
