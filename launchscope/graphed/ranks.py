"""What all ranks decide together: the same graph or the same capture in each call, or eager."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from .capture import all_steps
from .stats import GraphedError

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0005, 0.02  # between two looks at the store
_MOST_CALLS_APART = 64  # between two attempts to agree on a graph
DISTRIBUTED = os.path.join(os.path.dirname(torch.__file__), "distributed", "")


def is_distributed() -> bool:
    """Whether there is a process group, of one rank or more."""
    distributed: Any = torch.distributed
    return bool(distributed.is_available() and distributed.is_initialized())


def several_ranks() -> bool:
    distributed: Any = torch.distributed
    return is_distributed() and bool(distributed.get_world_size() > 1)


class RankAgreement:
    """What all ranks decide together, over the store of their process group.

    The store is no collective: waiting there cannot get mixed up with what the script exchanges,
    every wait has an end, and an outcome is the same for all ranks, however late one of them comes.
    """

    def __init__(self, name: str):
        distributed: Any = torch.distributed
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()
        store = distributed.distributed_c10d._get_default_store()
        self.store = distributed.PrefixStore(f"launchscope/{name}", store)

    def decide(
        self, topic: str, answer: str, choose: Callable[[list[str]], str], timeout_s: float
    ) -> str:
        """What `choose` makes of the answers of all ranks, in their order.

        "late ..." with the ranks that did not answer in time, or if the store is gone.
        """
        outcome = f"{topic}/outcome"
        keys = [f"{topic}/{rank}" for rank in range(self.size)]
        try:
            self.store.set(keys[self.rank], answer)
            if self.store.add(f"{topic}/count", 1) == self.size:
                answers = [self.store.get(key).decode() for key in keys]
                for key in (*keys, f"{topic}/count"):
                    self.store.delete_key(key)
                return self.settle(topic, choose(answers))
            pause, end = _FIRST_PAUSE_S, time.monotonic() + timeout_s
            while not self.store.check([outcome]):
                if time.monotonic() > end:
                    missing = [r for r, key in enumerate(keys) if not self.store.check([key])]
                    return self.settle(topic, f"late {_named_ranks(missing)}")
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            return str(self.store.get(outcome).decode())
        except RuntimeError:  # the process that holds the store has ended
            return "late the store of the process group"

    def settle(self, topic: str, outcome: str) -> str:
        """The outcome of a topic: this one, unless there was one before."""
        return str(self.store.compare_set(f"{topic}/outcome", "", outcome).decode())


def _named_ranks(ranks: list[int]) -> str:
    listed = ", ".join(map(str, ranks))
    return f"rank{'' if len(ranks) == 1 else 's'} {listed}"


def _common(answers: list[str]) -> str:
    """What all ranks do in a call: the same graph or the same capture, otherwise eager."""
    for rank, answer in enumerate(answers):
        if answer.startswith("never"):
            return f"never rank {rank}: {answer.removeprefix('never').strip()}"
    if len(set(answers)) == 1:
        return answers[0]
    return f"eager {_named_ranks([r for r, answer in enumerate(answers) if answer == 'eager'])}"


def _all_done(answers: list[str]) -> str:
    return next((f"failed rank {r}: {a}" for r, a in enumerate(answers) if a != "done"), "done")


class OtherRankError(Exception):
    """Another rank could not capture, or found a difference."""


_names: Counter[str] = Counter()


class Ranks:
    """What the ranks do in each call of one step that communicates. They vote, by the number of the
    call. As long as they have agreed on a graph, no replay asks: a rank that cannot replay it asks
    again. In eager calls they vote ever more rarely."""

    def __init__(self, name: str, warmup: int, timeout_s: float):
        _names[name] += 1
        self.agreement = RankAgreement(f"graphed/{name}/{_names[name]}")
        self._timeout_s = timeout_s
        self.calls = self._parts = 0
        self._standing: str | None = None  # the replay that was agreed upon
        self._next_vote, self._gap = warmup, 1
        self._over = False

    def turn(self, answer: str, why: str) -> str:
        """What all ranks do in this call, where this one would do `answer` because of `why`. Raises
        GraphedError if the others replay."""
        self.calls += 1
        call, standing = self.calls, self._standing
        if self._over or (standing is None and call < self._next_vote):
            return "eager"
        if standing == answer:
            return answer
        outcome = self.agreement.decide(f"call {call}", answer, _common, self._timeout_s)
        kind, _, rest = outcome.partition(" ")
        if kind == "late" and standing is not None:
            raise GraphedError(
                f"call {call} cannot be replayed on rank {self.agreement.rank} ({why}), and "
                f"{rest} replays it; LAUNCHSCOPE_GRAPHED=0 runs all ranks eagerly"
            )
        if kind == "late":
            kind, outcome = "never", f"never {rest} gave no answer"
        self._over = kind == "never"
        self._parts, self._standing = 0, outcome if kind == "replay" else None
        if kind != "replay":
            self._next_vote = call + self._gap
            self._gap = min(2 * self._gap, _MOST_CALLS_APART)
        return outcome

    def confirm(self, answer: str = "done") -> None:
        """Go on if all ranks could do this part of a capture or a check. Raises OtherRankError."""
        outcome = self.decide(answer, _all_done)
        if outcome != "done":
            raise OtherRankError(outcome.removeprefix("failed "))

    def decide(self, answer: str, choose: Callable[[list[str]], str]) -> str:
        """What all ranks make of their answers in this part of a call."""
        topic = f"call {self.calls} part {self._parts}"
        self._parts += 1
        outcome = self.agreement.decide(topic, answer, choose, self._timeout_s)
        if outcome.startswith("late "):
            rest = outcome.removeprefix("late ")
            raise GraphedError(f"in a capture or a check of all ranks {rest} gave no answer")
        return outcome

    def tell(self, error: BaseException) -> GraphedError | None:
        """After an error in a capture, which the others must not replay. The result is an error if
        it is not known what they do."""
        if not isinstance(error, Exception):
            topic = f"call {self.calls} part {self._parts}"
            with contextlib.suppress(RuntimeError):
                self.agreement.settle(topic, f"failed rank {self.agreement.rank}: interrupted")
        elif not isinstance(error, OtherRankError | GraphedError):
            with contextlib.suppress(OtherRankError):  # this one
                try:
                    self.confirm(f"{type(error).__name__}: {error}".splitlines()[0])
                except GraphedError as missing:
                    return missing
        return error if isinstance(error, GraphedError) else None

    def captured(self) -> str:
        """The name of the graph of this call, which all ranks have made, and replay from now on."""
        self._standing, self._gap = f"replay {self.calls}", 1
        return self._standing


@atexit.register
def _free_shared_graphs() -> None:
    """NCCL ends a communicator only when no graph uses it: `destroy_process_group()` and the end of
    the process would wait for ever."""
    for step in list(all_steps):
        if step.ranks is not None:
            step.reset()


@functools.cache
def free_before_shutdown() -> None:
    """`destroy_process_group()` calls one of these for each group."""
    distributed: Any = torch.distributed
    group, module = distributed.ProcessGroup, distributed.distributed_c10d
    for owner, name in ((group, "shutdown"), (group, "abort"), (module, "_shutdown_backend")):
        if hasattr(owner, name):
            setattr(owner, name, _freeing_first(getattr(owner, name)))


def _freeing_first(end: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(end)
    def call(group: Any, *args: Any, **kwargs: Any) -> Any:
        _free_shared_graphs()
        if group is torch.distributed.group.WORLD:
            for step in list(all_steps):
                step.ranks = None
        return end(group, *args, **kwargs)

    return call
