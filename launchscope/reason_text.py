"""Sentences for what the runner and the analysis say in codes; the only file that makes them."""

from __future__ import annotations

from launchscope.model import Cause

__all__ = ["cause_text"]

# Hyperparameters by the words people use for them.
_HYPERPARAMETERS = {"lr": "learning rate", "weight_decay": "weight decay"}
_TENSORS = {
    "host": "data of shape {dims} that the step makes on the host",
    "state": "a parameter, gradient or buffer of shape {dims} that the script creates again",
    "previous_step": "a tensor of shape {dims} that the step before made",
}


def cause_text(cause: Cause) -> str:
    """Why a replay is not the eager step, as a clause: "the learning rate of SGD changes"."""
    if cause.kind == "branch":
        return _branch(cause)
    if cause.kind == "cross_step_state":
        dims = "?" if cause.tensor is None else cause.tensor.dims
        tensor = _TENSORS[cause.origin or "previous_step"].format(dims=dims)
        return f"the step reads {tensor}: a replay goes on reading the first one"
    if cause.kind == "unjoined_stream":
        return "work on a stream that was not forked from the capture's is missing from the graph"
    what = f"a value given to {cause.op}"
    if cause.kind != "scalar":
        name = cause.hyperparameter or "lr"
        what = f"the {_HYPERPARAMETERS.get(name, name)} of {cause.optimizer}"
    if cause.before is None or cause.after is None:
        return f"{what} changes, and a capture freezes it"
    change = f"from {cause.before:.6g} to {cause.after:.6g}"
    return f"{what} changes ({change}), and a capture freezes it"


def _branch(cause: Cause) -> str:
    if cause.op is None:
        return f"the step left out {cause.captured_op} of the captured one"
    if cause.captured_op is None:
        return f"the step ran {cause.op}, which the captured one did not"
    if cause.op == cause.captured_op:
        return f"{cause.op} met other shapes than in the captured step"
    return f"the step ran {cause.op} where the captured one ran {cause.captured_op}"
