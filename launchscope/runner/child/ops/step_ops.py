"""Records the op stream of one step: what runs on the device, what blocks a capture, and
which memory the step reads and writes that it did not make itself.
"""

from __future__ import annotations

import functools
import hashlib
import re
import sys
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeAlias, cast

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
from launchscope.runner.child.ops.torch_modes import dispatch_mode, function_mode
from launchscope.runner.child.source_lines import user_line
from launchscope.runner.child.torch_types import (
    Args,
    Function,
    Kwargs,
    Mode,
    Op,
    Owner,
    StorageRef,
    Tensor,
    Torch,
    Value,
)

_RANDOM_OPS = ("dropout", "bernoulli", "rand", "normal", "exponential", "uniform", "multinomial")
RNG_CALLS = ("get_rng_state", "set_rng_state", "get_rng_state_all", "set_rng_state_all")
_ITEM = "aten::_local_scalar_dense"
_MOST_OPS_KEPT = 20_000
_SYNC_WARNING = "synchronizing CUDA operation"
_Filter: TypeAlias = tuple[str, re.Pattern[str], type[Warning], None, int]


def copies_to_gpu(torch: Torch, func: Function, args: Args, kwargs: Kwargs) -> bool:
    """Whether a call makes a tensor on the GPU from values on the host, for which no op shows."""
    device = kwargs.get("device")
    if func not in (torch.tensor, torch.as_tensor) or device is None:
        return False
    on_gpu = isinstance(device, int) or torch.device(device).type == "cuda"
    source = args[0] if args else kwargs.get("data")
    return on_gpu and not isinstance(source, torch.Tensor)


def sync_calls(cuda: Torch) -> tuple[tuple[Owner, str], ...]:
    """Python calls that wait for the GPU, as owner and name."""
    return tuple((owner, "synchronize") for owner in (cuda, cuda.Stream, cuda.Event))


def weak_storage(tensor: Tensor) -> StorageRef:
    """A reference to a tensor's storage, equal for all that share it, which it does not keep alive.

    None for a tensor without its own, such as sparse ones and torch.func's wrappers.
    """
    from torch.multiprocessing.reductions import StorageWeakRef

    try:
        return StorageWeakRef(tensor.untyped_storage())
    except (RuntimeError, NotImplementedError):
        return None


def written_by(torch: Torch, op: Op, args: Args, kwargs: Kwargs) -> Iterator[Tensor]:
    """The tensors that an op writes, according to its schema."""
    for place, argument in enumerate(op._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        for tensor in value if isinstance(value, list | tuple) else (value,):
            if isinstance(tensor, torch.Tensor):
                yield tensor


class StepStream:
    """What one step did, filled in while it runs."""

    def __init__(self, hooks: Hooks | None = None) -> None:
        self._hooks = hooks
        self.digest = hashlib.blake2b(digest_size=8)
        self.ops: list[OpRecord] = []
        self.device_ops = 0
        self.part: StepPart = "forward"  # kept up to date by the pass that runs the step
        self.blockers: Counter[tuple[str, str, SourceLine | None, StepPart]] = Counter()
        self.produced: set[StorageRef] = set()
        self.read: dict[StorageRef, TensorShape] = {}
        self.written: set[StorageRef] = set()
        self.rng_used = False
        self.read_bytes: dict[StorageRef, int] = {}

    @property
    def signature(self) -> str:
        return self.digest.hexdigest()

    def line(self) -> SourceLine | None:
        """The user's line that runs now; in a backward the line that called it."""
        backward = None if self._hooks is None else self._hooks.backward_where
        return user_line(sys._getframe(1)) or backward

    def block(self, op: str, category: str, where: SourceLine | None) -> None:
        self.blockers[op, category, where, self.part] += 1

    def records(self) -> list[BlockerRecord]:
        return [
            BlockerRecord(op, category, where, count, part=part)
            for (op, category, where, part), count in self.blockers.items()
        ]


class HostTensors:
    """In a rehearsal: the memory that would be on the host beside a GPU, as seen so far."""

    def __init__(self, *, devices_named: bool = False) -> None:
        self._storages: set[StorageRef] = set()
        self.step_counts: set[int] = set()  # addresses of step counts that optimizers keep there
        # Whether the script names devices; otherwise nothing distinguishes host and device.
        self.devices_named = devices_named
        self.making = False  # a tensor on the host is being made

    def holds(self, tensor: Tensor) -> bool:
        return bool(self._storages) and weak_storage(tensor) in self._storages

    def on_device(self, tensor: Tensor) -> bool:
        """Whether a GPU would hold this tensor: everything not known to stay on the host."""
        if self.holds(tensor):
            return False
        if tensor.ndim > 0:
            return True
        try:
            return tensor.untyped_storage().data_ptr() not in self.step_counts
        except (RuntimeError, NotImplementedError):  # torch.func's wrappers have no memory
            return True

    def add(self, tensor: Tensor) -> None:
        ref = weak_storage(tensor)
        if ref is not None:
            self._storages.add(ref)

    def discard(self, tensor: Tensor) -> None:
        if self._storages:
            self._storages.discard(weak_storage(tensor))


def make_dispatch_mode(
    torch: Torch, stream: StepStream, on_device: Callable[[Tensor], bool], host: HostTensors
) -> Mode:
    """A TorchDispatchMode that records into `stream`; enter it around one step.

    A result computed from tensors in `host`, with none on the device, is added to `host`.
    """
    from torch.utils._pytree import tree_leaves

    launches_nothing = functools.cache(runs_no_kernel)

    def tensors_in(values: Value) -> list[Tensor]:
        return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]

    def record_memory(op: Op, args: Args, kwargs: Kwargs, tensors: list[Tensor]) -> None:
        for tensor in filter(on_device, tensors):
            ref = weak_storage(tensor)
            if ref is not None and ref not in stream.produced and ref not in stream.read:
                stream.read[ref] = shape_of(tensor)
                stream.read_bytes[ref] = tensor.numel() * tensor.element_size()
        for tensor in filter(on_device, written_by(torch, op, args, kwargs)):
            ref = weak_storage(tensor)
            if ref is not None and ref not in stream.produced:
                stream.written.add(ref)

    def on_op(op: Op, args: Args, kwargs: Kwargs) -> Value:
        if host.making:
            return op(*args, **kwargs)
        tensors = tensors_in((args, kwargs))
        touches = any(on_device(tensor) for tensor in tensors)
        category = blocker_of(torch, op, args, kwargs, on_device)
        where = None
        name = op._schema.name
        if category is not None:
            where = stream.line()
            stream.block(dotted(name), category, where)
        if touches:
            record_memory(op, args, kwargs, tensors)
        result = op(*args, **kwargs)
        made = tensors_in(result)
        if not touches and any(host.holds(tensor) for tensor in tensors):
            for tensor in made:
                host.add(tensor)
        if not touches and not any(on_device(tensor) for tensor in made):
            return result
        for tensor in made:
            ref = weak_storage(tensor)
            if ref is not None and ref not in stream.read:
                stream.produced.add(ref)
        shapes = ";".join(f"{tuple(t.shape)}{t.dtype}" for t in tensors)
        if name != _ITEM:  # it launches nothing: a value read only for some logs is no branch
            stream.digest.update(f"{op}|{shapes}\n".encode())
        if not launches_nothing(op):
            stream.device_ops += 1
            stream.rng_used = stream.rng_used or any(part in name for part in _RANDOM_OPS)
            if len(stream.ops) < _MOST_OPS_KEPT:
                stream.ops.append(OpRecord(dotted(name), where or stream.line()))
        return result

    return dispatch_mode(on_op)


