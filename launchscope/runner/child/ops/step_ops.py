"""Records the op stream of one step: what runs on the device, what blocks a capture, and
which memory the step reads and writes that it did not make itself.
"""

from __future__ import annotations

import hashlib
import re
import sys
import warnings
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from launchscope.model import BlockerRecord, OpRecord, SourceLine, StepPart, TensorShape
from launchscope.runner.child.hooks.hooks import Hooks
from launchscope.runner.child.hooks.input_shapes import shape_of
from launchscope.runner.child.ops.blocking import (
    HOST_COPY,
    RNG,
    SYNC,
    blocker_of,
    runs_no_kernel,
)
from launchscope.runner.child.ops.host_copies import HostTensors
from launchscope.runner.child.ops.storages import weak_storage
from launchscope.runner.child.source_lines import user_line

_RANDOM_OPS = ("dropout", "bernoulli", "rand", "normal", "exponential", "uniform", "multinomial")
RNG_CALLS = ("get_rng_state", "set_rng_state", "get_rng_state_all", "set_rng_state_all")
_READ = "aten::_local_scalar_dense"
_MOST_OPS_KEPT = 20_000


def makers(torch: Any) -> tuple[Any, ...]:
    """Functions that turn values of the host into a tensor without dispatching an op."""
    return torch.tensor, torch.as_tensor


def sync_calls(cuda: Any) -> tuple[tuple[Any, str], ...]:
    """Python calls that wait for the GPU, as owner and name."""
    return tuple((owner, "synchronize") for owner in (cuda, cuda.Stream, cuda.Event))


class KnowsBackward(Protocol):
    """Who knows the line of the backward that runs at the moment, if any."""

    backward_where: SourceLine | None


class StepStream:
    """What one step did, filled in while it runs."""

    def __init__(self) -> None:
        self.digest = hashlib.blake2b(digest_size=8)
        self.ops: list[OpRecord] = []
        self.device_ops = 0
        self.part: StepPart = "forward"  # kept up to date by who runs the step
        self.blockers: Counter[tuple[str, str, SourceLine | None, StepPart]] = Counter()
        self.produced: set[Any] = set()
        self.read: dict[Any, TensorShape] = {}
        self.written: set[Any] = set()
        self.rng_used = False
        self.read_bytes: dict[Any, int] = {}

    @property
    def signature(self) -> str:
        return self.digest.hexdigest()

    def block(self, op: str, category: str, where: SourceLine | None) -> None:
        self.blockers[op, category, where, self.part] += 1

    def records(self) -> list[BlockerRecord]:
        return [
            BlockerRecord(op, category, where, count, part=part)
            for (op, category, where, part), count in self.blockers.items()
        ]


def holds_one_of(tensor: Any, storages: set[int]) -> bool:
    """Whether its memory is one of these; what has none (torch.func's wrappers) is not."""
    try:
        return tensor.untyped_storage().data_ptr() in storages
    except (RuntimeError, NotImplementedError):
        return False


def make_dispatch_mode(
    torch: Any,
    stream: StepStream,
    hooks: KnowsBackward,
    on_device: Callable[[Any], bool],
    host: HostTensors,
) -> Any:
    """A TorchDispatchMode that records into `stream`; enter it around one step.

    What is made of tensors in `host` alone, none of them on the device, is added to it.
    """
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    no_kernel: dict[Any, bool] = {}

    def note_memory(func: Any, args: Any, kwargs: Any, leaves: list[Any]) -> None:
        for tensor in leaves:
            if not on_device(tensor):
                continue
            ref = weak_storage(tensor)
            if ref is not None and ref not in stream.produced and ref not in stream.read:
                stream.read[ref] = shape_of(tensor)
                stream.read_bytes[ref] = tensor.numel() * tensor.element_size()
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                mark_written(value)
        for argument in func._schema.arguments:
            if argument.alias_info is not None and argument.alias_info.is_write:
                mark_written(kwargs.get(argument.name))

    def mark_written(value: Any) -> None:
        for tensor in value if isinstance(value, list | tuple) else (value,):
            if isinstance(tensor, torch.Tensor) and on_device(tensor):
                ref = weak_storage(tensor)
                if ref is not None and ref not in stream.produced:
                    stream.written.add(ref)

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if host.making:
                return func(*args, **kwargs)
            leaves = [v for v in tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor)]
            touches = any(on_device(tensor) for tensor in leaves)
            category = blocker_of(torch, func, args, kwargs, on_device)
            where = None
            name = func._schema.name
            if category is not None:
                where = user_line(sys._getframe(1)) or hooks.backward_where
                stream.block(dotted(name), category, where)
            if touches:
                note_memory(func, args, kwargs, leaves)
            result = func(*args, **kwargs)
            made = [v for v in tree_leaves(result) if isinstance(v, torch.Tensor)]
            if not touches and any(host.holds(tensor) for tensor in leaves):
                for tensor in made:
                    host.add(tensor)
            on_gpu = touches or any(on_device(tensor) for tensor in made)
            if not on_gpu:
                return result
            silent = no_kernel.get(func)
            if silent is None:
                silent = no_kernel[func] = runs_no_kernel(func)
            for tensor in made:
                ref = weak_storage(tensor)
                if ref is not None and ref not in stream.read:
                    stream.produced.add(ref)
            shapes = ";".join(f"{tuple(t.shape)}{t.dtype}" for t in leaves)
            if name != _READ:  # runs nothing: a value read for the log now and then is no branch
                stream.digest.update(f"{func}|{shapes}\n".encode())
            if not silent:
                stream.device_ops += 1
                stream.rng_used = stream.rng_used or any(part in name for part in _RANDOM_OPS)
                if len(stream.ops) < _MOST_OPS_KEPT:
                    if where is None:
                        where = user_line(sys._getframe(1)) or hooks.backward_where
                    stream.ops.append(OpRecord(dotted(name), where))
            return result

    mode: Any = Recorder
    return mode()


