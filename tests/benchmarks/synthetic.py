"""Writes Kineto traces of any size, with the answers known before they are read.

    python -m tests.benchmarks.synthetic --megabytes 200 /tmp/trace.json

Every step is the same: `LAUNCHES` kernels, each launched by a call of its own inside an
operator, with the flow events and arguments that PyTorch 2.11 writes. Three kernels in four
follow at once on a busy GPU, the fourth after a gap. The events are streamed to the file.
"""

from __future__ import annotations

import argparse
import gzip
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

LAUNCHES = 500  # per step
KERNEL_NS, PERIOD_NS, CALL_NS, BETWEEN_NS = 6_125, 10_250, 4_001, 300_000
BASE_US = 4_322_883_613_824
_NAMES = tuple(
    f"void at::native::vectorized_elementwise_kernel<4, at::native::{functor}<float>, "
    "std::array<char*, 1ul> >(int, std::array<char*, 1ul>)"
    for functor in ("FillFunctor", "CUDAFunctor_add", "AUnaryFunctor", "BinaryFunctor", "sin")
)
_LAST = "void at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<3> >(int)"
_HEAD = """{
  "schemaVersion": 1,
  "deviceProperties": [
    {
      "id": 0, "name": "Imaginary GPU", "totalGlobalMem": 150109880320,
      "computeMajor": 9, "computeMinor": 0
    }
  ],
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1790857026000000000,
  "traceEvents": [
"""
_TAIL = """
  ],
  "traceName": "synthetic.json"
}"""
_LAUNCH = """  {
    "ph": "X", "cat": "cpu_op", "name": "aten::add_", "pid": 463, "tid": 463,
    "ts": %s, "dur": 9.500,
    "args": {
      "External id": %d,"Record function id": 0, "Ev Idx": %d
    }
  },
  {
    "ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 463, "tid": 463,
    "ts": %s, "dur": 8.500,
    "args": {
      "External id": %d,"Record function id": 0, "Ev Idx": %d
    }
  },
  {
    "ph": "X", "cat": "kernel", "name": "%s", "pid": 0, "tid": 7,
    "ts": %s, "dur": %s,
    "args": {
      "External id": %d,      "queued": 0, "device": 0, "context": 1,      "stream": 7, \
"correlation": %d,      "registers per thread": 16,      "shared memory": 0,      \
"blocks per SM": 0.007576,      "warps per SM": 0.030303,      "grid": [4, 1, 2],      \
"block": [128, 1, 1],      "est. achieved occupancy %%": 0
    }
  },
  {
    "ph": "f", "id": %d, "pid": 0, "tid": 7, "ts": %s,
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  },
  {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 463, "tid": 463,
    "ts": %s, "dur": %s,
    "args": {
      "External id": %d,      "cbid": 211, "correlation": %d
    }
  },
  {
    "ph": "s", "id": %d, "pid": 463, "tid": 463, "ts": %s,
    "cat": "ac2g", "name": "ac2g"
  },
"""
_STEP = """  {
    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#%d", "pid": 463, "tid": 463,
    "ts": %s, "dur": %s,
    "args": {
      "External id": %d,"Record function id": 0, "Ev Idx": 0
    }
  }"""


@dataclass(frozen=True)
class Answers:
    """What has to be found in a trace of so many steps."""

    steps: int

    @property
    def launches(self) -> int:
        return self.steps * LAUNCHES

    @property
    def busy_ns(self) -> int:
        return self.launches * KERNEL_NS

    @property
    def step_busy_ns(self) -> int:
        return LAUNCHES * KERNEL_NS

    @property
    def step_ns(self) -> int:
        return LAUNCHES * PERIOD_NS + BETWEEN_NS


def events(steps: int, *, marks: bool = True) -> Iterator[str]:
    """The text of the file, in pieces of one step each."""
    yield _HEAD
    number = 0
    for step in range(steps):
        begin = step * Answers(1).step_ns
        parts = []
        for index in range(LAUNCHES):
            number += 1
            at = begin + index * PERIOD_NS
            # The fourth of four starts as late as the others' queueing lets it.
            call = us(at + 2_000)
            kernel = us(at + 8_000 - (index % 4 == 3) * 1_000)
            name = _LAST if index == LAUNCHES - 1 else _NAMES[index % len(_NAMES)]
            parts.append(
                _LAUNCH
                % (
                    us(at), number, number, us(at + 500), number, number,
                    name, kernel, us(KERNEL_NS, 0), number, number,
                    number, kernel, call, us(CALL_NS, 0), number, number, number, call,
                )
            )  # fmt: skip
        last = step == steps - 1
        length = us(LAUNCHES * PERIOD_NS, 0)
        mark = _STEP % (step, us(begin), length, number)
        if not marks:
            mark = mark.replace("ProfilerStep#", "epoch#")
        parts.append(mark + ("" if last else ",\n"))
        yield "".join(parts)
    yield _TAIL


def us(ns: int, base_us: int = BASE_US) -> str:
    """Nanoseconds as Kineto writes them: microseconds with three decimals."""
    return f"{base_us + ns // 1000}.{ns % 1000:03d}"


def write(path: Path, megabytes: float, *, marks: bool = True) -> Answers:
    """A file of about this size (before compression, where its name ends in .gz)."""
    _, one, *_ = events(2)
    answers = Answers(max(2, round(megabytes * 1e6 / len(one))))
    opened = partial(gzip.open, compresslevel=6) if path.suffix == ".gz" else open
    with opened(path, "wb") as file:
        for text in events(answers.steps, marks=marks):
            file.write(text.encode())
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--megabytes", type=float, default=200)
    given = parser.parse_args()
    answers = write(given.path, given.megabytes)
    print(f"{given.path}: {os.path.getsize(given.path) / 1e6:.1f} MB, {answers.launches} launches")


if __name__ == "__main__":
    main()
