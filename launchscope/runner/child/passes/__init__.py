"""What a pass is, and finding the passes: one file each, exposing PASS (bases expose none)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from launchscope.model import StepPart
from launchscope.plugins import load_plugins

if TYPE_CHECKING:
    from launchscope.runner.child.context import Context

# A reason to skip that begins so is one that the person can mend.
BLOCKED = "blocked: "


# Names of passes that capture a part of the step begin with this.
SCOPE = "scope_"


class Pass(Protocol):
    """Some steps of the run, looked at in one way.

    A pass is started at the end of a step and sees whole steps from then on: `begin` and
    `end` around each, `part_ended` between, until `end` returns True. `finish` gives its
    result. A pass that raises is reported as failed and the run goes on with the next.
    """

    name: str
    order: int
    on_gpu: bool  # needs a CUDA device
    on_cpu: bool  # also makes sense in a rehearsal
    runs_eagerly: bool  # uses dispatch modes: compiled code would stay eager afterwards
    captures: bool  # a failure can take the process down, so it may not precede a full run
    needs: str | None  # the pass whose live results it uses
    ends_only: bool  # looks at nothing between a step's begin and its end
    worth_a_run: bool  # the script is run again for it, if it could not run yet
    longest_s: float  # what it may take beside its steps before it is taken for hung

    def steps(self, context: Context) -> int: ...
    def skip_reason(self, context: Context) -> str | None: ...
    def start(self, context: Context) -> None: ...
    def begin(self) -> None: ...
    def part_ended(self, part: StepPart) -> None: ...
    def end(self) -> bool: ...
    def finish(self, complete: bool) -> Any: ...
    def failed_inside_step(self, error: BaseException) -> Any: ...
    def failed(self, error: BaseException) -> Any: ...


class PassBase:
    """Defaults that most passes share."""

    name = ""
    order = 0
    on_gpu = True
    on_cpu = False
    runs_eagerly = False
    captures = False
    needs: str | None = None
    ends_only = False
    worth_a_run = True
    longest_s = 60.0

    def __init__(self) -> None:
        self.context: Context

    def steps(self, context: Context) -> int:
        return int(getattr(context.schedule, self.name))

    def skip_reason(self, context: Context) -> str | None:
        return None

    def start(self, context: Context) -> None:
        self.context = context

    def part_ended(self, part: StepPart) -> None:
        """Of a training step: its first backward begins, or its last one is over."""

    def failed_inside_step(self, error: BaseException) -> Any:
        """The result if the script raised `error` because of this pass; None if it is not ours."""
        return None

    def failed(self, error: BaseException) -> Any:
        """The result if the pass itself raised; None makes it a plain failure."""
        return None


def all_passes() -> list[type[Pass]]:
    """Every pass class of this package, in the order in which they run."""
    found = cast("tuple[type[Pass], ...]", load_plugins(__name__, "PASS", type))
    return sorted(found, key=lambda entry: entry.order)
