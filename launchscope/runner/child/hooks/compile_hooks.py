"""Wrappers around torch.compile, so that compiled calls are observed as forwards."""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from typing import TYPE_CHECKING, Any

from launchscope.runner.child.hooks.boundary_hooks import call_of_copy
from launchscope.runner.child.hooks.override_checks import override_checks
from launchscope.runner.child.interrupts import own_errors_ignored
from launchscope.runner.child.own_frames import passed_over
from launchscope.runner.child.plain_values import class_name, is_a
from launchscope.runner.child.source_lines import is_torch
from launchscope.runner.child.torch_types import Function, Module, Value

if TYPE_CHECKING:
    from launchscope.runner.child.hooks.hooks import Hooks

_DYNAMO_RULES = "torch._dynamo.trace_rules"  # absent until the script compiles


def observed_call(
    hooks: Hooks, key: str, module: Module | None, call: Function, replaces: bool = False
) -> Function:
    """A call as a forward; `module` is None for a function.

    `replaces`: it replaces the module's own call, which a copy of that module must not get, and
    which is not compiled. Otherwise `call` is compiled.
    """

    def run(*args: Any, **kwargs: Any) -> Value:
        around = hooks.around_compiled
        if replaces or around is None or hooks.ignores_thread():  # modes belong to a thread
            return call(*args, **kwargs)
        with around():
            return call(*args, **kwargs)

    @functools.wraps(call)
    @passed_over
    def compiled(*args: Any, **kwargs: Any) -> Value:
        if replaces and (own := call_of_copy(module, sys._getframe(1))) is not None:
            return own(*args, **kwargs)
        if hooks.not_a_step() or hooks.in_forward(sys._getframe()):
            return run(*args, **kwargs)
        hooks.enter_forward(sys._getframe())
        try:
            try:
                hooks.observer.forward_begin(key, module, args, kwargs)
            except Exception as error:
                hooks.broke(error)
            return run(*args, **kwargs)
        finally:
            hooks.depth = 0
            try:
                hooks.observer.forward_end()
            except Exception as error:
                hooks.broke(error)

    return compiled


def wrap_compile(hooks: Hooks, original: Function) -> Function:
    """Around `torch.compile`."""

    def compile_(model: Value = None, *args: Any, **kwargs: Any) -> Value:
        # torch compiles by itself too, in each call of torch.cond.
        if not hooks.active or is_torch(sys._getframe(1).f_code.co_filename):
            return original(model, *args, **kwargs)
        if model is None:  # @torch.compile(...) with arguments only
            return lambda function: compile_(function, *args, **kwargs)
        result, mode = original(model, *args, **kwargs), kwargs.get("mode")
        try:
            if is_a(result, hooks.torch.nn.Module):
                # On the instance, outside of what Dynamo sees.
                key = hooks.modules.key(result)
                result.forward = hooks.as_compiled(key, result, result.forward, mode)
                return result
            name = model.__name__ if type(model) is types.FunctionType else class_name(model)
            return hooks.as_compiled(f"{name}@compiled", None, result, mode)
        except Exception as error:
            hooks.broke(error)
            return result

    return compile_


def wrap_module_compile(hooks: Hooks, original: Function) -> Function:
    """Around `torch.nn.Module.compile`."""

    def compile_(module: Module, *args: Any, **kwargs: Any) -> None:
        original(module, *args, **kwargs)
        try:
            if hooks.active:
                key, call = hooks.modules.key(module), module._compiled_call_impl
                ours = hooks.as_compiled(key, module, call, kwargs.get("mode"))
                module._compiled_call_impl = ours
        except Exception as error:
            hooks.broke(error)

    return compile_


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
    with own_errors_ignored():  # its interface is internal to torch
        rules = sys.modules[_DYNAMO_RULES]
        if not rules.SKIP_DIRS_RE.match(__file__):
            rules.add("launchscope")
            override_checks().teach_dynamo(rules)


def forget_wrappers_in_dynamo() -> None:
    """Dynamo's table of torch's functions holds our wrappers if it was made among them."""
    with contextlib.suppress(KeyError, AttributeError):
        sys.modules[_DYNAMO_RULES].get_torch_obj_rule_map.cache_clear()
