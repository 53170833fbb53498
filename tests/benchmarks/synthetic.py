"""Writes Kineto traces of any size, with the answers known before they are read.

Every step is the same: `LAUNCHES` kernels, each launched by a call of its own inside an
operator, with the flow events and arguments that PyTorch 2.11 writes, in Kineto's own layout or as
other programs write JSON. Three kernels in four
follow at once on a busy GPU, the fourth after a gap. The events are streamed to the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from textwrap import indent
from typing import Any

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
    "ph": "X", "cat": "user_annotation", "name": "%s", "pid": 463, "tid": 463,
    "ts": %s, "dur": %s,
    "args": {
      "External id": %d,"Record function id": 0, "Ev Idx": 0
    }
  }"""


_FIELDS = json.loads(_HEAD.rstrip().rstrip("[") + "[]}")
del _FIELDS["traceEvents"]


@dataclass(frozen=True)
class Layout:
    """How a program writes the file: what surrounds the events, what is between them, and one."""

    head: str
    tail: str
    between: str
    event: Callable[[dict[str, Any]], str] | None = None  # None: as Kineto does

    def template(self, text: str) -> str:
        """Events of Kineto, with the places of their values as %(v0)s, %(v1)s and so on."""
        numbers = count()
        if self.event is None:
            return re.sub("%[sd]", lambda place: f"%(v{next(numbers)})s", text.rstrip(",\n"))
        # A place is not JSON where a number belongs: meanwhile all of them are texts.
        text = re.sub('"%s"|%[sd]', lambda place: f'"{len(place[0])}@{next(numbers)}"', text)
        events = map(self.event, json.loads(f"[{text.rstrip().rstrip(',')}]"))
        template = self.between.join(events)
        return re.sub(
            r'"([24])@(\d+)"',
            lambda p: f'"%(v{p[2]})s"' if p[1] == "4" else f"%(v{p[2]})s",
            template,
        )


def _listed(spaces: int) -> Layout:
    """As json.dump(indent=spaces) does."""
    head, tail = json.dumps({**_FIELDS, "traceEvents": [0]}, indent=spaces).rsplit("0\n", 1)
    inner = " " * spaces * 2
    return Layout(
        head.rstrip(" "), "\n" + tail, ",\n",
        lambda event: indent(json.dumps(event, indent=spaces), inner),
    )  # fmt: skip


def _reversed(event: dict[str, Any]) -> dict[str, Any]:
    return dict(reversed(event.items()))


_COMPACT = partial(json.dumps, separators=(",", ":"))
_OPEN = json.dumps(_FIELDS)[:-1] + ', "traceEvents": ['
LAYOUTS = {
    "kineto": Layout(_HEAD, _TAIL, ",\n"),
    "json.dump": Layout(_OPEN, "]}", ", ", json.dumps),
    "compact": Layout(_OPEN, "]}", ",", _COMPACT),
    "one event per line": Layout(_OPEN + "\n", "\n]}", ",\n", _COMPACT),
    "indent 2": _listed(2),
    "indent 4": _listed(4),
    "events first, keys reversed": Layout(
        '{"traceEvents": [', "], " + json.dumps(_FIELDS)[1:], ", ",
        lambda event: json.dumps(_reversed(event)),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Answers:
    """What has to be found in a trace of so many steps."""

    steps: int

    @property
    def step_busy_ns(self) -> int:
        return LAUNCHES * KERNEL_NS

    @property
    def step_ns(self) -> int:
        return LAUNCHES * PERIOD_NS + BETWEEN_NS


def events(steps: int, *, layout: str = "kineto") -> Iterator[str]:
    """The text of the file, in pieces of one step each."""
    style = LAYOUTS[layout]
    launch, marked = style.template(_LAUNCH), style.template(_STEP)
    yield style.head
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
                launch
                % _places(
                    us(at), number, number, us(at + 500), number, number,
                    name, kernel, us(KERNEL_NS, 0), number, number,
                    number, kernel, call, us(CALL_NS, 0), number, number, number, call,
                )
            )  # fmt: skip
        last = step == steps - 1
        length = us(LAUNCHES * PERIOD_NS, 0)
        mark = marked % _places(f"ProfilerStep#{step}", us(begin), length, number)
        yield style.between.join([*parts, mark]) + ("" if last else style.between)
    yield style.tail


def _places(*values: object) -> dict[str, object]:
    return {f"v{number}": value for number, value in enumerate(values)}


def us(ns: int, base_us: int = BASE_US) -> str:
    """Nanoseconds as Kineto writes them: microseconds with three decimals."""
    return f"{base_us + ns // 1000}.{ns % 1000:03d}"


def write(path: Path, megabytes: float, *, layout: str = "kineto") -> Answers:
    """A file of about this size."""
    _, one, *_ = events(2, layout=layout)
    answers = Answers(max(2, round(megabytes * 1e6 / len(one))))
    with path.open("wb") as file:
        for text in events(answers.steps, layout=layout):
            file.write(text.encode())
    return answers
