"""What the adapters share: the step of a training under `graphed`, or why it runs without, and what
they say at its end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from launchscope.graphed import GraphedStep, Stats, graphed

from .replacing import Replacements


class Adapter:
    """Of the last training. `refusal` says why its steps run as without the adapter; None if they
    run under `graphed`."""

    def __init__(self, options: dict[str, Any]):
        self.refusal: str | None = None
        graphed(**options)  # raises where it does not know one
        self._options = options
        self._graphed: GraphedStep[Any, Any] | None = None
        self._replacements = Replacements()
        self._trains = False

    @property
    def stats(self) -> Stats | None:
        """What became of the steps; None before the first, or if `refusal` says why."""
        return None if self._graphed is None else self._graphed.stats

    def _begin(
        self,
        refusal: Callable[..., str | None],
        install: Callable[..., GraphedStep[Any, Any]],
        *trained: Any,
    ) -> None:
        """Install the step, if `refusal` of what is trained gives no reason. A library that is not
        as expected is a reason, and no error of the training."""
        self._replacements.undo()  # a training that failed is tried again
        self._graphed, self._trains = None, True
        try:
            self.refusal = refusal(*trained)
            if self.refusal is None:
                self._graphed = install(*trained)
        except Exception as error:
            self._replacements.undo()
            self.refusal = f"its step was not understood: {type(error).__name__}: {error}"

    def _end(self) -> None:
        self._replacements.undo()
        if self._trains:
            self._trains = False
            print(f"launchscope: {summary(self.stats, self.refusal)}", file=sys.stderr)


def summary(stats: Stats | None, refusal: str | None) -> str:
    """How many steps were replayed, and why the others were not."""
    calls = 0 if stats is None else stats.eager + stats.captured + stats.replayed
    if stats is None or not calls:
        return f"no step ran as a CUDA graph: {refusal or 'there was no step'}"
    text = f"{stats.replayed:,} of {calls:,} steps ({100 * stats.replayed / calls:.0f} %) were "
    text += f"replays of a CUDA graph; {stats.captured} captured, {stats.eager} eager"
    for reason in stats.reasons:
        text += f"\n  {reason.calls} eager: {reason}"
    return text if stats.unchecked is None else f"{text}\n  not checked: {stats.unchecked}"
