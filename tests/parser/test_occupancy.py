"""The share of the device that a kernel's blocks take, read from what Kineto says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launchscope.parser import columns as c
from launchscope.parser import read_trace
from tests.builders import LIMITS, trace
from tests.kineto_text import LAYOUTS


def shares(tmp_path: Path, args: dict[str, Any], **properties: Any) -> int:
    """Of one kernel, in millionths."""
    document = trace().launch(3).document()
    document["deviceProperties"] = [{"id": 0, **LIMITS, **properties}]
    document["traceEvents"][-1]["args"] |= args
    path = tmp_path / "trace.json"
    path.write_text(LAYOUTS["kineto"](document))
    return int(read_trace(path).activities[c.SHARE][0])


# Of a product of matrices on an H200: 64 blocks of 384 threads on 132 multiprocessors, one to
# each because of its shared memory; and of a step of an LSTM, 16 blocks of 128 threads.
WIDE = {
    "blocks per SM": 64 / 132, "warps per SM": 768 / 132, "registers per thread": 168,
    "shared memory": 231424,
}  # fmt: skip
SMALL = {
    "blocks per SM": 16 / 132, "warps per SM": 64 / 132, "registers per thread": 90,
    "shared memory": 49152,
}  # fmt: skip


def test_the_scarcest_of_registers_shared_memory_and_threads_bounds_the_room(
    tmp_path: Path,
) -> None:
    assert shares(tmp_path, WIDE) == pytest.approx(1e6 * 64 / 132, abs=2)
    assert shares(tmp_path, SMALL) == pytest.approx(1e6 * 16 / 132 / 4, abs=2)
    few = {**SMALL, "shared memory": 0, "registers per thread": 32}
    assert shares(tmp_path, few) == pytest.approx(1e6 * 16 / 132 / 16, abs=2)
    assert shares(tmp_path, few, maxThreadsPerMultiprocessor=1024) == pytest.approx(
        1e6 * 16 / 132 / 8, abs=2
    )


def test_more_blocks_than_fit_take_the_whole_device(tmp_path: Path) -> None:
    assert shares(tmp_path, {**SMALL, "blocks per SM": 9.0, "warps per SM": 36.0}) == 1_000_000


@pytest.mark.parametrize(
    "args",
    [{}, {**WIDE, "blocks per SM": None}, {**WIDE, "shared memory": "x"},
     {**WIDE, "warps per SM": [1]}, {**WIDE, "blocks per SM": 0}],
)  # fmt: skip
def test_a_launch_without_a_full_shape_has_no_share(tmp_path: Path, args: dict[str, Any]) -> None:
    assert shares(tmp_path, args) == -1


def test_without_the_limits_of_the_device_no_share_is_known(tmp_path: Path) -> None:
    assert shares(tmp_path, WIDE, regsPerMultiprocessor=None) == -1
    assert shares(tmp_path, WIDE, warpSize=0) == -1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_limits_may_come_before_or_after_the_events(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(LAYOUTS[layout](trace().launch(3, share=0.25).memset().document()))
    assert read_trace(path).activities[c.SHARE].tolist() == [250_000, -1]
