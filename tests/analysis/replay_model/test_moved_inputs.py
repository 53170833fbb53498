"""Which copies of inputs from the host wait no longer once a graph is adopted."""

from __future__ import annotations

import pytest

from launchscope.analysis.replay_model.gain import moved_inputs
from launchscope.model import StepInput, StepSource


def entry(shape: tuple[int, ...], dtype: str = "torch.float32", *, moved: bool = True) -> StepInput:
    return StepInput("x.to(device)" if moved else "x", "x", shape, dtype)


@pytest.mark.parametrize(
    ("inputs", "count"),
    [
        ((), 0),
        ((entry((4, 96), "torch.int64"), entry((4,), "torch.int64")), 2),
        ((entry((4, 96)), entry((1024, 1024), moved=False)), 1),
        ((entry((128, 128)),), 1),  # 64 KiB
        ((entry((128, 129)),), 0),
        ((entry((128, 256), "torch.bfloat16"),), 1),
        ((entry((64 * 1024,), "torch.bool"), entry((64 * 1024,), "torch.float8_e4m3fn")), 2),
        # One that waits holds up the others: nothing is taken out.
        ((entry((4,)), entry((1024, 1024))), 0),
    ],
)
def test_copies_of_inputs_wait_no_longer_where_all_are_small_enough_to_be_staged(
    inputs: tuple[StepInput, ...], count: int
) -> None:
    assert moved_inputs(StepSource(inputs)) == count


def test_without_the_steps_source_every_copy_stays_as_it_is() -> None:
    assert moved_inputs(None) == 0
