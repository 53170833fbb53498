"""Wrappers around Dynamo, so that compiled calls are observed as forwards, and it sees no hook."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import types
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType
from typing import TYPE_CHECKING, Any

from launchscope.runner.child.code_owner import is_ours, is_torch, is_torch_part
from launchscope.runner.child.hooks.boundary_hooks import call_of_copy
from launchscope.runner.child.plain_values import (
    loaded_torch,
)
from launchscope.runner.child.torch_types import Function, Module, Value

if TYPE_CHECKING:
    from launchscope.runner.child.hooks.hooks import Hooks

_DYNAMO_RULES = "torch._dynamo.trace_rules"  # absent until the script compiles
_INTERFACE = "__init__.py", os.path.join("nn", "modules", "module.py")
_TRACES = "inner"  # of explain, and of export
_OWN_CALL = "_call_impl"  # what Module.compile compiles
_INNER = ("_torchdynamo_orig_backend", "_torchdynamo_orig_callable")  # the second up to torch 2.7
_WRAPPER = "_torchdynamo_wrapper_id"
_OF_INDUCTOR = "_TorchCompileInductorWrapper"


def observed_call(
    hooks: Hooks, key: str, module: Module | None, call: Function, replaces: bool = False
) -> Function:
    """A call as a forward; `module` is None for a function.

    `replaces`: it replaces the module's own call, which a copy of that module must not get, which
    is not compiled, and which does not keep the module alive. Otherwise `call` is compiled.
    """
    module_called: Function = weakref.ref(module) if replaces else (lambda: module)

    def run(*args: Any, **kwargs: Any) -> Value:
        around = hooks.around_compiled
        if replaces or around is None or hooks.ignores_thread():  # modes belong to a thread
            return call(*args, **kwargs)
        with around():
            return call(*args, **kwargs)

    @functools.wraps(call)
    def compiled(*args: Any, **kwargs: Any) -> Value:
        if replaces and (own := call_of_copy(module_called(), sys._getframe(1))) is not None:
            return own(*args, **kwargs)
        if hooks.not_a_step() or hooks.in_forward(sys._getframe()):
            return run(*args, **kwargs)
        hooks.enter_forward(sys._getframe())
        try:
            try:
                hooks.observer.forward_begin(key, module_called(), args, kwargs)
            except Exception as error:
                hooks.broke(error)
            return run(*args, **kwargs)
        finally:
            hooks.depth = 0
            try:
                hooks.observer.forward_end()
            except Exception as error:
                hooks.broke(error)

    _is_compiled(compiled, call)
    return compiled


def _is_compiled(ours: Function, call: Function) -> None:
    """Let Dynamo find what is compiled below our wrapper as it does below its own."""
    if getattr(call, _WRAPPER, None) == id(call):
        setattr(ours, _WRAPPER, id(ours))


def wrap_optimize(hooks: Hooks, original: Function) -> Function:
    """Around the call of Dynamo's OptimizeContext, which gives every function that it compiles,
    for torch.compile as for its other interfaces, and for torch itself."""

    def optimize(context: Value, function: Value) -> Value:
        result = original(context, function)
        if not hooks.active:
            return result
        try:
            caller = _beyond_interface(sys._getframe(1))
            file = caller.f_code.co_filename
            if is_ours(file):
                return result
            keep_dynamo_out()
            if not is_torch(file):
                return _observed(hooks, context, function, result)
            if not is_torch_part(file, "_dynamo"):  # torch.cond and others, in each of their calls
                return _around(result, hooks.within_step)
            # Otherwise it is a part of what the script compiles.
            return _around(result, hooks.aside) if caller.f_code.co_name == _TRACES else result
        except Exception as error:
            hooks.broke(error)
            return result

    return optimize


def wrap_compiled_autograd(hooks: Hooks, original: Function) -> Function:
    """Around what has backwards compiled, where the script asks for that by itself."""

    def enable(*args: Any, **kwargs: Any) -> Value:
        try:
            known = hooks.compiling or not hooks.active  # it may be asked for in every step
            if not (known or is_torch(sys._getframe(1).f_code.co_filename)):
                hooks.compile_starts(makes_graphs=False)
        except Exception as error:
            hooks.broke(error)
        return original(*args, **kwargs)

    return enable


def _beyond_interface(caller: FrameType) -> FrameType:
    """Who has called torch.compile, if that is the caller, or Module.compile."""
    frame: FrameType | None = caller
    while frame is not None and is_torch_part(frame.f_code.co_filename, *_INTERFACE):
        caller, frame = frame, frame.f_back
    return frame or caller


def _observed(hooks: Hooks, context: Value, function: Value, result: Value) -> Value:
    """What the script has compiled, to be observed as a forward."""
    makes_graphs = _makes_graphs(context)
    if isinstance(result, hooks.torch.nn.Module):
        # On the instance, outside of what Dynamo sees.
        key = hooks.modules.key(result)
        result.forward = hooks.as_compiled(key, result, result.forward, makes_graphs)
        return result
    if type(function) is types.MethodType and function.__name__ == _OWN_CALL:
        module = function.__self__
        return hooks.as_compiled(hooks.modules.key(module), module, result, makes_graphs)
    named = type(function) is types.FunctionType
    name = function.__name__ if named else type(function).__name__
    return hooks.as_compiled(f"{name}@compiled", None, result, makes_graphs)


def _makes_graphs(context: Value) -> bool:
    """Whether Inductor makes CUDA graphs, which depends on the mode and on the options."""
    backend, attributes = None, getattr(context.callback, "__dict__", {})
    while (inner := next((attributes[n] for n in _INNER if n in attributes), None)) is not None:
        backend, attributes = inner, getattr(inner, "__dict__", {})
    options = attributes.get("config") if type(backend).__name__ == _OF_INDUCTOR else None
    return bool((options or {}).get("triton.cudagraphs"))


def _around(result: Value, context: Callable[[], AbstractContextManager[None]]) -> Value:
    """What Dynamo has given, to be called within `context`."""
    call = result.forward if isinstance(result, loaded_torch().nn.Module) else result

    @functools.wraps(call)
    def called(*args: Any, **kwargs: Any) -> Value:
        with context():
            return call(*args, **kwargs)

    _is_compiled(called, call)
    if call is result:
        return called
    result.forward = called
    return result


def dynamo_counters() -> Value:
    """What Dynamo has counted in this process by group and reason; empty if nothing compiled."""
    return getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})


def graph_breaks() -> int:
    """How often Dynamo has split a graph in this process."""
    return sum(dynamo_counters().get("graph_break", {}).values())


def skipped_graphs() -> int:
    """How often Inductor has made no CUDA graph in this process."""
    return int(dynamo_counters().get("inductor", {}).get("cudagraph_skips", 0))


def keep_dynamo_out() -> None:
    """Dynamo would compile our frames below a compiled region as if they were the script's."""
    with contextlib.suppress(Exception):  # its interface is internal to torch
        rules = sys.modules[_DYNAMO_RULES]
        if not rules.SKIP_DIRS_RE.match(__file__):
            rules.add("launchscope")


def forget_wrappers_in_dynamo() -> None:
    """Dynamo's table of torch's functions holds our wrappers if it was made among them."""
    with contextlib.suppress(KeyError, AttributeError):
        sys.modules[_DYNAMO_RULES].get_torch_obj_rule_map.cache_clear()
