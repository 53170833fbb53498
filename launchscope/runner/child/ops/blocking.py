"""Recognizes, from one dispatched op, the operations that a capture cannot contain."""

from __future__ import annotations

from collections.abc import Callable

from launchscope.runner.child.plain_values import is_tensor, tensor_call, tensor_field
from launchscope.runner.child.torch_types import Args, Kwargs, Op, Tensor, Torch

SYNC, HOST_COPY, DYNAMIC, RNG = "sync", "host_copy", "dynamic_shape", "rng"

# Ops that read a device value on the host, or whose output shape depends on values.
_BY_NAME = {
    "aten::_local_scalar_dense": SYNC,
    "aten::equal": SYNC,
    "aten::is_nonzero": SYNC,
    "aten::nonzero": DYNAMIC,
    "aten::argwhere": DYNAMIC,
    "aten::masked_select": DYNAMIC,
    "aten::bincount": DYNAMIC,
}
_UNIQUE = ("aten::unique", "aten::_unique")  # unique_dim, unique_consecutive, ...
_COPIES = {"aten::copy_", "aten::_to_copy", "aten::to", "aten::_copy_from"}
# Ops that run no kernel, and are not views according to their schemas.
_NO_KERNEL = {
    "aten::_unsafe_view",
    "aten::lift",
    "aten::is_pinned",
    "aten::_pin_memory",
    "aten::resize_",
    "aten::set_",
    "aten::_local_scalar_dense",
    "aten::_has_compatible_shallow_copy_type",
    "aten::record_stream",
    "prim::device",
}
_NO_KERNEL_FAMILIES = ("aten::empty", "aten::new_empty", "profiler::_record_function")


def runs_no_kernel(op: Op) -> bool:
    """Whether the op is a view, an allocation or bookkeeping."""
    name = op._schema.name
    if name in _NO_KERNEL or name.startswith(_NO_KERNEL_FAMILIES):
        return True
    returns = op._schema.returns
    return bool(returns) and all(
        value.alias_info is not None and not value.alias_info.is_write for value in returns
    )


def blocker_of(
    torch: Torch, op: Op, args: Args, kwargs: Kwargs, on_device: Callable[[Tensor], bool]
) -> str | None:
    """The category of blocker that this call is, None if it is none.

    `on_device(tensor)` says whether a tensor is on the GPU, or would be in a rehearsal.
    """
    name = op._schema.name
    generator = kwargs.get("generator")
    if (
        generator is not None
        and torch._C.Generator.device.__get__(generator).type == "cuda"
        and all(generator is not default for default in torch.cuda.default_generators)
    ):
        return RNG
    if name in _COPIES:
        return _copy_blocker(torch, name, args, kwargs)
    if not any(is_tensor(torch, value) and on_device(value) for value in args):
        return None
    if name in ("aten::index", "aten::index_put_", "aten::index_put"):
        given = args[1] if len(args) > 1 else ()
        indices = [index for index in given or () if is_tensor(torch, index)]
        # index_put_ of one scalar value becomes a masked_fill and needs no indices.
        scalar = name != "aten::index" and len(args) > 2 and tensor_call(args[2], "numel") == 1
        masked = any(tensor_field(i, "dtype") in (torch.bool, torch.uint8) for i in indices)
        return DYNAMIC if masked and not scalar else None
    if name == "aten::repeat_interleave" and kwargs.get("output_size") is None:
        return DYNAMIC
    return DYNAMIC if name.startswith(_UNIQUE) else _BY_NAME.get(name)


def _copy_blocker(torch: Torch, name: str, args: Args, kwargs: Kwargs) -> str | None:
    if name == "aten::copy_":
        target, source = tensor_field(args[0], "device"), args[1]
        waits = not (args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
    else:
        source = args[0]
        wanted = kwargs.get("device")
        target = tensor_field(source, "device") if wanted is None else torch.device(wanted)
        waits = not kwargs.get("non_blocking", False)
    if not is_tensor(torch, source):
        return None
    kind = tensor_field(source, "device").type
    if kind == target.type:
        return None
    if kind == "cuda":
        return SYNC if waits else HOST_COPY
    if target.type != "cuda":
        return None
    return HOST_COPY if waits or not tensor_call(source, "is_pinned") else None
