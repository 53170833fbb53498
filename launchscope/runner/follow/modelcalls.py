"""How a step calls its models: it decides whether make_graphed_callables can take them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from launchscope.model import ModelCall
from launchscope.runner.follow.unshared import Unshared

__all__ = ["ModelCalls"]

# Those at which it refuses; it does not look into a module's own modules.
_REFUSED_HOOKS = ("_backward_hooks", "_forward_hooks", "_forward_pre_hooks")


class ModelCalls:
    """Outermost modules with parameters, as one step calls them."""

    def __init__(self, torch: Any, hooks: Any):
        self._torch = torch
        self._hooks = hooks
        self._calls: dict[int, ModelCall] = {}
        self._handles: list[Any] = []

    def follow(self, modules: Iterable[Any]) -> None:
        """Until `leave`. A compiled one would be compiled again for a hook."""
        script = self._torch.jit.ScriptModule
        if self._hooks.compiling:
            return
        for module in modules:
            if not isinstance(module, script) and next(iter(module.parameters()), None) is not None:
                # Before launchscope's own, which may end the step.
                hook = Unshared(self._heard)
                self._handles.append(
                    module.register_forward_hook(hook, prepend=True, with_kwargs=True)
                )

    def leave(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _heard(self, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        if self._hooks.depth != 1 or self._hooks.not_a_step():
            return
        with contextlib.suppress(Exception):  # the recipe is worth no failed forward
            known = self._calls.get(id(module)) or self._called(module, args, kwargs, output)
            self._calls[id(module)] = replace(known, times=known.times + 1)

    def seen(self) -> tuple[ModelCall, ...]:
        return tuple(self._calls.values())

    def _called(self, module: Any, args: Any, kwargs: Any, output: Any) -> ModelCall:
        torch = self._torch
        autocast = torch.is_autocast_enabled() and torch.is_autocast_cache_enabled()
        return ModelCall(
            module=type(module).__name__,
            times=0,
            arguments=len(args),
            keywords=tuple(kwargs),
            others=self._other(args),
            outputs=self._other(output),
            hooks=any(_others_of(getattr(module, name)) for name in _REFUSED_HOOKS),
            inner_hooks=any(
                _others_of(getattr(inner, name))
                for inner in module.modules()
                if inner is not module
                for name in (*_REFUSED_HOOKS, "_backward_pre_hooks")
            ),
            trained_buffers=any(buffer.requires_grad for buffer in module.buffers()),
            autocast=bool(autocast),
        )

    def _other(self, tree: Any) -> tuple[str, ...]:
        """Classes of what is no tensor in it, as torch takes such values apart."""
        leaves = self._torch.utils._pytree.tree_leaves(tree)
        others = (leaf for leaf in leaves if not isinstance(leaf, self._torch.Tensor))
        return tuple(dict.fromkeys(type(leaf).__name__ for leaf in others))


def _others_of(hooks: Any) -> list[Any]:
    """Hooks that are not launchscope's."""
    return [hook for hook in hooks.values() if not isinstance(hook, Unshared)]
