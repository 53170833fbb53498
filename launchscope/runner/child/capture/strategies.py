"""Runs an unmodified script under one strategy to use CUDA graphs.

`eager` changes nothing; the other strategies are compared with it. `compile` and `graphed` apply
to the outermost modules that the script calls. The losses of all steps are recorded, or the
outputs if nothing is trained.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from math import isfinite
from time import perf_counter

from launchscope.model import StrategyResult
from launchscope.runner.child.events.call_seam import CallSeam, ScriptCall
from launchscope.runner.child.events.compile_hooks import as_compiled
from launchscope.runner.child.events.hooks import Hooks
from launchscope.runner.child.facts.plain_values import tensors_in
from launchscope.runner.child.facts.reasons import ReasonError, reason_of
from launchscope.runner.child.facts.source_lines import raising_frame, user_line
from launchscope.runner.child.facts.torch_types import Kwargs, Module, Tensor, Torch, Value

COMPILE: Kwargs = {"mode": "reduce-overhead"}
_MOST_VALUES = 2_000  # of losses or outputs, one scalar each


class Strategy:
    """One per process: `apply` between two steps, then `close`."""

    def __init__(self, torch: Torch, hooks: Hooks, mode: str):
        self.mode = mode
        self.adopted = StrategyResult("adopted")  # details from `apply` on
        self._torch = torch
        self._hooks = hooks
        self._graphed: set[int] = set()  # the ids of modules
        self._values: list[Tensor] = []
        self._seam = CallSeam(hooks)
        self._records = True

    def install(self) -> None:
        """Record the tensor of every `backward()` from now on."""
        self._seam.replace_backward(self._backward)

    def _backward(self, call: ScriptCall) -> Value:
        loss = call.args[0] if call.args else call.kwargs.get("tensors")
        self._hooks.guarded(self._record, loss)
        return call.make()

    def apply(self, keys: frozenset[str] | None, trains: bool) -> None:
        """Apply the strategy to the modules named by `keys`; None: to all that were called.

        Raises ReasonError if that is impossible, or whatever torch raises.
        """
        known = self._hooks.modules
        modules = [one for one in known if keys is None or known.key(one) in keys]
        self.adopted = StrategyResult(
            "adopted",
            modules=tuple(type(module).__name__ for module in modules),
            of="loss" if trains else "output",
            adopted_at=len(self._values),
        )
        if self.mode != "eager":
            if self._hooks.compiling:
                raise ReasonError("script_compiles")
            if not modules:
                raise ReasonError("no_module_called")
        if self.mode == "compile":
            self._compile(modules)
        if self.mode == "graphed" and not self._torch.cuda.is_initialized():
            raise ReasonError("no_gpu")
        if self.mode == "graphed" or not trains:
            self._seam.replace_modules(modules, self._called)

    def _compile(self, modules: list[Module]) -> None:
        # A failing import of the compiler fails here, and not in the script's own step.
        began = perf_counter()
        import torch._inductor.compile_fx
        from torch._dynamo.external_utils import wrap_inline

        for module in modules:
            # module.compile() does the same, but leaves torch's own containers uncompiled
            # (nn.Sequential, torch 2.13): Dynamo skips their frames unless one is put around.
            compiled = torch.compile(wrap_inline(module._call_impl), **COMPILE)
            key = self._hooks.modules.key(module)
            module._compiled_call_impl = as_compiled(self._hooks, key, module, compiled)
        self.adopted = replace(self.adopted, setup_ms=(perf_counter() - began) * 1e3)

    def _called(self, call: ScriptCall) -> Value:
        """Outermost modules are graphed by their first call, in the modes of torch around it."""
        if self.mode == "graphed" and id(call.owner) not in self._graphed:
            self._graphed.add(id(call.owner))
            self._records = False
            self._graph(call)
            self._records = True
        output = call.make()
        if self.adopted.of == "output":
            self._hooks.guarded(self._record, output, absolute=True)
        return output

    def _graph(self, call: ScriptCall) -> None:
        from launchscope.graphed.capture import (
            SavedState,  # imports torch, as the script did by now
        )

        torch, module = self._torch, call.owner
        if call.kwargs:
            names = ", ".join(sorted(call.kwargs))
            raise ReasonError("keyword_inputs", module=type(module).__name__, names=names)
        samples = tuple(  # copies: the graph keeps its sample as its static input
            arg.detach().clone().requires_grad_(arg.requires_grad)
            if isinstance(arg, torch.Tensor)
            else arg
            for arg in call.args
        )
        saved = SavedState([], tensors=module.buffers())  # the module runs a few times
        on, dtype = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
        with torch.autocast("cuda", dtype, enabled=on, cache_enabled=False):  # no graph may use it
            torch.cuda.make_graphed_callables(module, samples)
        saved.restore()

    def failed(self, error: BaseException) -> StrategyResult:
        """The result for a strategy that failed, with the reason and your line."""
        return StrategyResult(
            "failed",
            reason_of(error),
            None if isinstance(error, ReasonError) else user_line(raising_frame(error)),
            modules=self.adopted.modules,
        )

    def _record(self, value: Value, *, absolute: bool = False) -> None:
        """The mean of the first tensor of floating point, made on the device and read at the end,
        so that no step waits for it."""
        torch = self._torch
        if not self._records or len(self._values) >= _MOST_VALUES:
            return
        found = (tensor for tensor in tensors_in(torch, value) if tensor.is_floating_point())
        with contextlib.suppress(StopIteration), torch.no_grad():
            tensor = next(found).detach().float()
            self._values.append((tensor.abs() if absolute else tensor).mean())

    def values(self) -> tuple[float | None, ...]:
        """Losses since the start of the script, or outputs since `apply`; waits for the GPU."""
        numbers = map(float, self._values)
        return tuple(number if isfinite(number) else None for number in numbers)

    def close(self) -> None:
        """Record nothing more, so that the timing of later steps does not include it."""
        self._records = False
        self._seam.close()
        self._values = []
