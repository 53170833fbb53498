"""Values that the host reads of the step: which they are, and what each is compared by."""

from __future__ import annotations

from types import FrameType
from typing import Any

from launchscope.runner.child.facts.source_lines import is_torch_part
from launchscope.runner.child.facts.torch_types import Tensor, Torch

READS = ("item", "__float__", "__int__", "__bool__", "__index__", "tolist", "cpu")  # of a tensor
_LARGEST = 1 << 16  # elements
# Of torch. A graph reads nothing for them.
_READING_PARTS = ("amp", "optim", "distributions")


class Reads:
    """Of a script, which computes its step on the GPU if there is one."""

    def __init__(self, torch: Torch):
        self._torch = torch
        self._has_gpu = bool(torch.cuda.is_available())

    def is_result(self, method: str, tensor: Tensor, caller: FrameType) -> bool:
        """Whether the script has read what the step may have computed: not an index that the host
        has drawn for a batch, which a patch may fetch a step earlier."""
        if _reads_for_itself(caller):
            return False
        if self._has_gpu and not tensor.is_cuda:
            return bool(tensor.dtype.is_floating_point)
        return self._has_gpu or method != "__index__"

    def size_of(self, read: Any) -> list[float]:
        """What a read is compared by: a number, or the norm of several."""
        torch = self._torch
        if isinstance(read, complex):
            return [read.real]
        if not isinstance(read, list | torch.Tensor):
            return [float(read)]
        if not isinstance(read, list):
            if type(read) not in (torch.Tensor, torch.nn.Parameter) or read.is_complex():
                return []
            if read.layout != torch.strided or read.is_quantized:
                return []
            read = read.detach()
        found = torch.as_tensor(read, device="cpu").flatten()[:_LARGEST].double()
        return [float(torch.linalg.vector_norm(found))]


def _reads_for_itself(caller: FrameType) -> bool:
    """Whether torch reads a value because of how a step is run: for a GradScaler, for example."""
    return is_torch_part(caller.f_code.co_filename, *_READING_PARTS)