def make_function_mode(torch: Torch, stream: StepStream) -> Mode:
    """A TorchFunctionMode that sees `torch.tensor(x, device=...)`, which dispatches no op."""

    def on_call(func: Function, args: Args, kwargs: Kwargs) -> Value:
        if copies_to_gpu(torch, func, args, kwargs):
            stream.block(f"torch.{func.__name__}", HOST_COPY, user_line(sys._getframe()))
        return func(*args, **kwargs)

    return function_mode(on_call)


def _filter_first(action: str, text: str) -> Callable[[], None]:
    """Put a filter for warnings with `text` before all others; the result takes it out.

    It changes the list itself: the functions of `warnings` make Python forget which warnings it
    has shown, and those of the script would appear again at every step.
    """
    entry: _Filter = (action, re.compile(f"(?s).*{text}"), Warning, None, 0)
    filters = cast("list[_Filter]", warnings.filters)
    filters.insert(0, entry)

    def take_out() -> None:
        # A catch_warnings() of the script may have put a copy in place of the list.
        for held in (filters, cast("list[_Filter]", warnings.filters)):
            while entry in held:
                held.remove(entry)

    return take_out


class SyncWatch:
    """Records synchronizations that are no ops: Python calls, and torch's sync warnings."""

    def __init__(self, torch: Torch, stream: StepStream):
        self._torch = torch
        self._stream = stream
        self._undo: list[Callable[[], None]] = []
        self._active = False
        self._debug_mode = 0

    def start(self) -> None:
        cuda = self._torch.cuda
        for owner, name in sync_calls(cuda):
            self._patch(owner, name, SYNC)
        for name in RNG_CALLS:
            self._patch(cuda, name, RNG)
        self._active = True
        self._undo.append(_filter_first("always", _SYNC_WARNING))
        original = warnings.showwarning

        def show(message: Warning | str, *args: Value, **kwargs: Value) -> None:
            if self._active and _SYNC_WARNING in str(message):
                where = self._stream.line()
                known = {line for _, _, line, _ in self._stream.blockers}
                if where not in known:
                    self._stream.block("cudaStreamSynchronize", SYNC, where)
                return
            original(message, *args, **kwargs)

        def restore() -> None:
            if warnings.showwarning is show:  # otherwise the step has set its own
                warnings.showwarning = original

        warnings.showwarning = show
        self._undo.append(restore)
        if cuda.is_initialized():
            self._debug_mode = cuda.get_sync_debug_mode()
            unmute = _filter_first("ignore", "")  # torch warns that the mode is a prototype
            cuda.set_sync_debug_mode("warn")
            unmute()

    def _patch(self, owner: Owner, name: str, category: str) -> None:
        original = getattr(owner, name)
        # Whoever imports the name meanwhile keeps the patch for good (torch's own lazily imported
        # modules do), so it must neither keep this object alive nor record anything later.
        reference = weakref.ref(self)

        def patched(*args: Value, **kwargs: Value) -> Value:
            watch = reference()
            if watch is not None and watch._active:
                where = user_line(sys._getframe(1))
                watch._stream.block(f"torch.cuda.{name}", category, where)
            return original(*args, **kwargs)

        setattr(owner, name, patched)
        self._undo.append(lambda: setattr(owner, name, original))

    def stop(self) -> None:
        if not self._active:
            return
        self._active = False
        if self._torch.cuda.is_initialized():
            self._torch.cuda.set_sync_debug_mode(self._debug_mode)
        while self._undo:
            self._undo.pop()()


def dotted(name: str) -> str:
    """ "aten::add_" as "aten.add_", the way people write it."""
    return name.replace("::", ".", 1)
