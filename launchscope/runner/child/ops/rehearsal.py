"""Lets a script that asks for a GPU run on the CPU, so that its op stream can be looked at.

Devices it names `cuda` become the CPU, calls that only manage a GPU do nothing, and
optimizers take the multi-tensor path that they would take on CUDA.
"""

from __future__ import annotations

import collections
import contextlib
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from launchscope.runner.child.source_lines import is_torch

_SILENT = (
    "synchronize",
    "empty_cache",
    "reset_peak_memory_stats",
    "manual_seed",
    "manual_seed_all",
    "set_device",
    "set_stream",
    "ipc_collect",
    "init",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "set_per_process_memory_fraction",
    "set_sync_debug_mode",
)
_SILENT_NVTX = ("range_push", "range_pop", "range_start", "range_end", "mark")
_NAME, _CAPABILITY = "no GPU (rehearsal)", (8, 0)
# What a script is told that asks how much memory the GPU has.
_MEMORY_BYTES = 16 * 2**30
_CHOICE = "_default_to_fused_or_foreach"
_CLIPPING = ("_has_foreach_support", "_device_has_foreach_support")
_ZERO = (
    "current_device",
    "memory_allocated",
    "memory_reserved",
    "max_memory_allocated",
    "max_memory_reserved",
    "get_sync_debug_mode",
)


@dataclass
class RehearsalFindings:
    """What the script asked of the GPU that is not there."""

    named_cuda: bool = False
    named_device: bool = False  # any device, cuda or not
    used_autocast: bool = False
    used_grad_scaler: bool = False


