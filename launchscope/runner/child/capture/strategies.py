"""Puts a way to adopt graphs under a script, between two steps and without an edit to it.

`eager` changes nothing and is what the others are compared with; `compile` and `graphed` take
the outermost modules that the script calls. The losses of all steps are noted on the way, or
the outputs where nothing is trained.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any

from launchscope.runner.child.hooks.boundary_hooks import replace_call
from launchscope.runner.child.hooks.hooks import Hooks
from launchscope.runner.child.hooks.modules import is_weighted

COMPILE: dict[str, Any] = {"mode": "reduce-overhead"}
_SKIP = "log_cudagraph_skip_and_bump_counter"
# A loss of every backward up to so many is kept, one scalar each.
_MOST_VALUES = 2_000


class StrategyError(RuntimeError):
    """This script cannot be run under this way to adopt; the text says why."""


@dataclass
class _Call:
    """The last outermost call of a module, and the modes it was made in."""

    module: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    grad: bool
    inference: bool
    autocast: Any  # its dtype, None where autocast was off


class Strategy:
    """One per process. `saw` during the warm-up, `apply` between two steps, `close` after."""

    def __init__(self, torch: Any, hooks: Hooks, mode: str):
        self.mode = mode
        self.modules: tuple[str, ...] = ()
        self.setup_ms: float | None = None
        self.skips: Counter[str] = Counter()
        self.adopted_at = 0
        self.of_outputs = False
        self.compiled: frozenset[str] = frozenset()  # the only modules whose calls are seen then
        self._torch = torch
        self._hooks = hooks
        self._calls: dict[str, _Call] = {}
        self._values: list[Any] = []
        self._undo: list[Callable[[], None]] = []
        self._open = True

    def install(self) -> None:
        """Note the tensor of every `backward()` from now on."""
        autograd = self._torch.autograd
        original = autograd.backward

        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if self._open and not self._hooks.ignores_thread():
                self._note(tensors if hasattr(tensors, "detach") else tensors[0])
            return original(tensors, *args, **kwargs)

        autograd.backward = backward
        self._undo.append(lambda: setattr(autograd, "backward", original))

    def saw(self, key: str, module: Any, args: Any, kwargs: Any) -> None:
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

    # -------------------------------------------------------------------------- adopting

    def apply(self, keys: frozenset[str] | None, trains: bool) -> None:
        """Adopt for the modules of the step, those of `keys`; None: all that were called.

        Raises NotAdoptedError where this cannot be done, or whatever torch raises.
        """
        calls = {key: call for key, call in self._calls.items() if keys is None or key in keys}
        self.of_outputs = not trains
        self.adopted_at = len(self._values)
        self._calls = {}
        if self.mode != "eager":
            if self._hooks.compiling:
                raise StrategyError("the script compiles its model itself")
            if not calls:
                raise StrategyError("no module with parameters is called by the script itself")
            self._synchronize()
            begun = time.perf_counter()
            (self._compile if self.mode == "compile" else self._graph)(calls)
            self._synchronize()
            self.setup_ms = (time.perf_counter() - begun) * 1e3
        self.modules = tuple(type(call.module).__name__ for call in calls.values())
        if self.of_outputs:
            for call in calls.values():
                self._tap(call.module)

    def _compile(self, calls: dict[str, _Call]) -> None:
        # What of it cannot be imported fails here, and not in the script's own step.
        import torch._inductor.compile_fx
        from torch._dynamo.external_utils import wrap_inline

        self._watch_skips()
        compile_ = inspect.unwrap(torch.compile)  # without the hook for a script's own compiling
        for key, call in calls.items():
            module = call.module
            # module.compile() would do the same, but leaves torch's own containers uncompiled
            # (nn.Sequential, torch 2.13): Dynamo skips their frames unless one is put around.
            compiled = compile_(wrap_inline(module._call_impl), **COMPILE)
            module._compiled_call_impl = self._hooks.as_compiled(
                key, module, compiled, COMPILE.get("mode")
            )
        self.compiled = frozenset(calls)

    def _watch_skips(self) -> None:
        """Inductor counts what it put into no graph; the reasons go through this function."""
        for name, module in list(sys.modules.items()):
            if not name.startswith("torch._inductor") or _SKIP not in vars(module):
                continue
            original = vars(module)[_SKIP]

            def noting(message: str, original: Any = original) -> Any:
                self.skips[_reason(message)] += 1
                return original(message)

            setattr(module, _SKIP, noting)
            self._undo.append(functools.partial(setattr, module, _SKIP, original))

    def _graph(self, calls: dict[str, _Call]) -> None:
        torch = self._torch
        if not torch.cuda.is_initialized():
            raise StrategyError("without a GPU there is no graph to make")
        for key, call in calls.items():
            if call.kwargs:
                raise StrategyError(
                    "make_graphed_callables takes no keyword inputs, and the script calls "
                    f"{key.partition('@')[0]} with {', '.join(sorted(call.kwargs))}"
                )
            with _kept(torch, call.module), _modes(torch, call):
                samples = tuple(_sample(torch, arg) for arg in call.args)
                torch.cuda.make_graphed_callables(call.module, samples)

    # ---------------------------------------------------------------------------- values

    def _tap(self, module: Any) -> None:
        """Note the output of every call of a module."""
        wrapped = getattr(module, "_compiled_call_impl", None)
        if wrapped is not None:  # a hook would be compiled with it
            module._compiled_call_impl = self._noting(wrapped)
            self._undo.append(lambda: setattr(module, "_compiled_call_impl", wrapped))
            return
        if isinstance(module, self._torch.jit.ScriptModule):  # it takes no hooks
            handle = replace_call(module, self._noting)
            self._undo += [] if handle is None else [handle.remove]
            return
        own = weakref.ref(self)

        def hook(module: Any, args: Any, output: Any) -> None:
            adoption = own()
            if adoption is not None:
                adoption._note_output(output)

        self._undo.append(module.register_forward_hook(hook).remove)

    def _noting(self, call: Any) -> Any:
        @functools.wraps(call)
        def noting(*args: Any, **kwargs: Any) -> Any:
            output = call(*args, **kwargs)
            self._note_output(output)
            return output

        return noting

    def _note_output(self, output: Any) -> None:
        if self._open and not self._hooks.ignores_thread():
            tensor = _first_tensor(self._torch, output)
            if tensor is not None:
                self._note(tensor.abs())

    def _note(self, tensor: Any) -> None:
        """One scalar, made on the device and read when all are: no step waits for it."""
        if len(self._values) < _MOST_VALUES:
            with self._torch.no_grad():
                self._values.append(tensor.detach().float().mean().clone())

    def values(self) -> tuple[float | None, ...]:
        """Every loss since the script began, or every output since it was adopted; waits."""
        if not self._values:
            return ()
        numbers = [float(value) for value in self._values]
        return tuple(number if isfinite(number) else None for number in numbers)

    def close(self) -> None:
        """Note nothing more, so that the steps to come are timed as they are."""
        self._open = False
        while self._undo:
            self._undo.pop()()
        self._values = []

    def _synchronize(self) -> None:
        if self._torch.cuda.is_initialized():
            self._torch.cuda.synchronize()


def _reason(message: str) -> str:
    """Inductor's first line, without the stack trace that follows it."""
    line = message.strip().splitlines()[0] if message.strip() else "no reason was given"
    return line.removeprefix("skipping cudagraphs due to ").split(" Found from")[0].strip()


def _first_tensor(torch: Any, output: Any) -> Any:
    left = [output]
    while left:
        value = left.pop(0)
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, tuple | list):
            left += value
    return None


def _sample(torch: Any, arg: Any) -> Any:
    """A copy for the capture: the graph keeps its sample as its static input."""
    if not isinstance(arg, torch.Tensor):
        return arg
    return arg.detach().clone().requires_grad_(arg.requires_grad)


@contextlib.contextmanager
def _modes(torch: Any, call: _Call) -> Iterator[None]:
    """The modes in which the script makes the call; autocast without its cache, as graphs need."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(call.inference))
        stack.enter_context(torch.set_grad_enabled(call.grad))
        if call.autocast is not None:
            stack.enter_context(torch.autocast("cuda", dtype=call.autocast, cache_enabled=False))
        yield


@contextlib.contextmanager
def _kept(torch: Any, module: Any) -> Iterator[None]:
    """Buffers and the generator as before: a capture runs the module a few times for itself."""
    state = torch.cuda.get_rng_state()
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    yield
    with torch.no_grad():
        for buffer, before in buffers:
            buffer.copy_(before)
    torch.cuda.set_rng_state(state)
