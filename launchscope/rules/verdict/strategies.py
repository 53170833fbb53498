"""Which strategy is the best one, and the sentence that says why."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

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
        failure = None if eager is None else eager.failure
        reason = "" if failure is None else f": {failure_text(failure)}"
        return replace(strategies, headline=f"The strategies cannot be compared{reason}.")
    timed = [s for s in strategies.tried if s.mode != "eager" and _iteration(s) is not None]
    if not timed:
        return replace(strategies, headline="Stay eager: no other strategy was measured.")
    sound = [s for s in timed if s.trajectory.status == "follows" and s.failure is None]
    sound.sort(key=lambda strategy: _with_setup(strategy, base, expected_steps))
    paying = [
        strategy
        for strategy in sound
        if _removed(strategy, base) >= threshold_pct
        and _with_setup(strategy, base, expected_steps) < base
    ]
    # Strategies that are faster than eager and not usable as they are.
    flawed = "".join(
        f" Not counted: {_named(strategy)}, {_flaw(strategy)}."
        for strategy in timed
        if strategy not in sound and _removed(strategy, base) > 0
    )
    if not paying:
        none = _none(sound, base, threshold_pct, expected_steps)
        return replace(strategies, headline=f"{none}{flawed}")
    slower = listed([_named(strategy) for strategy in paying[1:]])
    word = "Slower" if expected_steps is None else f"Slower over {plural(expected_steps, 'step')}"
    behind = f" {word}: {slower}." if slower else ""
    headline = f"{_best(paying[0], base)}{behind}{flawed}"
    return replace(strategies, best=paying[0].mode, headline=headline)


def _best(strategy: Strategy, base: float) -> str:
    verb = "is projected to take" if strategy.projected else "takes"
    followed, setup = strategy.trajectory, strategy.setup_ms
    equal = "equals" if followed.largest_pct == 0 else "follows"
    over = f" over {plural(followed.steps, 'step')}" if followed.steps else ""
    takes = "" if setup is None else f" Its setup takes {ms(max(0.0, setup))}"
    saved = base - (_iteration(strategy) or base)
    if takes:
        back = ceil(max(0.0, setup or 0.0) / saved) if saved > 0 else 0
        takes += f", which {plural(back, 'step')} pay back." if back > 1 else "."
    return (
        f"The best strategy is {_NAMES[strategy.mode]}: it {verb} the iteration from {ms(base)} to "
        f"{ms(_iteration(strategy) or base)}{_speedup(strategy)}, and its {followed.what} {equal} "
        f"eager's{over}.{takes}"
    )


def _with_setup(strategy: Strategy, base: float, expected_steps: int | None) -> float:
    """Its iteration in ms, with the share of its setup in each of the expected steps."""
    setup = 0.0 if expected_steps is None else (strategy.setup_ms or 0.0) / expected_steps
    return (_iteration(strategy) or base) + max(0.0, setup)


def _none(sound: list[Strategy], base: float, threshold: float, expected_steps: int | None) -> str:
    if not sound:
        return "Stay eager: no measured strategy is known to give the eager result."
    if expected_steps is not None and _removed(sound[0], base) >= threshold:
        return (
            f"Stay eager: no setup is paid back in {plural(expected_steps, 'step')}; that of "
            f"{_NAMES[sound[0].mode]} takes {ms(sound[0].setup_ms or 0.0)}."
        )
    share = share_of(_removed(sound[0], base), threshold)
    return (
        f"Stay eager: the fastest strategy, {_NAMES[sound[0].mode]}, removes {share} the "
        f"iteration, and your threshold is {pct(threshold)}."
    )


def _named(strategy: Strategy) -> str:
    return f"{_NAMES[strategy.mode]}{_speedup(strategy)}"


def _speedup(strategy: Strategy) -> str:
    return "" if strategy.speedup is None else f" ({times(strategy.speedup)})"


def _flaw(strategy: Strategy) -> str:
    if strategy.trajectory.status == "differs":
        return "whose result differs from eager"
    if strategy.failure is not None:
        return f"whose process failed: {failure_text(strategy.failure)}"
    known = strategy.trajectory.reason
    reason = "" if known is None else f": {reason_text(known)}"
    return f"which was not compared with eager{reason}"


def _iteration(strategy: Strategy | None) -> float | None:
    known = None if strategy is None else strategy.iteration_ms
    return None if known is None or known.value is None else float(known.value)


def _removed(strategy: Strategy, base: float) -> float:
    return 100 * (1 - (_iteration(strategy) or base) / base) if base else 0.0
