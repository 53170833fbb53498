"""Lets torch.optim take the CPU for the GPU that it stands for in a rehearsal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from launchscope.runner.child.facts.patching import put_in_place
from launchscope.runner.child.facts.torch_types import Function

_OPTIMIZERS = "torch.optim."
# Functions that list the types of devices with an implementation of their own.
CAPTURABLE = "_get_capturable_supported_devices"
_FOREACH = "_get_foreach_kernels_supported_devices"


def support_cpu(question: str) -> contextlib.ExitStack:
    """Add the CPU to the devices that a function of torch.optim lists, until the result is closed.

    Each module of an optimizer has imported the function.
    """
    undo = contextlib.ExitStack()
    for name, module in list(sys.modules.items()):
        if name.startswith(_OPTIMIZERS) and (original := vars(module).get(question)) is not None:
            undo.callback(put_in_place(module, question, _with_cpu(original)))
    return undo


def _with_cpu(original: Function) -> Function:
    return lambda *args, **kwargs: [*original(*args, **kwargs), "cpu"]


@contextlib.contextmanager
def optimizers_as_on_cuda() -> Iterator[None]:
    """Inside, optimizers run the operations that they run on CUDA, where they update many tensors
    at once unless the script says otherwise."""
    with support_cpu(CAPTURABLE), support_cpu(_FOREACH):
        yield
