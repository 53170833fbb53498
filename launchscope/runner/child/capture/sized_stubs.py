"""Results of blocking operations for a step of a size that no recorded step has."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from launchscope.model import ReasonCode, TensorShape
from launchscope.runner.child.capture.stubs import Answer, Call, Stubs
from launchscope.runner.child.reasons import ReasonError
from launchscope.runner.child.torch_types import Tensor, Value

# How many steps are recorded before another one is foreseen, and how many are kept. Of the nearest
# ones in size, so many have to agree.
_NEEDED, _KEPT, _AGREEING = 6, 12, 3


class _UnknownError(Exception):
    def __init__(self, code: ReasonCode):
        self.code = code


class SizedStubs(Stubs):
    """`record` and `keep` for each of several steps, no two of one size; then `foresee` for the
    step that is captured, before `play`.

    A result that is the same in all steps, or in those that are nearest in size, is foreseen, and
    so is an integer that always differs by the same amount from a dimension of the inputs. Other
    integers, and tensors whose shapes differ, may decide what the rest of the step runs: they have
    no stub. Numbers with a fraction do not, and are taken from the nearest step.
    """

    def __init__(self, *of_stubs: Value):
        super().__init__(*of_stubs)
        self._kept = deque[tuple[list[int], list[Answer]]](maxlen=_KEPT)  # with the inputs' sizes

    @property
    def knows_enough(self) -> bool:
        return len(self._kept) >= _NEEDED

    def keep(self, inputs: Sequence[TensorShape]) -> None:
        """The step with these inputs was recorded as a whole."""
        self._kept.append((_sizes(inputs), self.recorded))

    def foresee(self, inputs: Sequence[TensorShape]) -> None:
        """Raises ReasonError if a result for a step with these inputs cannot be known."""
        ops = [tuple(answer.call.op for answer in answers) for _, answers in self._kept]
        usual, count = Counter(ops).most_common(1)[0]
        if count < _AGREEING:
            raise ReasonError("blockers_vary")
        now = _sizes(inputs)
        steps = [step for step, own in zip(self._kept, ops) if own == usual]
        steps.sort(key=lambda step: abs(sum(step[0]) - sum(now)))
        sizes = [of_step for of_step, _ in steps]
        self.recorded = []
        for answers in zip(*(answers for _, answers in steps)):
            results = [answer.value for answer in answers]
            try:
                value = self._foreseen(results, sizes, now)
            except _UnknownError as unknown:
                raise ReasonError(unknown.code, **_details(answers[0])) from None
            self.recorded.append(answers[0]._replace(value=value))

    def _foreseen(
        self, results: Sequence[Value], sizes: Sequence[Sequence[int]], now: Sequence[int]
    ) -> Value:
        """The result of one operation, from those of the steps with these sizes, nearest first."""
        nearest, near = results[0], results[:_AGREEING]
        if isinstance(nearest, list | tuple):
            if len({len(result) for result in results}) > 1:
                raise _UnknownError("sizes_from_values")
            return type(nearest)([self._foreseen(part, sizes, now) for part in zip(*results)])
        if isinstance(nearest, self._torch.Tensor):
            return self._tensor(near)
        if not isinstance(nearest, int) or len(set(results)) == 1:
            return nearest
        for at, size in enumerate(now):
            more = {result - of_step[at] for result, of_step in zip(results, sizes)}
            if len(more) == 1 and not isinstance(nearest, bool):
                return size + more.pop()
        if len(set(near)) == 1:
            return nearest
        raise _UnknownError("read_values_differ")

    def _tensor(self, near: Sequence[Tensor]) -> Tensor:
        torch, nearest = self._torch, near[0]
        # Of a sparse tensor the number of entries may differ.
        strided = nearest.layout == torch.strided
        if not strided or len({tuple(result.shape) for result in near}) > 1:
            raise _UnknownError("sizes_from_values")
        fraction = nearest.is_floating_point() or nearest.is_complex()
        if not fraction and not all(torch.equal(nearest, result) for result in near[1:]):
            raise _UnknownError("read_values_differ")
        return nearest

    def _call_of(self, op: str, tensors: Sequence[Tensor]) -> Call:
        return Call(op)  # the shapes differ from step to step


def _sizes(inputs: Sequence[TensorShape]) -> list[int]:
    return [size for shape in inputs for size in shape.dims]


def _details(answer: Answer) -> dict[str, str | int | float]:
    details: dict[str, str | int | float] = {"op": answer.call.op}
    if answer.where is not None:
        details |= {"file": answer.where.file, "line": answer.where.line}
    return details
