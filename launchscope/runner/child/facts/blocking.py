"""Recognizes, from one dispatched op, the operations that a capture cannot contain."""

from __future__ import annotations

import functools
from collections.abc import Callable

from launchscope.runner.child.facts.plain_values import values_of
from launchscope.runner.child.facts.torch_types import Args, Kwargs, Op, Tensor, Torch

SYNC, HOST_COPY, DYNAMIC, RNG = "sync", "host_copy", "dynamic_shape", "rng"
OTHER = "other"  # an op that waits, or that a capture refuses, for a reason of its own
UNKNOWN_OP = "unknown"  # one of several at its line
# A wait inside an op that is not known, or that changes more than one tensor: no stub replaces it.
UNKNOWN_WAIT = "cudaStreamSynchronize"

# Ops that read a device value on the host, or whose output shape depends on values.
_SYNCS = ("_local_scalar_dense", "equal", "is_nonzero", "_linalg_check_errors")
_DYNAMIC = ("nonzero", "argwhere", "masked_select", "bincount", "_coalesce",
            "_sparse_sparse_matmul")  # fmt: skip
_BY_NAME = {f"aten::{name}": SYNC for name in _SYNCS}
_BY_NAME |= {f"aten::{name}": DYNAMIC for name in _DYNAMIC}
# Of several ops each: unique_dim, unique_consecutive, ...
_DYNAMIC_FAMILIES = ("aten::unique", "aten::_unique", "aten::_to_sparse")
# Products that coalesce a sparse matrix in COO format first, which sorts it and waits.
_COALESCING = ("aten::mm", "aten::addmm", "aten::addmm_", "aten::_sparse_addmm", "aten::bmm",
               "aten::mv", "aten::hspmm", "aten::sspaddmm")  # fmt: skip
COPIES = ("aten::copy_", "aten::_to_copy", "aten::to", "aten::_copy_from")
# Ops that run no kernel, and are not views according to their schemas.
_NO_KERNEL = ("aten::_unsafe_view", "aten::lift", "aten::is_pinned", "aten::_pin_memory",
              "aten::resize_", "aten::set_", "aten::_local_scalar_dense",
              "aten::_has_compatible_shallow_copy_type", "aten::record_stream",
              "aten::is_coalesced", "prim::device")  # fmt: skip
_INDICES = "List[Optional[Tensor]]"
_NO_KERNEL_FAMILIES = ("aten::empty", "aten::new_empty", "profiler::_record_function")


@functools.cache
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
    if draws_from_own_generator(torch, kwargs) and kwargs["generator"].device.type == "cuda":
        return RNG
    if name in COPIES:
        return _copy_blocker(torch, name, args, kwargs)
    if not any(isinstance(value, torch.Tensor) and on_device(value) for value in args):
        return None
    at = index_argument(op)
    if at is not None:
        indices = [index for index in values_of(args[at]) if isinstance(index, torch.Tensor)]
        # The step copies them to the GPU each time.
        if not all(on_device(index) for index in indices):
            return HOST_COPY
        # index_put_ of one scalar value becomes a masked_fill and needs no indices.
        scalar = "put" in name and args[at + 1].numel() == 1
        return DYNAMIC if any(is_mask(torch, i) for i in indices) and not scalar else None
    if name == "aten::repeat_interleave" and kwargs.get("output_size") is None:
        return DYNAMIC
    if coalesces(torch, op, args):
        return SYNC
    return DYNAMIC if name.startswith(_DYNAMIC_FAMILIES) else _BY_NAME.get(name)


def draws_from_own_generator(torch: Torch, kwargs: Kwargs) -> bool:
    """Whether an op gets another generator than torch's, which a capture has to know."""
    generator = kwargs.get("generator")
    defaults = (torch.default_generator, *torch.cuda.default_generators)
    return generator is not None and all(generator is not default for default in defaults)


@functools.cache
def is_replaceable(op: Op) -> bool:
    """Whether a step can go on without this op: with the result of an earlier step, or, if it works
    in place, with the tensor as it is."""
    written = [a.alias_info is not None and a.alias_info.is_write for a in op._schema.arguments]
    return not any(written) or (written[0] and sum(written) == 1 and len(op._schema.returns) == 1)


@functools.cache
def index_argument(op: Op) -> int | None:
    """Which argument of an op is the list of indices, one for each dimension; None if none is."""
    types = [str(argument.type) for argument in op._schema.arguments]
    return types.index(_INDICES) if _INDICES in types else None


def is_mask(torch: Torch, index: Tensor) -> bool:
    """Whether an index selects by its values, and not by positions."""
    return index.dtype in (torch.bool, torch.uint8)


def coalesces(torch: Torch, op: Op, args: Args) -> bool:
    """Whether an op brings the entries of a sparse matrix into order before it multiplies by it."""
    multiplies = op._schema.name in _COALESCING
    return multiplies and any(is_uncoalesced(torch, value) for value in args)


def is_uncoalesced(torch: Torch, value: object) -> bool:
    """Whether a value is a sparse tensor in COO format with entries in any order."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.sparse_coo:
        return False
    return not value.is_coalesced()


def _copy_blocker(torch: Torch, name: str, args: Args, kwargs: Kwargs) -> str | None:
    in_place = name == "aten::copy_"
    source = args[1] if in_place else args[0]
    if not isinstance(source, torch.Tensor):  # a number, which torch passes on in transforms
        return None
    wanted = args[0].device if in_place else kwargs.get("device")
    target = source.device if wanted is None else torch.device(wanted)
    waits = not (kwargs.get("non_blocking") or (in_place and args[2:] == (True,)))
    between = {source.device.type, target.type}
    if len(between) == 1 or "cuda" not in between:
        return None
    if source.is_cuda:
        return SYNC if waits else HOST_COPY
    return HOST_COPY if waits or not source.is_pinned() else None
