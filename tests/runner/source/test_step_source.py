"""The person's own statements of a step, found from the lines at which it worked."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from launchscope.model import StepSource
from launchscope.runner.source.step import step_source
from tests.runner.sources import Doubles, source_of

TRAINING = """\
for step in range(2):
    batch = data[step % len(data)]
    optimizer.zero_grad()
    loss = model(batch[:, 1:]) * scale * step
    loss.backward()
    optimizer.step()
    probe()
    print(loss)
"""


@pytest.fixture
def training(tmp_path: Path) -> StepSource:
    model = Doubles()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = source_of(
        tmp_path, TRAINING, [4, 5, 6], ("data", "scale"),
        model=model, optimizer=optimizer, data=torch.randn(2, 5, 4), scale=torch.ones(()),
    )  # fmt: skip
    assert found is not None
    return found


def test_clearing_the_gradients_next_to_the_step_belongs_to_it(training: StepSource) -> None:
    assert (training.first_line, training.last_line) == (3, 6)
    assert training.before == "batch = data[step % len(data)]"
    assert training.loop == "for step in range(2):"


def test_inputs_that_change_get_static_names_and_the_others_stay(training: StepSource) -> None:
    batch, scale = training.inputs
    assert (batch.expression, batch.static_name, batch.shape) == ("batch", "static_batch", (5, 4))
    assert (batch.constant, scale.expression, scale.constant) == (False, "scale", True)
    assert "model(static_batch[:, 1:]) * scale * step" in training.static_code
    assert "model(batch[:, 1:])" in training.code


def test_names_of_results_optimizers_and_frozen_values_are_told(training: StepSource) -> None:
    assert training.results == ("loss",)
    assert training.optimizers == (("optimizer", "SGD"),)
    assert training.frozen == ("step",)


def test_a_copy_from_the_host_is_one_input(tmp_path: Path) -> None:
    code = "for x in loader:\n    y = model(x.to(device)).sum()\n    probe()\n    y.item()\n"
    found = source_of(
        tmp_path, code, [2], model=Doubles(), loader=[torch.randn(2, 3)], device="cpu"
    )
    assert found is not None
    assert [(i.expression, i.copied_from) for i in found.inputs] == [("x.to(device)", "x")]
    assert found.static_code == "y = model(static_x).sum()"
    assert found.results == ("y",)


def test_an_entry_of_a_batch_is_named_after_its_key(tmp_path: Path) -> None:
    code = "for b in loader:\n    y = model(b['ids'])\n    probe()\n"
    ids = torch.randn(2, 3)
    found = source_of(
        tmp_path, code, [2], ("ids",), model=Doubles(), loader=[{"ids": ids}], ids=ids
    )
    assert found is not None
    assert found.static_code == "y = model(static_ids)"


def test_an_entry_of_a_list_that_nothing_fills_stays(tmp_path: Path) -> None:
    code = "for _ in range(2):\n    y = model(told[-1])\n    probe()\n"
    x = torch.randn(2, 3)
    found = source_of(tmp_path, code, [2], ("x",), model=Doubles(), told=[x], x=x)
    assert found is not None
    assert [entry.constant for entry in found.inputs] == [True]


def test_an_entry_of_a_list_that_grows_is_another_tensor_each_time(tmp_path: Path) -> None:
    code = "for x in more:\n    y = model(seen[-1])\n    probe()\n    seen.append(x)\n"
    first = torch.ones(2, 3)
    found = source_of(
        tmp_path, code, [2], ("first",),
        model=Doubles(), seen=[first], first=first, more=[first],
    )  # fmt: skip
    assert found is not None
    assert [(i.expression, i.constant) for i in found.inputs] == [("seen[-1]", False)]


def test_the_function_of_the_step_is_looked_into_and_nested_ones_are_not(tmp_path: Path) -> None:
    code = (
        "def helper(v):\n    return v * 2\n"
        "def train_one(x):\n    y = helper(x)\n    y = y + 1\n    probe()\n    return y\n"
        "train_one(x)\n"
    )
    found = source_of(tmp_path, code, [2, 4, 5], ("x",), x=torch.randn(2))
    assert found is not None
    assert (found.first_line, found.last_line, found.loop) == (4, 5, None)


def test_without_the_file_on_the_stack_there_is_no_source() -> None:
    frame = sys._getframe()
    assert step_source(torch, frame, "elsewhere.py", [1], lambda tensor: True, []) is None


def test_what_stands_before_the_step_is_kept_with_the_blocks_around_it(tmp_path: Path) -> None:
    code = (
        "for x in loader:\n    with no_grad():\n        z = x * 2\n"
        "        y = model(z)\n        probe()\n"
    )
    z = torch.ones(2, 3)
    found = source_of(
        tmp_path, code, [4], model=Doubles(), loader=[z], no_grad=torch.no_grad
    )  # fmt: skip
    assert found is not None
    assert found.before == "with no_grad():\n    z = x * 2"
    assert (found.code, found.depth) == ("y = model(z)", 4)


def test_a_step_of_several_rounds_of_the_loop_is_told_from_one_of_one(tmp_path: Path) -> None:
    code = "for x in loader:\n    y = model(x)\n    y.backward()\n    probe()\n"
    names: dict[str, Any] = {"model": Doubles(), "loader": [torch.ones(2, 3)]}
    once = source_of(tmp_path, code, [2, 3], **names)
    twice = source_of(tmp_path, code, [2, 3, 2, 3], **names)
    assert once is not None
    assert twice is not None
    assert (once.rounds, twice.rounds) == (False, True)


def test_tensors_that_a_batch_holds_together_are_copied_one_by_one(tmp_path: Path) -> None:
    code = "for batch in loader:\n    y = model(**batch)\n    probe()\n"
    ids, mask = torch.ones(2, 3), torch.ones(2)
    found = source_of(
        tmp_path, code, [2], ("ids", "mask"),
        model=lambda ids, mask: ids, loader=[{"ids": ids, "mask": mask}], ids=ids, mask=mask,
    )  # fmt: skip
    assert found is not None
    assert found.static_code == "y = model(**static_batch)"
    assert found.gathers == "static_batch = {'ids': static_ids, 'mask': static_mask}"
    copied = [(i.copied_from, i.static_name, i.shape) for i in found.inputs]
    assert copied == [
        ("batch['ids']", "static_ids", (2, 3)),
        ("batch['mask']", "static_mask", (2,)),
    ]


def test_a_list_of_inputs_stays_a_list(tmp_path: Path) -> None:
    code = "for pair in loader:\n    y = model(pair)\n    probe()\n"
    x = torch.ones(2, 3)
    found = source_of(tmp_path, code, [2], ("x",), model=len, loader=[[x, x]], x=x)
    assert found is not None
    assert found.static_code == "y = model(static_pair)"
    assert found.gathers == "static_pair = [static_pair_2, static_pair_3]"


def test_a_cast_stays_where_the_copy_to_the_device_goes(tmp_path: Path) -> None:
    code = "for x in loader:\n    y = model(x.to(device, dtype=half)).sum()\n    probe()\n"
    found = source_of(
        tmp_path, code, [2], model=lambda x: x, loader=[torch.randn(2, 3)], device="cpu",
        half=torch.bfloat16,
    )  # fmt: skip
    assert found is not None
    assert found.static_code == "y = model(static_x.to(device, dtype=half)).sum()"
    assert [(i.copied_from, i.dtype) for i in found.inputs] == [("x", "torch.float32")]


def test_two_inputs_whose_names_end_in_a_digit_are_two(tmp_path: Path) -> None:
    code = "for a, b in loader:\n    y = model(a['x1'], b['x1'])\n    probe()\n"
    one, two = torch.ones(2), torch.ones(3)
    found = source_of(
        tmp_path, code, [2], ("one", "two"), model=lambda a, b: a,
        loader=[({"x1": one}, {"x1": two})], one=one, two=two,
    )  # fmt: skip
    assert found is not None
    assert found.static_code == "y = model(static_x1, static_x1_2)"


def test_a_scalers_update_belongs_to_the_step(tmp_path: Path) -> None:
    code = "for x in loader:\n    scaler.step(optimizer)\n    scaler.update()\n    probe()\n"
    model = Doubles()
    found = source_of(
        tmp_path, code, [2], loader=[torch.ones(2, 3)],
        scaler=torch.amp.GradScaler("cpu", enabled=False),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
    )  # fmt: skip
    assert found is not None
    assert found.code == "scaler.step(optimizer)\nscaler.update()"


def test_a_closure_of_the_loop_belongs_to_the_step(tmp_path: Path) -> None:
    code = (
        "for x in loader:\n    def closure():\n        return model(x)\n"
        "    y = call(closure)\n    probe()\n"
    )
    found = source_of(
        tmp_path, code, [3, 4], ("x",),
        model=Doubles(), loader=[torch.ones(2, 3)], call=lambda closure: closure(),
    )  # fmt: skip
    assert found is not None
    assert (found.first_line, found.loop) == (2, "for x in loader:")
    assert "return model(static_x)" in found.static_code


def test_autocast_around_the_loop_is_no_part_of_the_step(tmp_path: Path) -> None:
    code = (
        "with autocast('cpu'):\n    for x in loader:\n        y = model(x)\n        probe()\n"
        "        with autocast('cpu'):\n            y = model(y)\n"
    )
    names: dict[str, Any] = {"model": lambda x: x, "autocast": torch.autocast}
    found = source_of(tmp_path, code, [3], loader=[torch.ones(2, 3)], **names)
    assert found is not None
    assert (found.code, found.loop) == ("y = model(x)", "for x in loader:")
    found = source_of(tmp_path, code, [6], loader=[torch.ones(2, 3)], **names)
    assert found is not None
    assert found.code == "with autocast('cpu'):\n    y = model(y)"


def test_a_batch_fetched_ahead_is_an_input_though_its_name_has_the_next_one(
    tmp_path: Path,
) -> None:
    code = "for _ in range(1):\n    y = model(x)\n    x = fetch()\n    y.backward()\n    probe()\n"
    batch = torch.ones(2, 3)
    found = source_of(tmp_path, code, [2, 4], model=Doubles(), x=batch, fetch=batch.clone)
    assert found is not None
    assert found.static_code == "y = model(static_x)\ny.backward()"
    assert found.behind == "x = fetch()"


def test_batches_fetched_ahead_within_the_step_are_told(tmp_path: Path) -> None:
    code = (
        "for _ in range(1):\n    for _ in range(2):\n        y = model(x)\n        x = fetch()\n"
        "    y.backward()\n    probe()\n"
    )
    batch = torch.ones(2, 3)
    found = source_of(tmp_path, code, [3, 5], model=Doubles(), x=batch, fetch=batch.clone)
    assert found is not None
    assert found.fetched == ("x",)


def test_a_number_that_the_batch_holds_and_the_step_reads_is_frozen(tmp_path: Path) -> None:
    code = (
        "for batch in loader:\n    loss = model(batch.x) / batch.count / batch.x.shape[0]\n"
        "    loss = loss * model.in_features\n    model.train()\n    probe()\n"
    )
    model, x = Doubles(), torch.ones(2, 3)
    batch = SimpleNamespace(x=x, count=3)
    found = source_of(tmp_path, code, [2, 3], ("x",), model=model, loader=[batch], x=x)
    assert found is not None
    assert found.frozen == ("batch.count",)


def test_numbers_and_tensors_that_stay_with_an_adapted_batch_are_told(tmp_path: Path) -> None:
    code = "for batch in loader:\n    y = model(batch)\n    probe()\n"
    x = torch.ones(2, 3)
    batch = SimpleNamespace(x=x, count=3, of=torch.ones(2), names=["a"], rest=None)
    found = source_of(tmp_path, code, [2], ("x",), model=lambda batch: batch.x, loader=[batch], x=x)
    assert found is not None
    assert found.kept == ("batch.count", "batch.of")
    assert found.adapts == "static_batch = copy.copy(batch)\nstatic_batch.x = static_x"
