"""How the graphed functions of a run are called, and what becomes of the calls."""

from __future__ import annotations

from collections import Counter
from typing import Any

from launchscope.adopt.record import Replays
from launchscope.runner.child.facts.torch_types import Function, Torch

# Every replay is computed eagerly as well, and a difference ends the run.
_CHECKED = {"check": 1, "on_difference": "raise"}


class GraphedCalls:
    """`eager`: graphed functions are plain ones. `checks`: each replay is compared with eager."""

    def __init__(self, torch: Torch, *, eager: bool, checks: bool):
        self._torch, self._eager, self._checks = torch, eager, checks

    def install(self) -> None:
        import launchscope.graphed  # here: importing it later would bind the name again

        if self._eager:
            setattr(launchscope, "graphed", _plain)  # noqa: B010 - it is a module
        elif self._checks:
            setattr(launchscope, "graphed", _checked)  # noqa: B010

    @property
    def can_graph(self) -> bool:
        from launchscope.graphed import cuda

        return bool(cuda.gpu.available())

    def replays(self) -> Replays:
        from launchscope.graphed.capture import all_steps

        stats = [step.stats for step in list(all_steps)]
        reasons: Counter[tuple[str, str]] = Counter()
        for reason in (reason for each in stats for reason in each.reasons):
            if reason.code != "warmup":
                reasons[reason.message, reason.where or ""] += reason.calls
        return Replays(
            sum(each.replayed for each in stats),
            tuple((calls, text, where) for (text, where), calls in reasons.most_common()),
        )


def _plain(step: Function | None = None, /, **options: Any) -> Function:
    return _plain if step is None else step


def _checked(step: Function | None = None, /, **options: Any) -> Function:
    from launchscope.graphed import graphed

    made: Function = graphed(**{**options, **_CHECKED})
    return made if step is None else made(step)
