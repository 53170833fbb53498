"""How the ranks of a distributed script come to the same step, and capture and replay it together.

A replay without the other ranks waits for them in its collectives for ever.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from launchscope.runner.child.facts.reasons import ReasonError
from launchscope.runner.child.facts.torch_types import Torch

if TYPE_CHECKING:
    from launchscope.graphed.ranks import RankAgreement

# DistributedDataParallel rebuilds its buckets and measures itself in its first steps.
_WARMUP = 11
_measurements = itertools.count()  # in this process; the same on all ranks
_MEET_S, _ATTEMPT_S, _ANSWER_S = 60.0, 2.0, 30.0
_YES, _NO, _FAILED, _CANNOT = "1", "0", "failed", "cannot "


class CaptureRanks:
    """One per process. With one rank, everything is agreed."""

    def __init__(self, torch: Torch):
        self._torch = torch
        self._agreement: RankAgreement | None = None
        self._since: dict[str, float] = {}  # by topic, when this rank came there first
        self._topic = ""
        self._steps = self._votes = 0  # begun since the ranks met; answered in the current one

    @property
    def alone(self) -> bool:
        return not self._distributed or self._torch.distributed.get_world_size() == 1

    @property
    def _distributed(self) -> bool:
        distributed = self._torch.distributed
        return bool(distributed.is_available() and distributed.is_initialized())

    def warm(self, steps: int) -> bool:
        """Whether a step of a distributed script can be captured after so many."""
        return steps >= _WARMUP or not self._distributed

    def _agreed(self) -> RankAgreement:
        from launchscope.graphed.ranks import (
            RankAgreement,  # imports torch, as the script did by now
        )

        if self._agreement is None:
            self._agreement = RankAgreement(f"profile {next(_measurements)}")
        return self._agreement

    def meet(self, topic: str, steps: int | None) -> int | None:
        """Between two steps: the fewest `steps` that a rank takes in a pass, once all are here;
        None for a rank that cannot do it.

        The result is None: run one more step, which another rank waits for. As a step of the script
        is over on no rank before all have begun it, all come to the same one. Raises ReasonError if
        a rank cannot do the pass or does not come.
        """
        self._torch.cuda.synchronize()  # no host is ahead of the others
        since = self._since.setdefault(topic, time.monotonic())
        answer = _CANNOT if steps is None else str(steps)
        try:
            self._topic, self._steps = self._attempt(topic), 0
            outcome = self._agreed().decide(self._topic, answer, _fewest, _ATTEMPT_S)
        except RuntimeError as error:
            raise ReasonError("ranks_apart", seconds=0) from error  # the store is gone
        if outcome.isdigit():
            return int(outcome)
        if outcome.startswith(_CANNOT):
            raise ReasonError("rank_cannot_capture", rank=int(outcome.removeprefix(_CANNOT)))
        if time.monotonic() - since > _MEET_S:
            raise ReasonError("ranks_apart", seconds=_MEET_S)
        return None

    def _attempt(self, topic: str) -> str:
        """The first attempt that the other ranks have not given up."""
        store, attempts = self._agreed().store, (f"{topic} {n}" for n in itertools.count())
        return next(name for name in attempts if not store.check([f"{name}/outcome"]))

    def begin_step(self) -> None:
        """A step begins. A rank whose script has broken one off is asked other questions than the
        others from then on, so that none goes on together with it."""
        self._steps, self._votes = self._steps + 1, 0

    def all(self, answer: bool) -> bool:
        """Whether all ranks say yes to the same question; no if one does not answer.

        Raises ReasonError if one has failed, here and in `any`.
        """
        return self._vote(answer, min)

    def any(self, answer: bool) -> bool:
        """Whether one of them says yes; no if one does not answer."""
        return self._vote(answer, max)

    def check(self) -> None:
        """Raises ReasonError unless all ranks have come this far."""
        if not self.all(True):
            raise ReasonError("another_rank_failed")

    def refuse(self) -> None:
        """A pass of this rank has failed: the others learn of it at their next question."""
        if not self.alone:
            with contextlib.suppress(RuntimeError):  # the store is gone
                self._agreed().settle(self._question(), _FAILED)

    def _vote(self, answer: bool, choose: Callable[[list[str]], str]) -> bool:
        if self.alone:
            return answer
        own = _YES if answer else _NO
        outcome = self._agreed().decide(self._question(), own, choose, _ANSWER_S)
        if outcome == _FAILED:
            raise ReasonError("another_rank_failed")
        return outcome == _YES

    def _question(self) -> str:
        self._votes += 1
        return f"{self._topic} step {self._steps} vote {self._votes}"


def _fewest(answers: list[str]) -> str:
    if _CANNOT in answers:
        return f"{_CANNOT}{answers.index(_CANNOT)}"
    return str(min(map(int, answers)))
