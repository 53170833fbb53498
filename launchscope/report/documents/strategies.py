"""The section on strategies of a comparison: a row for each way to adopt graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from launchscope.model import Ladder, Rung
from launchscope.reason_text import cause_text, failure_text, reason_text
from launchscope.report.document import (
    Block,
    Cell,
    Column,
    Items,
    Paragraph,
    Section,
    Table,
    measured,
)
from launchscope.report.documents.labels import titled
from launchscope.wording import ms, pct, plural, times

_LONGEST_REASON = 40  # a longer one follows the table


def strategy_section(ladder: Ladder, *, has_headline: bool) -> Section:
    """One table and what does not fit into it, below its headline if it `has_headline`."""
    table = Table.of(
        ladder.rungs,
        (Column("strategy", "left", key=True), lambda rung: rung.mode),
        (Column("iteration"), _iteration),
        (Column("speedup"), lambda rung: _figure(rung, rung.speedup, times)),
        (Column("setup"), lambda rung: _figure(rung, rung.setup_ms, ms)),
        (Column("reserved"), lambda rung: _figure(rung, rung.memory_mib, _mib)),
        (Column("in graphs"), lambda rung: _figure(rung, rung.graph_share_pct, pct)),
        (Column("result vs. eager", "left", fit="wrap"), _result),
    )
    blocks: list[Block] = [Paragraph(ladder.headline)] if has_headline else []
    details = tuple(line for rung in ladder.rungs for line in _details(rung))
    blocks += [table, Items(details)] if details else [table]
    return Section(titled("Strategies", ladder.parameters), tuple(blocks))


def _is_timed(rung: Rung) -> bool:
    return rung.iteration_ms is not None and rung.iteration_ms.value is not None


def _iteration(rung: Rung) -> Cell | None:
    if not _is_timed(rung):
        return None
    iteration = measured(rung.iteration_ms)
    return Cell(("~" if rung.projected else "") + iteration.text, spread=iteration.spread)


def _figure(rung: Rung, value: float | None, text: Callable[[float], str]) -> str | None:
    return text(value) if value is not None and _is_timed(rung) else None


def _mib(value: float) -> str:
    return f"{value:,.0f} MiB"  # one unit for the whole column


def _result(rung: Rung) -> Cell | str | None:
    """`loss within 0.02 % over 16 steps`."""
    if not _is_timed(rung):
        why = "failed" if rung.failure is None else failure_text(rung.failure)
        return Cell(why if len(why) <= _LONGEST_REASON else "not measured, see below", "bad")
    trajectory = rung.trajectory
    if trajectory.status == "reference":
        return None
    if trajectory.status == "not_compared":
        return Cell("not compared", "caution")
    over = f"over {plural(trajectory.steps, 'step')}"
    largest = trajectory.largest_pct
    if largest == 0:
        return f"{trajectory.what} equal {over}"
    if largest is None:
        return f"{trajectory.what} {trajectory.status} {over}"
    by = f"{largest:.1g} %" if 0 < largest < 0.05 else pct(largest)
    if trajectory.status == "follows":
        return f"{trajectory.what} within {by} {over}"
    limit = trajectory.tolerance_pct
    allowed = "" if limit is None else f" (limit {pct(limit)})"
    return Cell(f"{trajectory.what} off by {by}{allowed}", "bad")


def _details(rung: Rung) -> Iterator[str]:
    """What does not fit into a row."""
    failure, adoption = rung.failure, rung.adoption
    if failure is not None and (_is_timed(rung) or len(failure_text(failure)) > _LONGEST_REASON):
        hint = f" ({failure.hint})" if failure.hint else ""
        yield f"{rung.mode}: {failure_text(failure)}{hint}"
    if rung.projected:
        yield f"{rung.mode}: ~ projected from the measured replay of the step"
    trajectory = rung.trajectory
    said = [reason_text(trajectory.reason)] if trajectory.reason else []
    said = said or list(map(cause_text, trajectory.causes))
    if said and failure is None:
        yield f"{rung.mode}: {'; '.join(said)}"
    if adoption is None or rung.mode != "compile" or rung.iteration_ms is None:
        return
    if adoption.settle_ms:
        parts = [f"compile: the first compiled step took {ms(adoption.settle_ms[0])}"]
        if adoption.recompilations is not None:
            parts.append(f"followed by {plural(adoption.recompilations, 'recompilation')}")
        if adoption.graph_breaks:
            parts.append(plural(adoption.graph_breaks, "graph break"))
        yield ", ".join(parts)
    for reason, count in adoption.skips:
        yield f"compile: Inductor made no CUDA graph for {plural(count, 'part')}: {reason}"
    if not adoption.skips:
        yield "compile: Inductor skipped no CUDA graph"
