"""What a person calls a kernel: the name of its function, or the operation that a template of
PyTorch runs: `mul`, `sqrt (multi-tensor)`.

A short name says only what the full one does, and several kernels may share it.
"""

from __future__ import annotations

import re
from functools import lru_cache

_READ = 4096  # characters that patterns look at
_ANONYMOUS = "(anonymous namespace)::"
# Says nothing by itself: its first argument does.
_KERNEL = re.compile(r"\bKernel\d*<(\w+)")
# Templates of PyTorch; the operation is among their arguments.
_TEMPLATE = re.compile(
    r"\b(?:(multi_tensor_apply_kernel)|elementwise_kernel_with_index|(?<=at::native::)"
    r"(?:\w{0,40}elementwise_(?:grid_stride_)?kernel\w{0,40}|reduce_kernel))<"
)
_WORD = re.compile(r"[A-Za-z_]\w*")
# What wraps an operation: types and helpers of PyTorch.
_WRAPPER = re.compile(
    r"gpu_\w+|[AB]?UnaryFunctor|BinaryFunctor|(?:Unary|Binary|Ternary|Pointwise)Op\w+|\w*TensorList\w+"
    r"|type_specialized\w+|apply|ReduceOp|func_wrapper_t|at|native|std|c10|cuda|templates|detail"
    r"|binary_internal|true|false|lambda|OpaqueType|unsigned|float|double|bool"
    r"|int|long|short|char|u?int\d+_t|complex|Half|BFloat16|Float8\w+"
)
_AFFIX = re.compile(
    r"^(?:_?cuda_|cudafunctor_(?:on_self_|on_other_)?|fused_|launch_|_)"
    r"|_(?:kernel|cuda|cudakernel|impl|internal|math|functor|ops|out|scalar|)$"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MANGLED = re.compile(r"\d{1,3}")
# The innermost arguments, and what a compiler says of a clone.
_BRACKETS = re.compile(r"\([^()]*\)|<[^<>()]*>|\s\[[^\]]*\]")


@lru_cache(4096)
def short_name(name: str) -> str:
    """Empty only if the name is; what is not recognized keeps the name of its function."""
    if name.startswith(("Memcpy", "Memset", "triton_")):
        return name
    name = name.replace(_ANONYMOUS, "") or name
    return _operation(name[:_READ]) or _function(name) or name


def _operation(name: str) -> str | None:
    """The first name among a template's arguments that wraps no other."""
    template = _TEMPLATE.search(name)
    if template is None:
        return None
    words = (word[0] for word in _WORD.finditer(name, template.end()))
    operation = next((word for word in words if not _WRAPPER.fullmatch(word)), None)
    if operation is None:
        return None
    text = _CAMEL.sub("_", operation[:200]).lower()
    while (shorter := _AFFIX.sub("", text)) != text:
        text = shorter
    return f"{text or operation}{' (multi-tensor)' if template[1] else ''}"


def _function(name: str) -> str:
    """The name of the function, without its namespaces, templates and arguments."""
    if name.startswith("_ZN"):
        at, part = 3, ""
        while found := _MANGLED.match(name, at):
            at = found.end() + int(found[0])
            part = name[found.end() : at]
        return part
    text = name[:_READ]
    while (shorter := _BRACKETS.sub("", text)) != text:
        text = shorter
    text = re.split(r"[<(]", text)[0].removeprefix("void ").rpartition("::type ")[2].strip()
    first, _, last = text.rpartition("::")
    if argument := _KERNEL.search(name[:_READ]):
        return argument[1]
    return f"{first.rpartition('::')[2]}::{last}" if first and last.lower() == "kernel" else last
