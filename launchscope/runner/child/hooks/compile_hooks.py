"""Wrappers around what compiles, so that compiled calls are observed as forwards."""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import TYPE_CHECKING, Any

from launchscope.runner.child.torch_types import Function, Module, Value

if TYPE_CHECKING:
    from launchscope.runner.child.hooks.hooks import Hooks


def observed_call(hooks: Hooks, key: str, module: Module | None, call: Function) -> Function:
    """A compiled call as a forward; `module` is None for a function."""

    @functools.wraps(call)
    def compiled(*args: Any, **kwargs: Any) -> Value:
        if hooks.not_a_step() or hooks.depth:
            return call(*args, **kwargs)
        hooks.depth = 1
        try:
            hooks.observer.forward_begin(key, module, args, kwargs)
            result = call(*args, **kwargs)
        finally:
            hooks.depth = 0
        hooks.observer.forward_end(key, module)
        return result

    return compiled


def wrap_compile(hooks: Hooks, original: Function) -> Function:
    """Around `torch.compile`."""

    def compile_(model: Value = None, *args: Any, **kwargs: Any) -> Value:
        if not hooks.active:
            return original(model, *args, **kwargs)
        hooks.compile_starts(kwargs.get("mode"))
        if model is None:  # @torch.compile(...) with arguments only
            return lambda function: compile_(function, *args, **kwargs)
        result = original(model, *args, **kwargs)
        keep_dynamo_out()
        if isinstance(result, hooks.torch.nn.Module):
            # On the instance, outside of what Dynamo sees.
            key = hooks.module_key(result)
            result.forward = observed_call(hooks, key, result, result.forward)
            return result
        name = getattr(model, "__name__", type(model).__name__)
        return observed_call(hooks, f"{name}@compiled", None, result)

    return compile_


def wrap_module_compile(hooks: Hooks, original: Function) -> Function:
    """Around `torch.nn.Module.compile`."""

    def compile_(module: Module, *args: Any, **kwargs: Any) -> None:
        if not hooks.active:
            original(module, *args, **kwargs)
            return
        hooks.compile_starts(kwargs.get("mode"))
        original(module, *args, **kwargs)
        keep_dynamo_out()
        module._compiled_call_impl = observed_call(
            hooks, hooks.module_key(module), module, module._compiled_call_impl
        )

    return compile_


def keep_dynamo_out() -> None:
    """Dynamo would compile our frames below a compiled region as if they were the script's."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    with contextlib.suppress(Exception):  # its interface is internal to torch
        if rules is not None and not rules.SKIP_DIRS_RE.match(__file__):
            rules.add("launchscope")


def forget_wrappers_in_dynamo() -> None:
    """Dynamo's table of torch's functions holds our wrappers if it was made among them."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    table = getattr(rules, "get_torch_obj_rule_map", None)
    clear = getattr(table, "cache_clear", None)
    if clear is not None:
        clear()
