"""Writes down what an iteration did and left, value by value, so that two runs can be compared."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from launchscope.adopt.child.digests import Digests
from launchscope.adopt.record import Iteration, Kind, Noted
from launchscope.runner.child.facts.torch_types import Tensor, Torch, Value
from launchscope.runner.protocol.plain import to_plain

_LONGEST_TEXT = 200  # characters; a digest stands for the rest


class Notes:
    """One line of JSON for each iteration."""

    def __init__(self, torch: Torch, path: Path):
        self._torch, self._digests = torch, Digests(torch)
        self._file = path.open("w")
        self._noted: list[Noted] = []

    def add(self, kind: Kind, values: Iterable[tuple[str, Value]]) -> None:
        """Values by name, as they are now."""
        made = [(name, self._plain(value)) for name, value in values]
        tensors = [value for _, value in made if isinstance(value, self._torch.Tensor)]
        known = zip(self._digests.digests(tensors), self._digests.sketches(tensors))
        for name, value in made:
            if isinstance(value, self._torch.Tensor):
                text = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
                self._noted.append(Noted(kind, name, text, *next(known)))
            else:
                self._noted.append(_of_plain(kind, name, value))

    def end_iteration(self) -> None:
        self._file.write(json.dumps(to_plain(Iteration(tuple(self._noted)))) + "\n")
        self._noted.clear()

    def close(self) -> None:
        """What was noted since belongs to the last iteration."""
        self.end_iteration()
        self._file.close()

    def _plain(self, value: Value) -> Value:
        """A tensor for an array, its class for a tensor without plain memory, and itself else."""
        torch = self._torch
        if type(value).__module__ == "numpy" and hasattr(value, "dtype"):
            try:
                return torch.as_tensor(value)
            except (TypeError, ValueError):
                return repr(value)
        if not isinstance(value, torch.Tensor):
            return value
        return value if is_plain_tensor(torch, value) else f"<{type(value).__qualname__}>"


def is_plain_tensor(torch: Torch, tensor: Tensor) -> bool:
    """Whether its elements can be read: it is neither sparse, nested, fake nor on `meta`."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    return plain and tensor.layout == torch.strided and tensor.device.type != "meta"


def _of_plain(kind: Kind, name: str, value: Any) -> Noted:
    text = repr(value)
    digest = zlib.crc32(text.encode(errors="replace"))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Noted(kind, name, text[:_LONGEST_TEXT], digest)
    number = float(value) if abs(value) < 1e300 or isinstance(value, float) else math.inf
    if not math.isfinite(number):
        return Noted(kind, name, text[:_LONGEST_TEXT], digest)
    return Noted(kind, name, type(value).__name__, digest, (number,))
