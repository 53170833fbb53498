"""Which way to adopt is the best one, and the sentence that says why."""

from __future__ import annotations

from dataclasses import replace

from launchscope.model import Ladder, Rung, StrategyName
from launchscope.wording import listed, ms, pct, times

_WAYS: dict[StrategyName, str] = {
    "eager": "eager",
    "replay": "a replay of the whole step",
    "compile": 'torch.compile(mode="reduce-overhead")',
    "graphed": "make_graphed_callables",
}


def advised(ladder: Ladder, threshold_pct: float) -> Ladder:
    """The ladder with its best way: the fastest whose result follows eager's and whose gain
    reaches the threshold."""
    eager = next((rung for rung in ladder.rungs if rung.mode == "eager"), None)
    base = _iteration(eager)
    if base is None:
        reason = "" if eager is None or eager.failure is None else f": {eager.failure.reason}"
        return replace(ladder, headline=f"The ways to adopt cannot be compared{reason}.")
    timed = [r for r in ladder.rungs if r.mode != "eager" and _iteration(r) is not None]
    if not timed:
        return replace(ladder, headline="Stay eager: no other way could be measured.")
    sound = [r for r in timed if r.trajectory.status == "follows" and r.failure is None]
    paying = [rung for rung in sound if _removed(rung, base) >= threshold_pct]
    paying.sort(key=lambda rung: _iteration(rung) or base)
    told = _told_apart(timed, sound, base)
    if not paying:
        return replace(ladder, headline=f"{_none(timed, sound, base, threshold_pct)}{told}")
    best = paying[0]
    others = [
        f"{_WAYS[rung.mode]} {times(rung.speedup)}"
        for rung in paying[1:]
        if rung.speedup is not None
    ]
    behind = f" Behind it: {listed(others)}." if others else ""
    return replace(ladder, best=best.mode, headline=f"{_best(best, base)}{behind}{told}")


def _best(rung: Rung, base: float) -> str:
    found = _iteration(rung) or base
    way = _WAYS[rung.mode]
    how = "is projected to take" if rung.projected else "takes"
    by = "" if rung.speedup is None else f" ({times(rung.speedup)})"
    steps = f"over {rung.trajectory.steps} steps"
    what = rung.trajectory.what
    same = (
        f"{what} equal to eager's {steps}"
        if rung.trajectory.largest_pct == 0
        else f"{what} follows eager's {steps}"
    )
    setup = "" if rung.setup_ms is None else f"; set-up {ms(rung.setup_ms)}"
    return (
        f"Best is {way}: it {how} the iteration from {ms(base)} to {ms(found)}{by}, {same}{setup}."
    )


def _none(timed: list[Rung], sound: list[Rung], base: float, threshold: float) -> str:
    fastest = min(sound, key=lambda rung: _iteration(rung) or base, default=None)
    if fastest is None:
        return "Stay eager: no way that was measured is known to give eager's result."
    removed = _removed(fastest, base)
    gain = f"takes {pct(removed)} off" if removed > 0 else "takes nothing off"
    return (
        f"Stay eager: the fastest way, {_WAYS[fastest.mode]}, {gain} the iteration, and your "
        f"threshold is {pct(threshold)}."
    )


def _told_apart(timed: list[Rung], sound: list[Rung], base: float) -> str:
    """The ways that were timed and are not to be had as they are."""
    left = [rung for rung in timed if rung not in sound and _removed(rung, base) > 0]
    return "".join(
        f" Not counted: {_WAYS[rung.mode]}"
        + ("" if rung.speedup is None else f" ({times(rung.speedup)})")
        + f", {_flaw(rung)}."
        for rung in left
    )


def _flaw(rung: Rung) -> str:
    if rung.trajectory.status == "differs":
        return "whose result differs from eager's"
    if rung.failure is not None:
        return f"whose process failed{_because(rung.failure.reason)}"
    return f"not compared with eager{_because(rung.trajectory.reason)}"


def _because(reason: str | None) -> str:
    return f": {reason.rstrip('.')}" if reason else ""


def _iteration(rung: Rung | None) -> float | None:
    if rung is None or rung.iteration_ms is None or rung.iteration_ms.value is None:
        return None
    return float(rung.iteration_ms.value)


def _removed(rung: Rung, base: float) -> float:
    return 100 * (1 - (_iteration(rung) or base) / base)
