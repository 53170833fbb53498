"""Some replays are computed eagerly as well, from the same state, and compared: this finds what no
guard sees."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from . import cuda
from .arguments import Tensor, address, clone
from .capture import SavedState
from .program import Program
from .ranks import Ranks
from .stats import EagerReason

Call = Callable[[], Any]

_TOLERANCE = 1e-3  # of an update
_SPREAD = 4.0  # times what two eager runs differ by
_ROUNDING = 2.0**-23  # of a parameter, for the second one
_FIRST = (1, 10, 100)  # replays
_LEAST_APART = 1_000
_REPLAYS_PER_COST = 100  # between two checks, times the cost of one in replays


@dataclass(frozen=True)
class Result:
    """A tensor behind a call; `before` is its value at entry, None for what the call makes."""

    group: str  # whose tensors are compared together
    name: str
    where: str | None
    value: Tensor
    before: Tensor | None = None


class Checks:
    """When programs are checked. `every`: None for the plan, 0 for never."""

    def __init__(self, every: int | None, run_eagerly: Callable[[Call], Any]):
        self._every, self.run_eagerly = every, run_eagerly
        self.unchecked: EagerReason | None = None

    def is_due(self, program: Program) -> bool:
        number = program.replays
        if self.unchecked is not None or self._every == 0:
            return False
        return number >= program.next_check if self._every is None else number % self._every == 0

    def run(
        self, program: Program, call: Call, replay: Call, ranks: Ranks | None
    ) -> tuple[Any, EagerReason | None]:
        """The result of the call: the replay's, or eager's after a difference."""
        check = Check(program, lambda: self.run_eagerly(call), replay, ranks)
        if not check.has_room():
            self.unchecked = EagerReason("memory", "the GPU has no room to check replays")
            return replay(), None
        try:
            check.prepare()
        except torch.cuda.OutOfMemoryError:
            if ranks is not None:
                raise
            check.cancel()
            self.unchecked = EagerReason("memory", "a check ran out of GPU memory")
            return replay(), None
        return check.compare()


class Check:
    """One checked replay."""

    def __init__(self, program: Program, run: Call, replay: Call, ranks: Ranks | None):
        self._program, self._run, self._replay, self._ranks = program, run, replay, ranks
        program.kind.form.refresh()  # what is saved next has the rates of this call
        self._tensors, guard = program.kind.tensors(), program.kind.guard
        self._parameters = {
            address(p): guard.names.get(id(p), "a parameter") for p in guard.parameters
        }
        self._saved: SavedState | None = None
        self._expected: list[Result] = []
        self._began = time.perf_counter()

    def _agree(self, answer: bool, choose: Callable[[list[bool]], bool]) -> bool:
        if self._ranks is None:
            return answer
        chosen = self._ranks.decide(
            str(int(answer)), lambda answers: str(int(choose([a == "1" for a in answers])))
        )
        return bool(chosen == "1")

    def has_room(self) -> bool:
        """For three states and what an eager run needs."""
        sizes = {address(t): t.untyped_storage().nbytes() for t in self._tensors if address(t)}
        needed = 3 * sum(sizes.values()) + self._program.memory
        if cuda.gpu.free() < needed:
            cuda.gpu.collect()
        return self._agree(cuda.gpu.free() >= needed, all)

    def prepare(self) -> None:
        self._saved = self._program.kind.save(self._tensors)
        self._expected = self._eager(self._saved)
        cuda.gpu.synchronize()

    def cancel(self) -> None:
        if self._saved is not None:
            self._saved.restore()
        self._saved, self._expected = None, []
        cuda.gpu.collect()

    def compare(self) -> tuple[Any, EagerReason | None]:
        """A difference counts if a second eager run does not differ so from the first, in the form
        of the graph, and from parameters that are rounded once more: some steps make much of that.
        Otherwise the call is replayed once more: it rounds as the others do."""
        program, saved = self._program, self._saved
        assert saved is not None
        begin = time.perf_counter()
        output = self._replay()
        cuda.gpu.synchronize()
        end = time.perf_counter()
        errors = _errors(self._expected, self._results(output, saved))
        since, program.last_check = program.last_check, program.replays
        cost = (time.perf_counter() - self._began) / max(end - begin, 1e-9) - 1
        plan(program, cost, self._ranks)
        if not self._agree(max(errors.values(), default=0.0) > _TOLERANCE, any):
            return output, None
        found = self._results(output, saved, copied=True)
        saved.restore()
        program.kind.form.refresh()
        with program.kind.form:
            for tensor in saved.live:
                if address(tensor) in self._parameters and tensor.is_floating_point():
                    tensor.mul_(1 - _ROUNDING)
            spread = _errors(self._expected, self._eager(saved))
        limits = {group: max(_TOLERANCE, _SPREAD * error) for group, error in spread.items()}
        wrong = [group for group, error in errors.items() if error > limits[group]]
        if not self._agree(bool(wrong), any):
            return self._replay(), None
        return self._run(), self._reason(found, errors, limits, since)

    def _reason(
        self, found: list[Result], errors: dict[str, float], limits: dict[str, float], since: int
    ) -> EagerReason:
        pairs = [(r, *_parts(r, other)) for r, other in zip(self._expected, found)]
        wrong = (r for r, e, s in pairs if math.sqrt(e / max(s, 1e-60)) > limits[r.group])
        first = next(wrong, self._expected[0])
        text = f"a replay differs from eager by {max(errors.values()):.1e} of the update, first in "
        behind = f"after replay {since}" if since else "from the first one on"
        text += f"{first.name}; replays {behind} may have been wrong"
        return EagerReason("difference", text, first.where)

    def _eager(self, saved: SavedState) -> list[Result]:
        """What an eager call gives; its state is put back."""
        results = self._results(self._run(), saved, copied=True)
        saved.restore()
        return results

    def _results(self, output: Any, saved: SavedState, copied: bool = False) -> list[Result]:
        copy = clone if copied else torch.Tensor.detach
        kind, guard, parameters = self._program.kind, self._program.kind.guard, self._parameters
        optimizer = set(map(address, kind.optimizer_tensors()))
        gradients = [g for g in saved.gradients if g is not None]
        apart = set(map(address, (*kind.form.tensors(), *gradients)))
        results = []
        for live, before in zip(saved.live, saved.copies):
            if (at := address(live)) in apart:
                continue
            name, group = parameters.get(at, "a tensor"), "others"
            if at in parameters:
                group = "parameters"
            elif at in optimizer:
                name = group = "a tensor of the optimizer"
            results.append(Result(group, name, kind.lines.get(at), copy(live), before))
        for parameter in guard.parameters:
            if parameter.grad is not None:
                at = address(parameter)
                name = f"the gradient of {parameters[at]}"
                where = kind.lines.get(at)
                results.append(Result("gradients", name, where, copy(parameter.grad)))
        leaves = [
            leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor | float | int)
        ]
        returned = (copy(torch.as_tensor(leaf)) for leaf in leaves)
        return results + [Result("output", "what it returns", None, t) for t in returned]


def plan(program: Program, cost: float, ranks: Ranks | None) -> None:
    """When the next check is; `cost` is that of one in replays."""
    later = [number for number in _FIRST if number > program.replays]
    gap = max(_LEAST_APART, math.ceil(_REPLAYS_PER_COST * cost))
    if ranks is not None:
        gap = int(ranks.decide(str(gap), lambda answers: max(answers, key=int)))
    program.next_check = later[0] if later else program.replays + gap


def _errors(expected: list[Result], found: list[Result]) -> dict[str, float]:
    """The difference relative to the update, or to the value of what is new, over all tensors of
    each group together."""
    sums: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for one, other in zip(expected, found):
        sums[one.group].append(_parts(one, other))
    if len(expected) != len(found):
        sums["output"] = [(math.inf, 1.0)]
    totals = {group: (sum(e for e, _ in s), sum(u for _, u in s)) for group, s in sums.items()}
    return {group: math.sqrt(e / max(update, 1e-60)) for group, (e, update) in totals.items()}


def _parts(expected: Result, found: Result) -> tuple[float, float]:
    """The squares of the difference and of the update."""
    if expected.value.shape != found.value.shape:
        return math.inf, 1.0
    if not expected.value.is_floating_point():
        return (0.0 if torch.equal(expected.value, found.value) else math.inf), 1.0
    wanted, got = expected.value.double(), found.value.double()
    if bool((wanted.isnan() == got.isnan()).all()):
        wanted, got = wanted.nan_to_num(), got.nan_to_num()
    before = expected.before
    update = wanted if before is None else wanted - before.double().nan_to_num()
    error = float((wanted - got).square().sum())
    return (math.inf if math.isnan(error) else error), float(update.square().sum())
