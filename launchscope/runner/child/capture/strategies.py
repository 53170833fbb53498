"""Runs an unmodified script under one strategy to use CUDA graphs.

`eager` changes nothing; the other strategies are compared with it. `compile` and `graphed` apply
to the outermost modules that the script calls. The losses of all steps are recorded, or the
outputs if nothing is trained.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite

from launchscope.model import StrategyResult
from launchscope.runner.child.events.call_seam import CallSeam, ScriptCall
from launchscope.runner.child.events.compile_hooks import as_compiled
from launchscope.runner.child.events.hooks import Hooks
from launchscope.runner.child.events.modules import is_weighted
from launchscope.runner.child.facts.clock import clock
from launchscope.runner.child.facts.patching import wrap
from launchscope.runner.child.facts.plain_values import tensors_in
from launchscope.runner.child.facts.reasons import ReasonError, reason_of
from launchscope.runner.child.facts.source_lines import raising_frame, user_line
from launchscope.runner.child.facts.torch_types import (
    Args,
    Function,
    Kwargs,
    Module,
    Tensor,
    Torch,
    Value,
)

COMPILE: Kwargs = {"mode": "reduce-overhead"}
_SKIP = "log_cudagraph_skip_and_bump_counter"
# What Inductor puts around the reason, in the only place where it gives one: a text. A text of
# another form is shown as it is, and nothing decides on it.
_BEFORE_REASON, _AFTER_REASON = "skipping cudagraphs due to ", " Found from"
_MOST_VALUES = 2_000  # of losses or outputs, one scalar each


@dataclass
class _Call:
    """The last call of an outermost module, and the modes of torch around it."""

    module: Module
    args: Args
    kwargs: Kwargs
    grad: bool
    inference: bool
    autocast: Value  # its dtype, None if it was off


class Strategy:
    """One per process: `record_call` in the warm-up, `apply` between two steps, then `close`."""

    def __init__(self, torch: Torch, hooks: Hooks, mode: str):
        self.mode = mode
        self.adopted = StrategyResult("adopted")  # what is known once it is applied
        self.skips: Counter[str] = Counter()
        self.compiled: frozenset[str] = frozenset()  # keys of the modules that were compiled
        self._torch = torch
        self._hooks = hooks
        self._calls: dict[str, _Call] = {}
        self._values: list[Tensor] = []
        self._seam = CallSeam(hooks)
        self._undo = contextlib.ExitStack()
        self._undo.callback(self._seam.close)
        self._open = True

    def install(self) -> None:
        """Record the tensor of every `backward()` from now on."""
        self._seam.replace_backward(self._backward)

    def _backward(self, call: ScriptCall) -> Value:
        tensors = call.args[0] if call.args else call.kwargs.get("tensors")
        self._record(_first_tensor(self._torch, tensors))
        return call.make()

    def record_call(self, key: str, module: Module, args: Args, kwargs: Kwargs) -> None:
        """An outermost forward of the warm-up begins."""
        if module is None or not is_weighted(module) or not self._open:
            return
        torch = self._torch
        device = "cuda" if torch.cuda.is_initialized() else "cpu"
        on = torch.is_autocast_enabled(device)
        self._calls[key] = _Call(
            module,
            tuple(args),
            dict(kwargs),
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.get_autocast_dtype(device) if on else None,
        )

    def apply(self, keys: frozenset[str] | None, trains: bool) -> None:
        """Apply the strategy to the modules named by `keys`; None: to all that were called.

        Raises ReasonError if that is impossible, or whatever torch raises.
        """
        calls = {key: call for key, call in self._calls.items() if keys is None or key in keys}
        self._calls = {}
        modules = [call.module for call in calls.values()]
        adopted_at = len(self._values)
        setup_ms = None if self.mode == "eager" else self._set_up(calls)
        self.adopted = StrategyResult(
            "adopted",
            modules=tuple(type(module).__name__ for module in modules),
            setup_ms=setup_ms,
            of="loss" if trains else "output",
            adopted_at=adopted_at,
        )
        if not trains:
            self._seam.replace_modules(modules, self._output)

    def _set_up(self, calls: dict[str, _Call]) -> float:
        """How long it took, in ms."""
        if self._hooks.compiling:
            raise ReasonError("script_compiles")
        if not calls:
            raise ReasonError("no_module_called")
        self._synchronize()
        start = clock.perf_counter()
        (self._compile if self.mode == "compile" else self._graph)(calls)
        self._synchronize()
        return (clock.perf_counter() - start) * 1e3

    def failed(self, error: BaseException) -> StrategyResult:
        """The result for a strategy that failed, with the reason and your line."""
        return StrategyResult(
            "failed",
            reason_of(error),
            None if isinstance(error, ReasonError) else user_line(raising_frame(error)),
            modules=self.adopted.modules,
            skips=tuple(self.skips.most_common()),
        )

    def _compile(self, calls: dict[str, _Call]) -> None:
        # A failing import of the compiler fails here, and not in the script's own step.
        import torch._inductor.compile_fx
        from torch._dynamo.external_utils import wrap_inline

        self._observe_skips()
        for key, call in calls.items():
            # module.compile() does the same, but leaves torch's own containers uncompiled
            # (nn.Sequential, torch 2.13): Dynamo skips their frames unless one is put around.
            compiled = torch.compile(wrap_inline(call.module._call_impl), **COMPILE)
            call.module._compiled_call_impl = as_compiled(self._hooks, key, call.module, compiled)
        self.compiled = frozenset(calls)

    def _observe_skips(self) -> None:
        """Count the reasons why Inductor makes no graph; it passes each to this function."""
        for name, module in list(sys.modules.items()):
            if name.startswith("torch._inductor") and _SKIP in vars(module):
                self._undo.callback(wrap(module, _SKIP, self._counting))

    def _counting(self, original: Function) -> Function:
        def counting(message: str) -> Value:
            self.skips[_reason(message)] += 1
            return original(message)

        return counting

    def _graph(self, calls: dict[str, _Call]) -> None:
        torch = self._torch
        if not torch.cuda.is_initialized():
            raise ReasonError("no_gpu")
        for call in calls.values():
            if call.kwargs:
                names = ", ".join(sorted(call.kwargs))
                raise ReasonError("keyword_inputs", module=type(call.module).__name__, names=names)
            with _as_called(torch, call):
                samples = tuple(  # copies: the graph keeps its sample as its static input
                    arg.detach().clone().requires_grad_(arg.requires_grad)
                    if isinstance(arg, torch.Tensor)
                    else arg
                    for arg in call.args
                )
                torch.cuda.make_graphed_callables(call.module, samples)

    def _output(self, call: ScriptCall) -> Value:
        output = call.make()
        tensor = _first_tensor(self._torch, output) if self._open else None
        if tensor is not None:
            self._record(tensor.abs())
        return output

    def _record(self, tensor: Tensor) -> None:
        """One scalar, made on the device and read at the end, so that no step waits for it."""
        if tensor is None or len(self._values) >= _MOST_VALUES:
            return
        try:
            with self._torch.no_grad():
                self._values.append(tensor.detach().float().mean().clone())
        except Exception as error:
            self._hooks.broke(error)

    def values(self) -> tuple[float | None, ...]:
        """Losses since the start of the script, or outputs since `apply`; waits for the GPU."""
        numbers = map(float, self._values)
        return tuple(number if isfinite(number) else None for number in numbers)

    def close(self) -> None:
        """Record nothing more, so that the timing of later steps does not include it."""
        self._open = False
        self._undo.close()
        self._values = []

    def _synchronize(self) -> None:
        if self._torch.cuda.is_initialized():
            self._torch.cuda.synchronize()


def _reason(message: str) -> str:
    """Inductor's first line, without the stack trace that follows it."""
    line = (message.strip() or "no reason was given").splitlines()[0]
    return line.removeprefix(_BEFORE_REASON).split(_AFTER_REASON)[0].strip()


def _first_tensor(torch: Torch, output: Value) -> Tensor | None:
    """The first tensor of floating point; None if there is none."""
    found = (tensor for tensor in tensors_in(torch, output) if tensor.is_floating_point())
    return next(found, None)


@contextlib.contextmanager
def _as_called(torch: Torch, call: _Call) -> Iterator[None]:
    """Inside, the modes in which the script makes the call; autocast without its cache.

    Afterwards buffers and the generator are as before: a capture runs the module a few times.
    """
    from launchscope.graphed.capture import SavedState  # imports torch, as the script did by now

    saved = SavedState([], tensors=call.module.buffers())
    with contextlib.ExitStack() as modes:
        modes.enter_context(torch.inference_mode(call.inference))
        modes.enter_context(torch.set_grad_enabled(call.grad))
        if call.autocast is not None:  # a graph must not use its cache
            modes.enter_context(torch.autocast("cuda", dtype=call.autocast, cache_enabled=False))
        yield
    saved.restore()
