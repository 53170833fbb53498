"""How the graphed functions of a run are called, and what becomes of the calls."""

from __future__ import annotations

from collections import Counter
from typing import Any

from launchscope.runner.child.facts.torch_types import Function

# What a person can do, where the message of `graphed` does not say it.
_EDITS = {
    "side_effect": "; do that before or after the step",
    "unstable": "; pass a tensor on the GPU in its place",
    "max_graphs": "; give the step fewer shapes, as by padding",
    "signature": "; compute before the step what changes them",
}


def replace_graphed(*, eager: bool, checks: bool) -> None:
    """`eager`: graphed functions are plain ones. `checks`: each replay is computed eagerly as well,
    and a difference ends the run."""
    import launchscope
    from launchscope.graphed import graphed  # here: importing it later would bind the name again

    def checked(step: Function | None = None, /, **options: Any) -> Any:
        made = graphed(**{**options, "check": 1, "on_difference": "raise"})
        return made if step is None else made(step)

    if eager or checks:
        setattr(launchscope, "graphed", _plain if eager else checked)  # noqa: B010 - a module


def can_graph() -> bool:
    from launchscope.graphed import cuda

    return bool(cuda.gpu.available())


def graphed_calls() -> tuple[int, tuple[tuple[int, str, str], ...]]:
    """The replays; and of the calls that ran eagerly behind the warm-up, how many, why, where."""
    from launchscope.graphed.capture import all_steps

    stats = [step.stats for step in list(all_steps)]
    reasons: Counter[tuple[str, str]] = Counter()
    for reason in (reason for each in stats for reason in each.reasons):
        if reason.code != "warmup":
            edit = _EDITS.get(reason.code, "")
            reasons[f"{reason.message}{edit}", reason.where or ""] += reason.calls
    eager = tuple((calls, text, where) for (text, where), calls in reasons.most_common())
    return sum(each.replayed for each in stats), eager


def _plain(step: Function | None = None, /, **options: Any) -> Function:
    return _plain if step is None else step
