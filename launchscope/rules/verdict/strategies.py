"""Which strategy is the best one, and the sentence that says why."""

from __future__ import annotations

from msgspec.structs import replace

from launchscope.model import Strategies, Strategy, StrategyName
from launchscope.reason_text import failure_text, reason_text
from launchscope.wording import listed, ms, pct, plural, share_of, times

_NAMES: dict[StrategyName, str] = {
    "eager": "eager",
    "replay": "a replay of the whole step",
    "compile": 'torch.compile(mode="reduce-overhead")',
    "graphed": "make_graphed_callables",
    "adopt": "the patch of launchscope adopt",
}


def advised(
    strategies: Strategies, threshold_pct: float, expected_steps: int | None = None
) -> Strategies:
    """The strategies with their best one, of those whose result follows eager and whose gain
    reaches the threshold: the one that takes the least time for the expected steps with its setup,
    or the fastest if nobody knows how many there are."""
    eager = next((strategy for strategy in strategies.tried if strategy.mode == "eager"), None)
    base = _iteration(eager)
    if base is None:
        why = f": {failure_text(eager.failure)}" if eager and eager.failure else ""
        return replace(strategies, headline=f"The strategies cannot be compared{why}.")

    def whole(strategy: Strategy) -> float:
        """Its iteration in ms, with the share of its setup in each of the expected steps."""
        setup = 0.0 if expected_steps is None else (strategy.setup_ms or 0.0) / expected_steps
        return (_iteration(strategy) or base or 0.0) + max(0.0, setup)

    timed = [s for s in strategies.tried if s.mode != "eager" and _iteration(s) is not None]
    sound = sorted((s for s in timed if _flaw(s) is None), key=whole)
    paying = [s for s in sound if _removed(s, base) >= threshold_pct and whole(s) < base]
    headline = _best(paying[0], base) if paying else _none(sound, base, threshold_pct)
    if paying and sound[1:]:
        over = "" if expected_steps is None else f" over {plural(expected_steps, 'step')}"
        headline += f" Slower{over}: {listed(list(map(_named, sound[1:])))}."
    for strategy in timed:
        flaw = _flaw(strategy)
        if flaw is not None and _removed(strategy, base) > 0:
            headline += f" Not counted: {_named(strategy)}, {flaw}."
    return replace(strategies, best=paying[0].mode if paying else None, headline=headline)


def _best(strategy: Strategy, base: float) -> str:
    verb = "is projected to take" if strategy.projected else "takes"
    followed, setup = strategy.trajectory, strategy.setup_ms
    over = f" over {plural(followed.steps, 'step')}" if followed.steps else ""
    takes = "" if setup is None else f" Its setup takes {ms(max(0.0, setup))}."
    return (
        f"The best strategy is {_NAMES[strategy.mode]}: it {verb} the iteration from {ms(base)} to "
        f"{ms(_iteration(strategy) or base)}{_speedup(strategy)}, and its {followed.what} follows "
        f"eager's{over}.{takes}"
    )


def _none(sound: list[Strategy], base: float, threshold: float) -> str:
    if not sound:
        return "Stay eager: no measured strategy is known to give the eager result."
    if _removed(sound[0], base) >= threshold:
        return "Stay eager: no setup is paid back in the steps that you expect."
    share = share_of(_removed(sound[0], base), threshold)
    return (
        f"Stay eager: the fastest strategy, {_NAMES[sound[0].mode]}, removes {share} the "
        f"iteration, and your threshold is {pct(threshold)}."
    )


def _named(strategy: Strategy) -> str:
    return f"{_NAMES[strategy.mode]}{_speedup(strategy)}"


def _speedup(strategy: Strategy) -> str:
    return "" if strategy.speedup is None else f" ({times(strategy.speedup)})"


def _flaw(strategy: Strategy) -> str | None:
    """Why its time does not count; None where it does."""
    if strategy.trajectory.status == "differs":
        return "whose result differs from eager"
    if strategy.failure is not None:
        return f"whose process failed: {failure_text(strategy.failure)}"
    if strategy.trajectory.status == "follows":
        return None
    known = strategy.trajectory.reason
    reason = "" if known is None else f": {reason_text(known)}"
    return f"which was not compared with eager{reason}"


def _iteration(strategy: Strategy | None) -> float | None:
    known = None if strategy is None else strategy.iteration_ms
    return None if known is None or known.value is None else float(known.value)


def _removed(strategy: Strategy, base: float) -> float:
    return 100 * (1 - (_iteration(strategy) or base) / base) if base else 0.0
