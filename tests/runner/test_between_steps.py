"""What the inspection records of the work between steps, in real scripts without a GPU."""

from __future__ import annotations

import pytest

from launchscope.analysis.steps.between import of_records
from launchscope.model import InspectResult, Schedule
from tests.regressions import BETWEEN, in_turn
from tests.runner.children import PointResult, recorded

pytestmark = pytest.mark.child


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> PointResult:
    """One regression after the other, each in one iteration, behind one without any."""
    schedule = Schedule(warmup=5, inspect=len(BETWEEN) + 1)
    return recorded(tmp_path_factory.mktemp("planted"), in_turn(first=5), schedule=schedule)


def inspected(result: PointResult) -> InspectResult:
    assert result.recording.inspect is not None
    return result.recording.inspect


@pytest.mark.parametrize("name", BETWEEN)
def test_each_regression_between_steps_adds_to_its_metric_at_its_line(
    name: str, planted: PointResult
) -> None:
    plain, *others = inspected(planted).between
    regression, there = BETWEEN[name], others[list(BETWEEN).index(name)]
    usual, found = of_records([plain], on_gpu=False), of_records([there], on_gpu=False)
    assert usual is not None
    assert found is not None
    assert found.per_iteration[regression.metric] > usual.per_iteration[regression.metric]
    rows = [(row.name, row.where) for row in found.steps.ops]
    rows += [(row.op, row.where) for row in found.steps.blockers]
    at_line = {name for name, where in rows if regression.line in planted.line(where)}
    assert regression.names[0] in at_line


def test_adding_to_kept_gradients_is_shown_at_the_line_that_kept_them(planted: PointResult) -> None:
    last = inspected(planted)
    line = BETWEEN["zero_grad(set_to_none=False)"].line
    kept = [row for row in last.ops if row.op == "aten.add_"]
    assert len(kept) == 26  # parameters
    assert {planted.line(row.where) for row in kept} == {line}
    assert last.device_ops[-1] == last.device_ops[0] + 26


def test_the_baseline_script_has_one_op_between_its_steps(planted: PointResult) -> None:
    plain = inspected(planted).between[0]
    (row,) = plain.ops
    assert (row.op, row.count, plain.blockers, plain.copies) == ("aten.add_", 1, (), 0)
    assert planted.line(row.where) == "total += loss.detach()"
