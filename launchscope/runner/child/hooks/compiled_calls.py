"""Wrappers around what compiles, so that compiled calls are heard of as forwards."""

from __future__ import annotations

import functools
from typing import Any, Protocol

from launchscope.runner.child.hooks.dynamo import keep_dynamo_out
from launchscope.runner.child.hooks.observer import StepObserver


class CompiledCallObserver(Protocol):
    """Who hears of them."""

    torch: Any
    listener: StepObserver
    active: bool
    depth: int  # of forwards under way

    def not_a_step(self) -> bool: ...
    def module_key(self, module: Any) -> str: ...
    def compile_starts(self, mode: str | None) -> None: ...


def observed_call(hearer: CompiledCallObserver, key: str, module: Any, call: Any) -> Any:
    """A compiled call; `module` is None for a function."""

    @functools.wraps(call)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        if hearer.not_a_step() or hearer.depth:
            return call(*args, **kwargs)
        hearer.depth = 1
        try:
            hearer.listener.forward_begin(key, module, args, kwargs)
            result = call(*args, **kwargs)
        finally:
            hearer.depth = 0
        hearer.listener.forward_end(key, module)
        return result

    return compiled


def around_compile(hearer: CompiledCallObserver, original: Any) -> Any:
    """Around `torch.compile`."""

    @functools.wraps(original)
    def compile_(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not hearer.active:
            return original(model, *args, **kwargs)
        hearer.compile_starts(kwargs.get("mode"))
        if model is None:  # @torch.compile(...) with arguments only
            return lambda function: compile_(function, *args, **kwargs)
        result = original(model, *args, **kwargs)
        keep_dynamo_out()
        if isinstance(result, hearer.torch.nn.Module):
            # On the instance, outside of what Dynamo sees.
            key = hearer.module_key(result)
            result.forward = observed_call(hearer, key, result, result.forward)
            return result
        name = getattr(model, "__name__", type(model).__name__)
        return observed_call(hearer, f"{name}@compiled", None, result)

    return compile_


def around_module_compile(hearer: CompiledCallObserver, original: Any) -> Any:
    """Around `torch.nn.Module.compile`."""

    def compile_(module: Any, *args: Any, **kwargs: Any) -> None:
        if not hearer.active:
            original(module, *args, **kwargs)
            return
        hearer.compile_starts(kwargs.get("mode"))
        original(module, *args, **kwargs)
        keep_dynamo_out()
        module._compiled_call_impl = observed_call(
            hearer, hearer.module_key(module), module, module._compiled_call_impl
        )

    return compile_