class Rehearsal:
    """Installed once, right after torch was imported on a machine without CUDA."""

    def __init__(self, torch: Any, findings: RehearsalFindings):
        self._torch = torch
        self._findings = findings

    def install(self) -> None:
        torch = self._torch
        self._map_devices()
        cuda = torch.cuda
        for name in _SILENT:
            setattr(cuda, name, lambda *args, **kwargs: None)
        for name in _ZERO:
            setattr(cuda, name, lambda *args, **kwargs: 0)
        cuda.Event = _Event
        cuda.Stream = _Stream
        cuda.stream = lambda stream: contextlib.nullcontext()
        cuda.device = cuda.device_of = _Device
        cuda.current_stream = cuda.default_stream = lambda device=None: _Stream()
        self._answer_questions()
        self._load_to_cpu()
        foreach_as_on_cuda()
        self._note_precision_helpers()

    def _answer_questions(self) -> None:
        """Calls that tell something of the GPU get an answer that lets the script go on."""
        torch, cuda = self._torch, self._torch.cuda
        properties = types.SimpleNamespace(
            name=_NAME,
            major=_CAPABILITY[0],
            minor=_CAPABILITY[1],
            total_memory=_MEMORY_BYTES,
            multi_processor_count=1,
        )
        cuda.get_device_name = lambda device=None: _NAME
        cuda.get_device_capability = lambda device=None: _CAPABILITY
        ask = cuda.get_device_properties

        def get_device_properties(device: Any = None) -> Any:
            # torch itself asks too, and has its own way of taking a no.
            own = is_torch(sys._getframe(1).f_code.co_filename)
            return ask(device) if own else properties

        cuda.get_device_properties = get_device_properties
        cuda.mem_get_info = lambda device=None: (_MEMORY_BYTES, _MEMORY_BYTES)
        cuda.memory_stats = lambda device=None: collections.defaultdict(int)
        cuda.memory_summary = lambda *args, **kwargs: _NAME
        cuda.is_bf16_supported = lambda *args, **kwargs: True
        cuda.get_rng_state = lambda device=None: torch.get_rng_state()
        cuda.set_rng_state = lambda state, device=None: torch.set_rng_state(state)
        for name in _SILENT_NVTX:
            setattr(cuda.nvtx, name, lambda *args, **kwargs: 0)

    def _load_to_cpu(self) -> None:
        """torch.load keeps what was saved from a GPU, or is to go to one, where it is read."""

        def no_tag(storage: Any) -> None:
            return None

        def here(storage: Any, location: str) -> Any:
            if str(location).partition(":")[0] != "cuda":
                return None
            self._findings.named_cuda = True
            return storage

        # Asked before torch's own of 10 and more, which refuse a device that is not there.
        self._torch.serialization.register_package(5, no_tag, here)

    def _map_devices(self) -> None:
        """Every torch call sees `cpu` where the script said `cuda`."""
        torch = self._torch
        from torch.overrides import TorchFunctionMode

        def mapped(value: Any) -> Any:
            if isinstance(value, str) and value.partition(":")[0] == "cuda":
                return "cpu"
            if isinstance(value, torch.device) and value.type == "cuda":
                return torch.device("cpu")
            return value

        findings = self._findings

        def named_by(frame: Any) -> None:
            # torch names devices too, as its optimizers do, in scripts that never do.
            if not findings.named_device and not is_torch(frame.f_code.co_filename):
                findings.named_device = True

        class OnCpu(TorchFunctionMode):
            def __torch_function__(
                self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                kwargs = kwargs or {}
                name = getattr(func, "__name__", "")
                if name == "cuda":
                    findings.named_cuda = findings.named_device = True
                    return args[0]
                if name == "pin_memory":
                    return args[0]
                if kwargs.get("pin_memory"):
                    kwargs = {**kwargs, "pin_memory": False}
                device = kwargs.get("device")
                if device is not None:
                    named_by(sys._getframe(1))
                    new = "cpu" if isinstance(device, int) else mapped(device)
                    if new is not device:
                        findings.named_cuda = True
                        kwargs = {**kwargs, "device": new}
                if name == "to" and len(args) > 1:
                    if isinstance(args[1], torch.device | str) or _is_index(args[1]):
                        named_by(sys._getframe(1))
                    new = "cpu" if _is_index(args[1]) else mapped(args[1])
                    if new is not args[1]:
                        findings.named_cuda = True
                        args = (args[0], new, *args[2:])
                return func(*args, **kwargs)

        mode: Any = OnCpu()
        mode.__enter__()
        module = torch.nn.Module
        original_to = module.to
        original_cuda = module.cuda

        def to(self: Any, *args: Any, **kwargs: Any) -> Any:
            new = tuple("cpu" if _is_index(a) else mapped(a) for a in args)
            named = {name: mapped(value) for name, value in kwargs.items()}
            if any(isinstance(a, torch.device | str | int) for a in (*args, *kwargs.values())):
                named_by(sys._getframe(1))
            if new != args or named != kwargs:
                findings.named_cuda = True
            return original_to(self, *new, **named)

        def cuda(self: Any, device: Any = None) -> Any:
            findings.named_cuda = findings.named_device = True
            return self

        to.__doc__, cuda.__doc__ = original_to.__doc__, original_cuda.__doc__
        module.to, module.cuda = to, cuda
        set_default = torch.set_default_device

        def set_default_device(device: Any) -> None:
            set_default("cpu" if _is_index(device) else mapped(device))

        torch.set_default_device = set_default_device
        torch.Generator = _generator_on_cpu(torch.Generator, mapped)

    def _note_precision_helpers(self) -> None:
        torch, findings = self._torch, self._findings
        enter = torch.autocast.__enter__

        def entering(self: Any) -> Any:
            if self.device == "cuda":
                findings.used_autocast = True
            return enter(self)

        torch.autocast.__enter__ = entering
        scaler = torch.amp.GradScaler
        init = scaler.__init__

        def making(self: Any, *args: Any, **kwargs: Any) -> None:
            findings.used_grad_scaler = True
            init(self, *args, **kwargs)

        scaler.__init__ = making


def foreach_as_on_cuda() -> Callable[[], None]:
    """On CUDA torch takes the multi-tensor optimizers and clipping; do so here too.

    What it returns takes it back.
    """

    def default(params: Any, differentiable: bool, use_fused: bool = False) -> Any:
        return False, not differentiable

    def supported(*args: Any, **kwargs: Any) -> bool:
        return True

    found: list[tuple[Any, str, Any]] = [
        (module, _CHOICE, default)
        for name, module in list(sys.modules.items())
        if name.startswith("torch.optim") and hasattr(module, _CHOICE)
    ]
    clip = sys.modules.get("torch.nn.utils.clip_grad")
    found += [(clip, helper, supported) for helper in _CLIPPING if hasattr(clip, helper)]
    originals = [(module, name, getattr(module, name)) for module, name, _ in found]
    for module, name, stand_in in found:
        setattr(module, name, stand_in)

    def restore() -> None:
        for module, name, original in originals:
            setattr(module, name, original)

    return restore


def _generator_on_cpu(original: Any, mapped: Any) -> Any:
    """torch.Generator, for which no function mode is asked."""

    class AsOriginal(type):
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, original)

    class Generator(metaclass=AsOriginal):
        def __new__(cls, device: Any = "cpu") -> Any:
            return original("cpu" if _is_index(device) else mapped(device))

    return Generator


def _is_index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class _Device:
    """Stands in for torch.cuda.device, which torch also uses to ask for a value's type."""

    def __init__(self, device: Any = None):
        self.idx = self.prev_idx = 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        pass


class _Stream:
    """Stands in for torch.cuda.Stream where there is no GPU."""

    def __init__(self, *args: Any, **kwargs: Any):
        pass

    def wait_stream(self, stream: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def record_event(self, event: Any = None) -> Any:
        return event or _Event()

    def query(self) -> bool:
        return True


class _Event(_Stream):
    """Stands in for torch.cuda.Event; a rehearsal reports no times, so there are none."""

    def record(self, stream: Any = None) -> None:
        pass

    def wait(self, stream: Any = None) -> None:
        pass

    def elapsed_time(self, other: Any) -> float:
        return 0.0
