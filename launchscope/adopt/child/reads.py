"""Values that the person's code reads of tensors."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from launchscope.runner.child.facts.code_owner import is_persons
from launchscope.runner.child.facts.patching import put_in_place
from launchscope.runner.child.facts.torch_types import Function, Torch, Value

READS = ("item", "__float__", "__int__", "__bool__", "__index__", "__format__", "tolist", "cpu",
         "numpy")  # fmt: skip
_LARGEST = 1 << 20  # elements


def watch_reads(torch: Torch, note: Callable[[str, Value], None], stack: ExitStack) -> None:
    """`note` gets each result until the stack is closed."""
    for name in READS:
        original = getattr(torch.Tensor, name)
        reader = functools.wraps(original)(_noting(original, name, note))
        stack.callback(put_in_place(torch.Tensor, name, reader))


def _noting(read: Function, name: str, note: Callable[[str, Value], None]) -> Function:
    def noted(tensor: Value, *args: Any, **kwargs: Any) -> Value:
        value = read(tensor, *args, **kwargs)
        if tensor.numel() <= _LARGEST and is_persons(sys._getframe(1).f_code.co_filename):
            note(name, value)
        return value

    return noted
