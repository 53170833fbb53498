"""A wrapper around Dynamo, so that compiled calls are observed as forwards, and it sees no hook."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import types
from types import FrameType
from typing import Any

from launchscope.runner.child.events.events import Events
from launchscope.runner.child.facts.patching import MakeContext, within
from launchscope.runner.child.facts.source_lines import is_ours, is_torch, is_torch_part
from launchscope.runner.child.facts.torch_types import Function, Module, Value

_DYNAMO_RULES = "torch._dynamo.trace_rules"  # absent until the script compiles
_INTERFACE = "__init__.py", os.path.join("nn", "modules", "module.py")
_OWN_CALL = "_call_impl"  # what Module.compile compiles
_WRAPPER = "_torchdynamo_wrapper_id"


def as_compiled(events: Events, key: str, module: Module, call: Function) -> Function:
    """A compiled call, to be observed as a forward; `module` is None for a function."""
    events.compile_starts()
    _keep_dynamo_out()

    def run(*args: Any, **kwargs: Any) -> Value:
        around = events.around_compiled
        if around is None or events.ignores_thread():  # modes belong to a thread
            return call(*args, **kwargs)
        with around():
            return call(*args, **kwargs)

    return _like(call, events.as_forward(key, lambda: module, functools.wraps(call)(run)))


def wrap_optimize(events: Events, unseen: MakeContext, original: Function) -> Function:
    """Around the call of Dynamo's OptimizeContext, which gives every function that it compiles,
    for torch.compile as for its other interfaces, and for torch itself."""

    def optimize(context: Value, function: Value) -> Value:
        result = original(context, function)
        caller = _beyond_interface(sys._getframe(1))
        file = caller.f_code.co_filename
        if not events.active or is_ours(file):
            return result
        _keep_dynamo_out()
        if not is_torch(file):
            return _observed(events, function, result)
        if is_torch_part(file, "_dynamo") or type(result) is not types.FunctionType:
            return result  # it is a part of what the script compiles
        return _like(result, within(unseen, result))  # torch.cond, in each of its calls

    return optimize


def _beyond_interface(caller: FrameType) -> FrameType:
    """Who has called torch.compile, if that is the caller, or Module.compile."""
    frame: FrameType | None = caller
    while frame is not None and is_torch_part(frame.f_code.co_filename, *_INTERFACE):
        caller, frame = frame, frame.f_back
    return frame or caller


def _observed(events: Events, function: Value, result: Value) -> Value:
    """What the script has compiled, to be observed as a forward."""
    if isinstance(result, events.torch.nn.Module):
        key = events.modules.key(result)
        # On the instance, outside of what Dynamo sees.
        result.forward = as_compiled(events, key, result, result.forward)
        return result
    if type(function) is types.MethodType and function.__name__ == _OWN_CALL:
        module = function.__self__
        return as_compiled(events, events.modules.key(module), module, result)
    named = type(function) is types.FunctionType
    name = function.__name__ if named else type(function).__name__
    return as_compiled(events, f"{name}@compiled", None, result)


def _like(call: Function, ours: Function) -> Function:
    """Let Dynamo find the compiled function below our wrapper as it does below its own."""
    if getattr(call, _WRAPPER, None) == id(call):
        setattr(ours, _WRAPPER, id(ours))
    return ours


def _keep_dynamo_out() -> None:
    """Dynamo would compile our frames below a compiled region as if they were the script's."""
    with contextlib.suppress(Exception):  # its interface is internal to torch
        rules = sys.modules[_DYNAMO_RULES]
        if not rules.SKIP_DIRS_RE.match(__file__):
            rules.add("launchscope")


def dynamo_counters() -> Value:
    """What Dynamo has counted in this process by group and reason; empty if nothing compiled."""
    return getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})


def graph_breaks() -> int:
    """How often Dynamo has split a graph in this process."""
    return sum(dynamo_counters().get("graph_break", {}).values())


def skipped_graphs() -> int:
    """How often Inductor has made no CUDA graph in this process."""
    return int(dynamo_counters().get("inductor", {}).get("cudagraph_skips", 0))
