"""Which copies of inputs from the host wait no longer once a graph is adopted."""

from __future__ import annotations

import pytest

from launchscope.analysis.replay_model.gain import moved_inputs
from launchscope.model import HostInput, TensorShape


def entry(dims: tuple[int, ...], dtype: str = "float32") -> HostInput:
    return HostInput(TensorShape(dims, dtype))


@pytest.mark.parametrize(
    ("inputs", "count"),
    [
        ((), 0),
        ((entry((4, 96), "int64"), entry((4,), "int64")), 2),
        ((entry((128, 128)),), 1),  # 64 KiB
        ((entry((128, 129)),), 0),
        ((entry((128, 256), "bfloat16"),), 1),
        ((entry((64 * 1024,), "bool"), entry((64 * 1024,), "float8_e4m3fn")), 2),
        # One that waits holds up the others: nothing is taken out.
        ((entry((4,)), entry((1024, 1024))), 0),
    ],
)
def test_copies_of_inputs_do_not_wait_when_all_are_small_enough_to_be_staged(
    inputs: tuple[HostInput, ...], count: int
) -> None:
    assert moved_inputs(inputs) == count
