"""Which strategy is the best one, and the sentence that says why."""

from __future__ import annotations

from dataclasses import replace

from launchscope.model import Ladder, Rung, StrategyName
from launchscope.reason_text import failure_text, reason_text
from launchscope.wording import listed, ms, pct, pct_beside, plural, times

_NAMES: dict[StrategyName, str] = {
    "eager": "eager",
    "replay": "a replay of the whole step",
    "compile": 'torch.compile(mode="reduce-overhead")',
    "graphed": "make_graphed_callables",
}


def advised(ladder: Ladder, threshold_pct: float) -> Ladder:
    """The ladder with its best strategy: the fastest one whose result follows eager and whose
    gain reaches the threshold."""
    eager = next((rung for rung in ladder.rungs if rung.mode == "eager"), None)
    base = _iteration(eager)
    if base is None:
        failure = None if eager is None else eager.failure
        reason = "" if failure is None else f": {failure_text(failure)}"
        return replace(ladder, headline=f"The strategies cannot be compared{reason}.")
    timed = [r for r in ladder.rungs if r.mode != "eager" and _iteration(r) is not None]
    if not timed:
        return replace(ladder, headline="Stay eager: no other strategy was measured.")
    sound = [r for r in timed if r.trajectory.status == "follows" and r.failure is None]
    paying = [rung for rung in sound if _removed(rung, base) >= threshold_pct]
    paying.sort(key=lambda rung: _iteration(rung) or base)
    flawed = _flawed([r for r in timed if r not in sound and _removed(r, base) > 0])
    if not paying:
        return replace(ladder, headline=f"{_none(sound, base, threshold_pct)}{flawed}")
    slower = [_named(rung) for rung in paying[1:]]
    behind = f" Slower: {listed(slower)}." if slower else ""
    return replace(
        ladder, best=paying[0].mode, headline=f"{_best(paying[0], base)}{behind}{flawed}"
    )


def _best(rung: Rung, base: float) -> str:
    verb = "is projected to take" if rung.projected else "takes"
    speedup = "" if rung.speedup is None else f" ({times(rung.speedup)})"
    equal = "equals" if rung.trajectory.largest_pct == 0 else "follows"
    steps = f" over {plural(rung.trajectory.steps, 'step')}" if rung.trajectory.steps else ""
    setup = "" if rung.setup_ms is None else f" Its setup takes {ms(max(0.0, rung.setup_ms))}."
    return (
        f"The best strategy is {_NAMES[rung.mode]}: it {verb} the iteration from {ms(base)} to "
        f"{ms(_iteration(rung) or base)}{speedup}, and its {rung.trajectory.what} {equal} "
        f"eager's{steps}.{setup}"
    )


def _none(sound: list[Rung], base: float, threshold: float) -> str:
    fastest = min(sound, key=lambda rung: _iteration(rung) or base, default=None)
    if fastest is None:
        return "Stay eager: no measured strategy is known to give the eager result."
    removed = _removed(fastest, base)
    share = f"{pct_beside(removed, threshold)} of" if removed > 0 else "nothing from"
    return (
        f"Stay eager: the fastest strategy, {_NAMES[fastest.mode]}, removes {share} the iteration, "
        f"and your threshold is {pct(threshold)}."
    )


def _flawed(rungs: list[Rung]) -> str:
    """Strategies that are faster than eager and not usable as they are."""
    return "".join(f" Not counted: {_named(rung)}, {_flaw(rung)}." for rung in rungs)


def _named(rung: Rung) -> str:
    return _NAMES[rung.mode] + ("" if rung.speedup is None else f" ({times(rung.speedup)})")


def _flaw(rung: Rung) -> str:
    if rung.trajectory.status == "differs":
        return "whose result differs from eager"
    if rung.failure is not None:
        return f"whose process failed: {failure_text(rung.failure)}"
    known = rung.trajectory.reason
    reason = "" if known is None else f": {reason_text(known)}"
    return f"which was not compared with eager{reason}"


def _iteration(rung: Rung | None) -> float | None:
    if rung is None or rung.iteration_ms is None or rung.iteration_ms.value is None:
        return None
    return float(rung.iteration_ms.value)


def _removed(rung: Rung, base: float) -> float:
    return 100 * (1 - (_iteration(rung) or base) / base) if base else 0.0
