"""Results of blocking operations for a step of a size that no recorded step has."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from launchscope.model import TensorShape
from launchscope.runner.child.capture.stubs import Answer, Call, Stubs
from launchscope.runner.child.facts.reasons import ReasonError
from launchscope.runner.child.facts.torch_types import Tensor, Value

# How many steps are recorded before another one is foreseen, how many are kept, and how many have
# to run the same operations.
_NEEDED, _KEPT, _ALIKE = 6, 12, 3


class SizedStubs(Stubs):
    """`record` and `keep` for each of several steps, no two of one size; then `foresee` for the
    step that is captured, before `play`.

    Results are those of the step nearest in size, but for an integer that differs by the same
    amount from a dimension of the inputs in all steps. Where tensors differ in shape, what the rest
    of the step runs depends on values: there is no stub.
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
        now = _sizes(inputs)
        ops = [tuple(answer.call for answer in answers) for _, answers in self._kept]
        usual, count = Counter(ops).most_common(1)[0]
        if count < _ALIKE:
            raise ReasonError("blockers_vary")
        steps = [step for step, own in zip(self._kept, ops) if own == usual]
        steps.sort(key=lambda step: abs(sum(step[0]) - sum(now)))
        sizes = [of_step for of_step, _ in steps]
        self.recorded = [
            answers[0]._replace(value=self._foreseen(answers, sizes, now))
            for answers in zip(*(answers for _, answers in steps))
        ]

    def _foreseen(
        self, answers: Sequence[Answer], sizes: Sequence[Sequence[int]], now: Sequence[int]
    ) -> Value:
        """The result of one operation, from those of the steps with these sizes, nearest first."""
        values = [answer.value for answer in answers]
        nearest = values[0]
        if type(nearest) is int and len(set(values)) > 1:
            for at, size in enumerate(now):
                more = {value - of_step[at] for value, of_step in zip(values, sizes)}
                if len(more) == 1:
                    return size + more.pop()
        if len({str(self._shapes(value)) for value in values}) > 1:
            raise ReasonError("sizes_from_values", **_details(answers[0]))
        return nearest

    def _shapes(self, value: Value) -> Value:
        if isinstance(value, list | tuple):
            return [self._shapes(part) for part in value]
        if not isinstance(value, self._torch.Tensor):
            return None
        # Of a sparse tensor the number of entries counts.
        return tuple(value.shape) if value.layout == self._torch.strided else value._nnz()

    def _call_of(self, op: str, tensors: Sequence[Tensor]) -> Call:
        return Call(op)  # the shapes differ from step to step


def _sizes(inputs: Sequence[TensorShape]) -> list[int]:
    return [size for shape in inputs for size in shape.dims]


def _details(answer: Answer) -> dict[str, str | int | float]:
    details: dict[str, str | int | float] = {"op": answer.call.op}
    if answer.where is not None:
        details |= {"file": answer.where.file, "line": answer.where.line}
    return details
