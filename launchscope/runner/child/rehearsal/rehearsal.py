"""Runs a script that asks for a GPU on the CPU, so that its ops can be inspected.

Devices that it names `cuda` become the CPU, and calls that only manage a GPU do nothing.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import functools
import linecache
import re
import sys
import threading
import types
from collections.abc import Callable, Iterator
from types import FrameType

from launchscope.runner.child.facts.patching import put_in_place, wrap
from launchscope.runner.child.facts.source_lines import is_ours, is_torch, user_line
from launchscope.runner.child.facts.torch_types import Args, Function, Kwargs, Mode, Torch, Value
from launchscope.runner.child.rehearsal.captures import install_captures
from launchscope.runner.child.rehearsal.findings import RehearsalFindings as RehearsalFindings

_SILENT = (
    "synchronize", "reset_peak_memory_stats", "manual_seed", "manual_seed_all", "set_device",
    "set_stream", "ipc_collect", "init", "reset_max_memory_allocated", "reset_max_memory_cached",
    "set_per_process_memory_fraction", "set_sync_debug_mode", "empty_cache",
)  # fmt: skip
_SILENT_NVTX = ("range_push", "range_pop", "range_start", "range_end", "mark")
_NAME, _CAPABILITY = "no GPU (rehearsal)", (8, 0)
_MEMORY_BYTES = 16 * 2**30  # what a script gets as the memory of the GPU
_OPTIMIZERS = "torch.optim."
# In the line of a call, or behind it: in a script that chooses its device, and in `.to(x.device)`,
# the device is the CPU only without a GPU.
_NAMES_CPU = re.compile(r"""(\.to\([^)]*|device\s*=\s*)["']cpu(:0)?["']""")
# Functions that make a new tensor on the host unless a device is given.
_FACTORIES = ("arange", "as_tensor", "empty", "eye", "from_numpy", "frombuffer", "full", "linspace",
             "ones", "rand", "randint", "randn", "randperm", "tensor", "zeros")  # fmt: skip
# Functions that list the types of devices with an implementation of their own.
_CAPTURABLE = "_get_capturable_supported_devices"
_FOREACH = "_get_foreach_kernels_supported_devices"


def install_rehearsal(torch: Torch, findings: RehearsalFindings) -> None:
    """Call it once, right after the script imports torch on a machine without CUDA."""
    _map_devices(torch, findings)
    _replace_cuda(torch)
    _load_to_cpu(torch, findings)
    _support_cpu(_CAPTURABLE)  # what an optimizer would refuse on the CPU
    wrap(torch.autocast, "__enter__", functools.partial(_noting_autocast, findings))
    install_captures(torch, findings)
    _observe_reads(torch, findings)
    wrap(torch.optim.Optimizer, "__init__", functools.partial(_noting_line, findings))


def _map_devices(torch: Torch, findings: RehearsalFindings) -> None:
    """Every torch call gets `cpu` where the script names a `cuda` device."""

    def on_cpu(value: Value) -> Value:
        """ "cpu" for a CUDA device by index, name or object; other values unchanged."""
        kind = value.type if isinstance(value, torch.device) else value
        if type(kind) is int or (isinstance(kind, str) and kind.partition(":")[0] == "cuda"):
            findings.named_cuda = True
            return "cpu"
        return value

    def named_device(caller: FrameType) -> None:
        # torch names devices too, as its optimizers do, in scripts that never do.
        if not findings.named_device and not is_torch(caller.f_code.co_filename):
            findings.named_device = True

    _enter_everywhere(torch, _on_cpu_mode(torch, findings, named_device))
    wrap(torch, "set_default_device", lambda original: lambda device: original(on_cpu(device)))
    torch.Generator = _generator_on_cpu(torch.Generator, on_cpu)


def _on_cpu_mode(
    torch: Torch, findings: RehearsalFindings, named_device: Callable[[FrameType], None]
) -> Mode:
    from torch.overrides import TorchFunctionMode
    from torch.utils import _device

    class OnCpu(TorchFunctionMode):
        """Dynamo traces through this method; it would stop at a function of ours."""

        def __torch_function__(
            self, func: Function, types: Value, args: Args = (), kwargs: Kwargs | None = None
        ) -> Value:
            kwargs, traced = kwargs or {}, torch.compiler.is_dynamo_compiling()
            name = getattr(func, "__name__", "")
            if name == "cuda":
                findings.named_cuda = findings.named_device = True
            if name in ("cuda", "pin_memory"):
                return findings.host.moved(args[0]) if name == "cuda" else args[0]
            if kwargs.get("pin_memory"):
                kwargs = {**kwargs, "pin_memory": False}
            moves = name == "to" and len(args) > 1
            device: Value = args[1] if moves else kwargs.get("device")
            kind = device.type if type(device) is torch.device else device
            names = issubclass(type(kind), str)
            on_gpu = type(kind) is int or (names and kind.partition(":")[0] == "cuda")
            if not traced and (names or on_gpu):
                named_device(sys._getframe(1))
            if on_gpu and moves:
                args = (args[0], "cpu", *args[2:])
            elif on_gpu:
                kwargs = {**kwargs, "device": "cpu"}
            findings.named_cuda = findings.named_cuda or on_gpu
            says_cpu = names and not on_gpu and names_cpu(sys._getframe(1))
            if name == "to" and device is not None and not says_cpu:
                args = findings.host.moved(args[0]), *args[1:]
            on_host = says_cpu or (device is None and _device.CURRENT_DEVICE is None)
            if name in _FACTORIES and not traced and on_host:
                return findings.host.made(func, args, kwargs)
            return func(*args, **kwargs)

    return OnCpu()


def names_cpu(caller: FrameType) -> bool:
    """Whether the line that the frame runs, or that calls us there, says that it wants the CPU."""
    while is_ours(caller.f_code.co_filename) and caller.f_back is not None:
        caller = caller.f_back
    return _NAMES_CPU.search(line_of(caller)) is not None


def line_of(caller: FrameType) -> str:
    return linecache.getline(caller.f_code.co_filename, caller.f_lineno or 0)


def _enter_everywhere(torch: Torch, mode: Mode) -> None:
    """Enter a mode in this thread, and in every one that begins from now on."""
    mode.__enter__()
    # Where a generator of the script is still in a `no_grad()`, torch would call the mode when
    # Python has taken itself apart.
    atexit.register(mode.__exit__, None, None, None)
    begins: Value = threading.Thread
    original = begins._bootstrap_inner  # `run` may be one of the script

    @functools.wraps(original)
    def begin(thread: threading.Thread) -> None:
        mode.__enter__()
        try:
            original(thread)
        finally:
            # What is left there would be released behind the end of the thread, for which nobody
            # waits: at the end of Python that aborts the process.
            while torch._C._len_torch_function_stack():
                torch.overrides._pop_mode()

    begins._bootstrap_inner = begin


def _generator_on_cpu(original: Function, on_cpu: Callable[[Value], Value]) -> Value:
    """Replaces torch.Generator, which function modes do not see."""
    metaclass: Value = type(original)

    class AsOriginal(metaclass):  # type: ignore[misc]
        def __instancecheck__(self, value: Value) -> bool:
            return isinstance(value, original)

    def new(cls: type, device: Value = "cpu") -> Value:
        return original.__new__(original, on_cpu(device))

    # Pickle finds what a generator is made with by the name of ours.
    return AsOriginal("Generator", (original,), {"__new__": new, "__module__": "torch"})


def _replace_cuda(torch: Torch) -> None:
    """What manages a GPU does nothing; questions about it get an answer to go on with."""
    cuda = torch.cuda
    for name in _SILENT:  # a function each: Dynamo's table refuses one under two rules
        setattr(cuda, name, lambda *args, **kwargs: None)
    cuda.current_device = lambda: 0
    cuda.amp.common.amp_definitely_not_available = lambda: False
    cuda.get_sync_debug_mode = lambda: 0
    for name in _SILENT_NVTX:
        setattr(cuda.nvtx, name, lambda *args, **kwargs: 0)
    cuda.Event = _Event
    cuda.Stream = _Stream
    cuda.stream = lambda stream: contextlib.nullcontext()
    cuda.device = cuda.device_of = _Device
    cuda.current_stream = cuda.default_stream = lambda device=None: _Stream()
    properties = types.SimpleNamespace(
        name=_NAME, gcnArchName=_NAME, major=_CAPABILITY[0], minor=_CAPABILITY[1],
        total_memory=_MEMORY_BYTES, multi_processor_count=1,
    )  # fmt: skip
    cuda.get_device_properties = lambda device=None: properties
    cuda.get_device_name = lambda device=None: _NAME
    cuda.get_device_capability = lambda device=None: _CAPABILITY
    cuda.mem_get_info = lambda device=None: (_MEMORY_BYTES, _MEMORY_BYTES)
    cuda.memory_stats = lambda device=None: collections.defaultdict(int)
    cuda.memory_summary = lambda *args, **kwargs: _NAME
    cuda.is_bf16_supported = lambda *args, **kwargs: True
    cuda.get_rng_state = lambda device=None: torch.get_rng_state()
    cuda.set_rng_state = lambda state, device=None: torch.set_rng_state(state)


def _load_to_cpu(torch: Torch, findings: RehearsalFindings) -> None:
    """torch.load leaves on the CPU what was saved from a GPU or is meant for one."""

    def load(storage: Value, location: str) -> Value:
        if str(location).partition(":")[0] != "cuda":
            return None
        findings.named_cuda = True
        return storage

    # Comes before torch's own at 10 and more, which refuse a device that does not exist.
    torch.serialization.register_package(5, _nothing, load)


def _noting_autocast(findings: RehearsalFindings, original: Function) -> Function:
    def enter(autocast: Value) -> Value:
        findings.used_autocast |= autocast.device == "cuda"
        return original(autocast)

    return enter


def _observe_reads(torch: Torch, findings: RehearsalFindings) -> None:
    """From now on the nodes of a backward that read a value on the host are noted. While a mode
    sees its operations, PyTorch computes some of them (of torch.prod) without that."""
    library = findings.library = torch.library.Library("aten", "IMPL")  # valid while it is kept

    def read(tensor: Value) -> Value:
        node = torch._C._current_autograd_node()
        if node is not None:
            findings.reading_nodes.add(node.name())
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.aten._local_scalar_dense(tensor)

    library.impl("_local_scalar_dense", read, "AutogradCPU")  # above what kernels read themselves


def _noting_line(findings: RehearsalFindings, original: Function) -> Function:
    def init(optimizer: Value, *args: Value, **kwargs: Value) -> None:
        original(optimizer, *args, **kwargs)
        findings.optimizer_lines[id(optimizer)] = user_line(sys._getframe(1))

    return init


def _nothing(*args: Value, **kwargs: Value) -> None:
    """What a call that only manages a GPU does."""


class _Device(contextlib.nullcontext[None]):
    """Replaces torch.cuda.device, which is also used to check the type of a value."""

    def __init__(self, device: Value = None):
        super().__init__()
        self.idx = self.prev_idx = 0


class _Stream:
    """Replaces torch.cuda.Stream."""

    def __init__(self, *args: Value, **kwargs: Value):
        pass

    wait_stream = wait_event = synchronize = _nothing

    def record_event(self, event: Value = None) -> Value:
        return event or _Event()

    def query(self) -> bool:
        return True


class _Event(_Stream):
    """Replaces torch.cuda.Event; a rehearsal reports no times, so every elapsed time is 0."""

    record = wait = _nothing

    def elapsed_time(self, other: Value) -> float:
        return 0.0


def _support_cpu(question: str) -> contextlib.ExitStack:
    """Add the CPU to the devices that a function of torch.optim lists, until the result is closed.

    Each module of an optimizer has imported the function.
    """
    undo = contextlib.ExitStack()
    for name, module in list(sys.modules.items()):
        if name.startswith(_OPTIMIZERS) and (original := vars(module).get(question)) is not None:
            undo.callback(put_in_place(module, question, _with_cpu(original)))
    return undo


def _with_cpu(original: Function) -> Function:
    return lambda *args, **kwargs: [*original(*args, **kwargs), "cpu"]


@contextlib.contextmanager
def optimizers_as_on_cuda() -> Iterator[None]:
    """Inside, optimizers run the operations that they run on CUDA, where they update many tensors
    at once unless the script says otherwise."""
    with _support_cpu(_CAPTURABLE), _support_cpu(_FOREACH):
        yield
