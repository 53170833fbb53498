"""The Adoption: a change that makes a step a CUDA graph, and what running it has shown."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from launchscope.model.profile import Metric
from launchscope.model.ranks import Recommendation
from launchscope.model.reason import Reason
from launchscope.model.recording import SourceLine
from launchscope.model.target import Environment, Target

# "unverified": the source is equal, without a GPU, where no graph can be made. "refused": the
# source cannot be changed safely. "failed": the changed script ran, and was not equal or not
# faster. "not_needed": the verdict is against a graph.
AdoptionOutcome = Literal["verified", "unverified", "refused", "failed", "not_needed"]
# "part": one of several backwards with its optimizer step, as of one network of a GAN.
Covered = Literal["step", "part", "forward_backward", "forward"]
# A change beside the step itself.
Fix = Literal["fused", "validate_args"]


class Adoption(Struct, frozen=True):
    """`diff` is there wherever the source could be changed; `outcome` says whether it was verified.
    Times are per iteration of the loop around the step, of both versions in turn."""

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
    steps: int = 0  # iterations that were compared
    values: int = 0  # that agree: parameters, batches, arguments, what the script holds at the end
    reads: int = 0  # values read of tensors, among them
    printed: int | None = 0  # lines that agree; None: there are some, and none could be compared
    exact: bool = False  # equal in every bit
    unreached: tuple[SourceLine, ...] = ()  # lines around the step that no compared iteration ran
    before: Metric | None = None
    after: Metric | None = None
    replayed_pct: float | None = None
    seeded: bool = False  # by launchscope: the script sets no seed
    runs: int = 0
    notes: tuple[str, ...] = ()
    schema: str = "launchscope/adoption/2"

    @property
    def speedup(self) -> float | None:
        before = self.before.value if self.before else None
        after = self.after.value if self.after else None
        return before / after if before and after else None