def make_function_mode(torch: Any, stream: StepStream) -> Any:
    """Sees what dispatches nothing: `torch.tensor(x, device=...)` and RNG state calls."""
    from torch.overrides import TorchFunctionMode

    known = makers(torch)

    class Recorder(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if func in known and names_cuda(torch, kwargs.get("device")):
                source = args[0] if args else kwargs.get("data")
                if not isinstance(source, torch.Tensor):
                    where = user_line(sys._getframe(1))
                    stream.block(f"torch.{func.__name__}", HOST_COPY, where)
            return func(*args, **kwargs)

    return Recorder()


def names_cuda(torch: Any, device: Any) -> bool:
    if device is None or isinstance(device, int):
        return isinstance(device, int)
    return bool(torch.device(device).type == "cuda")


def put_first(action: str, text: str) -> Callable[[], None]:
    """A warnings filter before all others for messages with `text`; the result takes it out.

    The list is changed behind the back of `warnings`: its own functions make Python forget which
    warnings were shown, and those of the script would come once more at every step.
    """
    entry: Any = (action, re.compile(f"(?s).*{text}"), Warning, None, 0)
    filters: Any = warnings.filters
    filters.insert(0, entry)

    def take_out() -> None:
        # A catch_warnings() of the script's may have put a copy of the list in its place.
        now: Any = warnings.filters
        for held in (filters, now):
            while entry in held:
                held.remove(entry)

    return take_out


class SyncWatch:
    """Hears of synchronisations that are no ops: Python calls, and torch's sync warnings."""

    def __init__(self, torch: Any, stream: StepStream, hooks: Hooks):
        self._torch = torch
        self._stream = stream
        self._hooks = hooks
        self._undo: list[Callable[[], None]] = []
        self._active = False
        self._mode = 0

    def start(self) -> None:
        cuda = self._torch.cuda
        for owner, name, category in (
            *((owner, name, SYNC) for owner, name in sync_calls(cuda)),
            *((cuda, name, RNG) for name in RNG_CALLS),
        ):
            self._watch(owner, name, category)
        self._active = True
        self._undo.append(put_first("always", "synchronizing CUDA operation"))
        shown = warnings.showwarning

        def show(message: Any, kind: Any, *rest: Any, **more: Any) -> None:
            if self._active and "synchronizing CUDA operation" in str(message):
                where = user_line(sys._getframe(1)) or self._hooks.backward_where
                known = {line for _, _, line, _ in self._stream.blockers}
                if where not in known:
                    self._stream.block("cudaStreamSynchronize", SYNC, where)
                return
            shown(message, kind, *rest, **more)

        def show_again() -> None:
            if warnings.showwarning is show:  # else the step has put in one of its own
                warnings.showwarning = shown

        warnings.showwarning = show  # type: ignore[assignment]
        self._undo.append(show_again)
        if cuda.is_initialized():
            self._mode = cuda.get_sync_debug_mode()
            heard_again = put_first("ignore", "")  # torch says that the mode is a prototype
            cuda.set_sync_debug_mode("warn")
            heard_again()

    def _watch(self, owner: Any, name: str, category: str) -> None:
        original = getattr(owner, name)
        # Whoever imports the name while it is watched keeps the wrapper for good (torch's own
        # lazily imported modules do), so it must neither hold the watch nor go on watching.
        watching = weakref.ref(self)

        def watched(*args: Any, **kwargs: Any) -> Any:
            watch = watching()
            if watch is not None and watch._active:
                where = user_line(sys._getframe(1))
                watch._stream.block(f"torch.cuda.{name}", category, where)
            return original(*args, **kwargs)

        setattr(owner, name, watched)
        self._undo.append(lambda: setattr(owner, name, original))

    def stop(self) -> None:
        if not self._active:
            return
        self._active = False
        if self._torch.cuda.is_initialized():
            self._torch.cuda.set_sync_debug_mode(self._mode)
        while self._undo:
            self._undo.pop()()


def dotted(name: str) -> str:
    """ "aten::add_" as "aten.add_", the way people write it."""
    return name.replace("::", ".", 1)
