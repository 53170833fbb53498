"""Writes down what an iteration did and left, value by value, so that two runs can be compared."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from launchscope.adopt.child.digests import digests
from launchscope.adopt.child.reachable import is_array
from launchscope.adopt.record import Kind, Noted
from launchscope.runner.child.facts.torch_types import Tensor, Torch, Value
from launchscope.runner.protocol.plain import to_plain

_LONGEST_TEXT = 200  # characters; a digest stands for the rest


class Notes:
    """One line of JSON for each iteration."""

    def __init__(self, torch: Torch, path: Path):
        self._torch = torch
        self._file = path.open("w")
        self._noted: list[Noted] = []

    def add(self, kind: Kind, values: Iterable[tuple[str, Value]]) -> None:
        """Values by name, as they are now."""
        made = [(name, self._plain(value)) for name, value in values]
        tensors = [value for _, value in made if isinstance(value, self._torch.Tensor)]
        known = iter(digests(self._torch, tensors))
        for name, value in made:
            if isinstance(value, self._torch.Tensor):
                text = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
                self._noted.append(Noted(kind, name, text, *next(known)))
            else:
                self._noted.append(_of_plain(kind, name, value))

    def end_iteration(self) -> None:
        self._file.write(json.dumps(to_plain(self._noted)) + "\n")
        self._noted.clear()

    def close(self) -> None:
        """What was noted since belongs to the last iteration."""
        self.end_iteration()
        self._file.close()

    def _plain(self, value: Value) -> Value:
        """A tensor for an array, its class for a tensor without plain memory, and itself else."""
        if is_array(value):
            try:
                return self._torch.as_tensor(value)
            except (TypeError, ValueError):
                return repr(value)
        if not isinstance(value, self._torch.Tensor) or is_plain_tensor(self._torch, value):
            return value
        return f"<{type(value).__qualname__}>"


def is_plain_tensor(torch: Torch, tensor: Tensor) -> bool:
    """Whether its elements can be read: it is neither sparse, nested, fake nor on `meta`."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    return plain and tensor.layout == torch.strided and tensor.device.type != "meta"


def _of_plain(kind: Kind, name: str, value: Any) -> Noted:
    text = repr(value)
    digest = zlib.crc32(text.encode(errors="replace"))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and abs(value) < 1e300:  # and neither NaN nor infinite
        return Noted(kind, name, type(value).__name__, digest, (float(value),))
    return Noted(kind, name, text[:_LONGEST_TEXT], digest)
