"""Recognizes, from one dispatched op, the operations that a capture cannot contain.

A table by op name, and the few ops whose arguments decide.
"""

from __future__ import annotations

from collections.abc import Callable

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
    "aten::_unique": DYNAMIC,
    "aten::_unique2": DYNAMIC,
    "aten::unique_dim": DYNAMIC,
    "aten::unique_consecutive": DYNAMIC,
    "aten::unique_dim_consecutive": DYNAMIC,
    "aten::bincount": DYNAMIC,
}
_COPIES = {"aten::copy_", "aten::_to_copy", "aten::to", "aten::_copy_from"}
# Ops that run no kernel: allocations, and views that the schema does not mark as such.
_NO_KERNEL = {
    "aten::empty",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::empty_permuted",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::_unsafe_view",
    "aten::_reshape_alias",
    "aten::detach",
    "aten::alias",
    "aten::lift",
    "aten::lift_fresh",
    "aten::is_pinned",
    "aten::_pin_memory",
    "aten::resize_",
    "aten::set_",
    "aten::_local_scalar_dense",
    "aten::_has_compatible_shallow_copy_type",
    "aten::record_stream",
    "prim::device",
    "profiler::_record_function_enter_new",
    "profiler::_record_function_exit",
}


def runs_no_kernel(op: Op) -> bool:
    """True for views, allocations and bookkeeping: ops that launch nothing."""
    if op._schema.name in _NO_KERNEL:
        return True
    returns = op._schema.returns
    return bool(returns) and all(
        value.alias_info is not None and not value.alias_info.is_write for value in returns
    )


def blocker_of(
    torch: Torch, op: Op, args: Args, kwargs: Kwargs, on_device: Callable[[Tensor], bool]
) -> str | None:
    """The category of blocker that this call is, None if it is none.

    `on_device(tensor)` says whether a tensor counts as one on the device; in a rehearsal those
    that the script would have on the GPU do.
    """
    name = op._schema.name
    generator = kwargs.get("generator")
    if (
        generator is not None
        and generator.device.type == "cuda"
        and all(generator is not default for default in torch.cuda.default_generators)
    ):
        return RNG
    if name in _COPIES:
        return _copy_blocker(torch, name, args, kwargs)
    if not any(isinstance(value, torch.Tensor) and on_device(value) for value in args):
        return None
    known = _BY_NAME.get(name)
    if known is not None:
        return known
    if name in ("aten::index", "aten::index_put_", "aten::index_put") and _masked(torch, args):
        # index_put_ of one scalar value becomes a masked_fill and needs no indices.
        scalar = name != "aten::index" and len(args) > 2 and args[2].numel() == 1
        return None if scalar else DYNAMIC
    if name == "aten::repeat_interleave":
        return DYNAMIC if kwargs.get("output_size") is None else None
    return None


def _masked(torch: Torch, args: Args) -> bool:
    indices = args[1] if len(args) > 1 else ()
    return any(
        isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)
        for index in indices or ()
    )


def _copy_blocker(torch: Torch, name: str, args: Args, kwargs: Kwargs) -> str | None:
    if name == "aten::copy_":
        target, source = args[0].device, args[1]
        waits = not (args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
    else:
        source = args[0]
        wanted = kwargs.get("device")
        target = source.device if wanted is None else torch.device(wanted)
        waits = not kwargs.get("non_blocking", False)
    if not isinstance(source, torch.Tensor) or source.device.type == target.type:
        return None
    if "cuda" not in (source.device.type, target.type):
        return None
    if source.device.type == "cuda":
        return SYNC if waits else HOST_COPY
    return HOST_COPY if waits or not source.is_pinned() else None
