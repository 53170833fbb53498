"""What a pass is, and finding the passes: one file each, exposing PASS (bases expose none)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, cast

from launchscope.model import Reason, Schedule, StepPart
from launchscope.plugins import load_plugins

if TYPE_CHECKING:
    from launchscope.runner.child.context import Context

Result = TypeVar("Result")


@dataclass(frozen=True)
class Skip:
    """A pass has nothing to do in this script; `blocked`: until you fix the script."""

    status: Literal["skipped", "blocked"]
    reason: Reason


class Pass(ABC, Generic[Result]):
    """Observes some steps of the run in one way; the class attributes declare how.

    A pass starts at the end of a step and sees whole steps from then on: `begin` and `end`
    around each, `part_ended` between, until `end` returns True. `finish` then gives the result.
    A pass that raises is reported as failed, and the run goes on with the next one.
    """

    name: str
    label: str  # what it does, for people who wait: "tracing the replay"
    result_type: type[Result]
    order: int
    on_cpu = False  # runs in a rehearsal too
    # It uses dispatch modes, after which compiled code stays eager in that process.
    runs_eagerly = False
    captures = False  # a failure can end the process, so a full run never shares it
    boundaries_only = False  # sees nothing between the two ends of a step
    depends_on_stream = False  # its result depends on whether the script runs on our stream
    worth_another_run = True  # the script is run again for it if it could not run yet
    # It only runs after this pass gave a result in the same process.
    follows: type[Pass[Any]] | None = None
    # It measures a part of what this pass measures, and only where that one cannot.
    part_of: type[Pass[Any]] | None = None
    # What a script with few steps reduces the pass to; None: the pass always takes its steps.
    fewest_steps: int | None = None
    time_limit_s = 60.0  # beside the time of its steps; then it counts as hung

    context: Context  # set by `start`

    @classmethod
    def steps(cls, schedule: Schedule) -> int:
        """How many steps the pass takes; 0 leaves it out."""
        return int(getattr(schedule, cls.name))

    @classmethod
    def cut_off(cls, reason: Reason) -> Result | None:
        """The result if the process ended during the pass; None makes it a plain failure."""
        return None

    def skip(self, context: Context) -> Skip | None:
        """Why this pass has nothing to do in this script; None if it has."""
        return None

    def skipped(self, context: Context, skip: Skip) -> Result | None:
        """The result that says why the pass was skipped; None: the recording has none."""
        return None

    def start(self, context: Context) -> None:
        """The pass begins, between two steps."""
        self.context = context

    @abstractmethod
    def begin(self) -> None:
        """A step begins; the one before it may have been broken off by the script."""

    def part_ended(self, part: StepPart) -> None:
        """In a training step: the first backward begins, or the last one is over."""

    @abstractmethod
    def end(self) -> bool:
        """A step ended; True once the pass has seen enough of them."""

    @abstractmethod
    def finish(self, complete: bool) -> Result | None:
        """The result. Not `complete`: the script ended before the pass did."""

    def failed_inside_step(self, error: BaseException) -> Result | None:
        """The result if the pass made the script raise `error`; None if the error is its own."""
        return None

    def failed(self, error: BaseException) -> Result | None:
        """The result if the pass itself raised an error; None makes it a plain failure."""
        return None


AnyPass: TypeAlias = Pass[Any]


def all_passes() -> list[type[AnyPass]]:
    """Every pass class of this package, in the order in which they run."""
    found = cast("tuple[type[AnyPass], ...]", load_plugins(__name__, "PASS", type))
    return sorted(found, key=lambda entry: entry.order)
