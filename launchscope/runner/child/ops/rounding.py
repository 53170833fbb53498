"""Gradients that torch computes in another way while a mode is active, rounded as without one.

A hook on the node of the backward puts the other result in the place of the one that torch has
found. The formulas are those of torch/csrc/autograd/FunctionsManual.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FunctionType
from typing import TypeAlias

from launchscope.runner.child.plain_values import loaded_torch
from launchscope.runner.child.torch_types import Args, Function, Kwargs, Tensor, Value

_BCE = "binary_cross_entropy_with_logits"
# Where the arguments of that are, in torch's own function and in that of torch.nn.functional.
_IN_TORCH = {"input": 0, "target": 1, "weight": 2, "pos_weight": 3}
_FUNCTIONAL = {**_IN_TORCH, "pos_weight": 6}
_MEAN = 1

# From the gradient of the result that of the first argument; None: torch has found the same.
_Backward: TypeAlias = Callable[[Tensor], Tensor | None]


def restore_rounding(
    result: Tensor,
    called: Function,
    args: Args,
    kwargs: Kwargs,
    casts: bool,
    unmoded: Callable[[], AbstractContextManager[bool]],
) -> None:
    """For the `result` of a function in `ROUNDED`, by its name, with these arguments.

    `casts`: autocast has made them float32. `unmoded()`: inside, no mode is entered; its value is
    False if the script is in one, in which torch computes the gradient as it does in ours.
    """
    torch = loaded_torch()
    if result.grad_fn is None:
        return
    if torch._C._functorch.peek_interpreter_stack() is not None or _packs_what_is_saved():
        return
    with unmoded():  # a mode of the script would see that tensors are detached
        backward = ROUNDED[called.__name__](result, called, args, kwargs, casts)
    if backward is None:
        return

    def replaced(inputs: Args, outputs: Args) -> Args | None:
        if inputs[0] is None or outputs[0] is None or torch.is_grad_enabled():
            return None
        with unmoded() as alone:
            found = backward(outputs[0]) if alone else None
            # A hook may not change the dtype; torch then casts it to that of the argument.
            return None if found is None else (found.to(inputs[0].dtype), *inputs[1:])

    result.grad_fn.register_hook(replaced)


def _packs_what_is_saved() -> bool:
    """Whether the script's `saved_tensors_hooks` may give other tensors to the backward."""
    top = getattr(loaded_torch()._C._autograd, "_top_saved_tensors_default_hooks", None)
    return top is not None and top(True) is not None


def _of_loss(
    loss: Tensor, called: Function, args: Args, kwargs: Kwargs, casts: bool
) -> _Backward | None:
    """Binary cross entropy with logits, of arguments with several dtypes: out of place, its
    gradient is in the widest of them, and in place in that of the logits."""
    places = _FUNCTIONAL if type(called) is FunctionType else _IN_TORCH
    given = _arguments(args, kwargs, places, casts)
    if given is None or loss.grad_fn.name() != "BinaryCrossEntropyWithLogitsBackward0":
        return None
    if len({one.dtype for one in given if one is not None}) == 1:
        return None
    logits, target, weight, pos_weight = given
    takes_mean = loss.grad_fn._saved_reduction == _MEAN

    def backward(gradient: Tensor) -> Tensor:
        if pos_weight is None:
            found = logits.sigmoid().sub_(target)
        else:
            positive = pos_weight.mul(target)
            found = positive.add(1).sub_(target).mul_(logits.sigmoid()).sub_(positive)
        found.mul_(gradient)
        if weight is not None:
            found.mul_(weight)
        return found / logits.numel() if takes_mean else found

    return backward


def _of_product(
    product: Tensor, called: Function, args: Args, kwargs: Kwargs, casts: bool
) -> _Backward | None:
    """A product without a zero is divided by each factor, and of a whole tensor with several zeros
    the gradient is zero; in a mode, the other factors are multiplied."""
    given = _arguments(args, kwargs, {"input": 0}, casts)
    node = product.grad_fn.name()
    if given is None or node not in ("ProdBackward0", "ProdBackward1"):
        return None
    [factors], whole = given, product.detach()
    if not factors.dim() or factors.is_meta:
        return None
    if factors.dim() > 1 and node == "ProdBackward1" and not product.grad_fn._saved_keepdim:
        dimension = product.grad_fn._saved_dim
    else:
        dimension = None

    def backward(gradient: Tensor) -> Tensor | None:
        of_dtype = factors.to(gradient.dtype)
        zeros = int((of_dtype == 0).sum())
        if zeros:
            several = zeros > 1 and node == "ProdBackward0"
            return of_dtype.new_zeros(of_dtype.shape) if several else None
        if dimension is None:
            return gradient * (whole / of_dtype).conj()
        at = dimension if dimension < of_dtype.dim() else dimension - 2**64  # an unsigned number
        return gradient.unsqueeze(at) * (whole.unsqueeze(at) / of_dtype).conj()

    return backward


def _of_extreme(
    extreme: Tensor, called: Function, args: Args, kwargs: Kwargs, casts: bool
) -> _Backward | None:
    """The maximum, minimum or median of a whole tensor: for elements that are not equal to it, zero
    is filled in. In a mode, on a GPU and for several gradients at once, that is a product with 0.
    """
    given = _arguments(args, kwargs, {"input": 0}, casts)
    node = f"{called.__name__.capitalize()}Backward"
    if given is None or not extreme.grad_fn.name().startswith(node):
        return None
    [elements], extreme = given, extreme.detach()
    if elements.is_cuda or elements.is_meta:
        return None

    def backward(gradient: Tensor) -> Tensor | None:
        functorch = loaded_torch()._C._functorch
        if functorch.is_functorch_wrapped_tensor(gradient):
            return None
        if functorch.is_legacy_batchedtensor(gradient):  # of autograd's `is_grads_batched`
            return None
        equal = elements.isnan() if extreme.isnan() else elements == extreme
        return elements.new_zeros(elements.shape).masked_fill_(equal, gradient / equal.sum())

    return backward


def _arguments(
    args: Args, kwargs: Kwargs, places: dict[str, int], casts: bool
) -> list[Value] | None:
    """Arguments that are tensors or None, detached; None if one is of another class."""
    torch = loaded_torch()
    given = [args[at] if at < len(args) else kwargs.get(name) for name, at in places.items()]
    plain = torch.Tensor, torch.nn.Parameter
    if given[0] is None or not all(one is None or type(one) in plain for one in given):
        return None
    low = (torch.float16, torch.bfloat16) if casts else ()
    parts = [None if one is None else one.detach() for one in given]
    return [one.float() if one is not None and one.dtype in low else one for one in parts]


ROUNDED = {
    _BCE: _of_loss,
    "prod": _of_product,
    **dict.fromkeys(("max", "min", "median", "nanmedian"), _of_extreme),
}
