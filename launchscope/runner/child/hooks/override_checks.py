"""Keeps function modes of ours out of what torch decides by such modes.

While one is active, functions in Python believe that somebody overrides them: some of torch then
take another path (TransformerEncoder), some pass on less than they got (F.l1_loss), and those of
the script run twice.
"""

from __future__ import annotations

import functools
import sys
from contextlib import AbstractContextManager
from types import ModuleType

from launchscope.runner.child.plain_values import loaded_torch
from launchscope.runner.child.torch_types import Function, Value

# The names of the functions that ask in torch.overrides and in torch._C.
_CHECKS = {
    "has_torch_function": "_has_torch_function",
    "has_torch_function_unary": "_has_torch_function_unary",
    "has_torch_function_variadic": "_has_torch_function_variadic",
    "_is_torch_function_mode_enabled": "_is_torch_function_mode_enabled",
}


class Unseen:
    """A base of function modes that are below all others, and in no answer."""


@functools.cache
def override_checks() -> OverrideChecks:
    return OverrideChecks()


class OverrideChecks(AbstractContextManager[None]):
    """Inside, torch and the script get the answers that they would get without `Unseen` modes.

    It may be entered several times."""

    def __init__(self) -> None:
        self._c = loaded_torch()._C
        self._entered = 0
        originals = {name: getattr(self._c, of_c) for name, of_c in _CHECKS.items()}
        self._replaced = {
            name: (original, self._asked_without(original)) for name, original in originals.items()
        }
        # TorchScript knows them by their identity.
        builtins = loaded_torch().jit._builtins
        for original, ours in self._replaced.values():
            if (operator := builtins._find_builtin(original)) is not None:
                builtins._register_builtin(ours, operator)

    def _asked_without(self, original: Function) -> Function:
        c = self._c

        @functools.wraps(original)
        def asked(*args: Value) -> Value:
            number = c._len_torch_function_stack()
            if not number or not isinstance(c._get_function_stack_at(number - 1), Unseen):
                return original(*args)
            mode = c._pop_torch_function_stack()
            try:
                return asked(*args)
            finally:
                c._push_on_torch_function_stack(mode)

        return asked

    def __enter__(self) -> None:
        self._entered += 1
        if self._entered == 1:
            for name, (original, ours) in self._replaced.items():
                _replace(name, original, ours)

    def __exit__(self, *error: Value) -> None:
        self._entered -= 1
        if not self._entered:
            for name, (original, ours) in self._replaced.items():
                _replace(name, ours, original)

    def teach_dynamo(self, rules: ModuleType) -> None:
        """Let Dynamo trace ours as torch's own, which it knows; `rules` is its `trace_rules`."""
        from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

        known = rules.torch_c_binding_in_graph_functions
        handlers = TorchInGraphFunctionVariable._get_handlers()
        for name, (original, ours) in self._replaced.items():
            known[f"torch.overrides.{name}"] = known[f"torch._C.{_CHECKS[name]}"]
            # It finds them under the name that is replaced, or has found them before.
            if (handler := handlers.get(original) or handlers.get(ours)) is not None:
                handlers[original] = handlers[ours] = handler
        rules.get_torch_obj_rule_map.cache_clear()


def _replace(name: str, present: Function, new: Function) -> None:
    """Wherever it has been imported."""
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(name) is present:
            setattr(module, name, new)
