"""The Adoption: a change that makes a step a CUDA graph, and what running it has shown."""

from __future__ import annotations

from typing import Literal

from launchscope.frozen import dataclass
from launchscope.model.profile import Metric
from launchscope.model.ranks import Recommendation
from launchscope.model.reason import Reason
from launchscope.model.recording import SourceLine
from launchscope.model.shown import Shown
from launchscope.model.target import Environment, Target

# "unverified": it only ran, without a GPU, where no graph can be made. "refused": the source cannot
# be changed safely. "failed": the changed script ran, and was not equal or not faster.
# "not_needed": the verdict is against a graph.
AdoptionOutcome = Literal["verified", "unverified", "refused", "failed", "not_needed"]
# "part": one of several backwards with its optimizer step, as of one network of a GAN.
Covered = Literal["step", "part", "forward_backward", "forward"]
# A change beside the step itself.
Fix = Literal[
    "fused",
    "capturable",
    "pin_memory",
    "item_accumulation",
    "on_device",
    "validate_args",
    "side_stream",
]
# What a short run may lack, and what a patch could do wrong in silence.
Forced = Literal["learning_rate", "evaluation", "state_dict", "short_batch"]
Mutant = Literal["frozen_rate", "stale_batch", "repeated_random", "left_out"]


@dataclass(frozen=True)
class MutantCheck:
    """A wrong version of the change that the comparison has to notice. `unit`: the step at which it
    did. None: it did not, or the step has nothing that could go wrong this way."""

    kind: Mutant
    outcome: Literal["noticed", "missed", "not_applicable"]
    unit: int | None = None


@dataclass(frozen=True)
class Adoption(Shown):
    """`diff` is there if the change was verified or, without a GPU, ran. Times are per optimizer or
    inference step, each from windows of both versions in alternation."""

    target: Target
    environment: Environment
    outcome: AdoptionOutcome
    recommendation: Recommendation | None = None
    projected: float | None = None  # how many times as fast, says the verdict on the same machine
    file: str = ""  # the file that changes, as a path from the working directory
    diff: tuple[str, ...] = ()  # lines
    function: str = ""  # the new one, that is graphed
    covered: Covered | None = None
    lines: tuple[int, int] | None = None  # of the step before the change
    fixes: tuple[Fix, ...] = ()
    reason: Reason | None = None  # why there is no verified change
    where: SourceLine | None = None
    steps: int = 0  # that were compared
    reads: int | None = None  # logged values that were compared
    printed: int | None = 0  # lines that were compared; None: there are some, and none could be
    held: int | None = None  # values that the script holds and that were compared
    exact: bool = False  # equal in every bit
    eager_exact: bool = False  # two runs of the original are
    before: Metric | None = None
    after: Metric | None = None
    replayed_pct: float | None = None
    setup_ms: float | None = None  # the call that makes the first graph
    mutants: tuple[MutantCheck, ...] = ()
    forced: tuple[Forced, ...] = ()
    not_forced: tuple[Forced, ...] = ()
    switched: tuple[str, ...] = ()  # tests and loops, by their code, that went the other way, too
    not_switched: tuple[str, ...] = ()  # could not, or the original fails there
    seeded: bool = False  # by launchscope: the script sets no seed
    runs: int = 0
    undo: str = ""  # where it was applied, the command that takes it back
    notes: tuple[str, ...] = ()
    schema: str = "launchscope/adoption/1"

    @property
    def speedup(self) -> float | None:
        before = self.before.value if self.before else None
        after = self.after.value if self.after else None
        return before / after if before and after else None
