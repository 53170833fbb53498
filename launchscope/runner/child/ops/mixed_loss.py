"""Gradients of a loss of tensors with several dtypes, rounded as they are without a mode."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FunctionType

from launchscope.runner.child.plain_values import is_exactly, loaded_torch
from launchscope.runner.child.torch_types import Args, Function, Kwargs, Tensor, Value

BCE = "binary_cross_entropy_with_logits"
# Where its arguments are, in torch's own function and in that of torch.nn.functional.
_IN_TORCH = {"input": 0, "target": 1, "weight": 2, "pos_weight": 3}
_FUNCTIONAL = {**_IN_TORCH, "pos_weight": 6}
_MEAN = 1


def round_in_place(
    loss: Value,
    called: Function,
    args: Args,
    kwargs: Kwargs,
    casts: bool,
    unmoded: Callable[[], AbstractContextManager[bool]],
) -> None:
    """For `loss`, what binary cross entropy with logits has just given: while a mode is active,
    torch computes its gradient out of place, in the widest dtype of all arguments, and otherwise in
    place, in that of the logits (`binary_cross_entropy_with_logits_backward` in
    FunctionsManual.cpp). `casts`: autocast has made its arguments float32.
    """
    torch = loaded_torch()
    plain = torch.Tensor, torch.nn.Parameter
    if not is_exactly(loss, plain) or loss.grad_fn is None:
        return
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return
    places = _FUNCTIONAL if type(called) is FunctionType else _IN_TORCH
    given = [args[at] if at < len(args) else kwargs.get(name) for name, at in places.items()]
    if not all(one is None or is_exactly(one, plain) for one in given):
        return
    if casts:
        given = [_cast(one) for one in given]
    dtypes = {one.dtype for one in given if one is not None}
    if len(dtypes) == 1 or loss.grad_fn.name() != "BinaryCrossEntropyWithLogitsBackward0":
        return
    parts: list[Value] = [None if one is None else one.detach() for one in given]
    logits, target, weight, pos_weight = parts
    takes_mean = loss.grad_fn._saved_reduction == _MEAN

    def in_place(inputs: Args, outputs: Args) -> Args | None:
        if inputs[0] is None or outputs[0] is None or torch.is_grad_enabled():
            return None
        with unmoded() as alone:
            if not alone:
                return None
            if pos_weight is None:
                found = logits.sigmoid().sub_(target)
            else:
                positive = pos_weight.mul(target)
                found = positive.add(1).sub_(target).mul_(logits.sigmoid()).sub_(positive)
            found.mul_(outputs[0])
            if weight is not None:
                found.mul_(weight)
            if takes_mean:
                found = found / logits.numel()
            # A hook may not change the dtype; that of the logits is exact in a wider one.
            return (found.to(inputs[0].dtype), *inputs[1:])

    loss.grad_fn.register_hook(in_place)


def _cast(tensor: Tensor | None) -> Tensor | None:
    torch = loaded_torch()
    low = (torch.float16, torch.bfloat16)
    return tensor.float() if tensor is not None and tensor.dtype in low else tensor
