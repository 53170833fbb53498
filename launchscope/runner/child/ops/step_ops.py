"""Records the operations of one step: what runs on the device, what blocks a capture, and
which memory the step reads and writes that it did not make itself.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import sys
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType

from launchscope.model import (
    BlockerRecord,
    LibraryLine,
    LibraryStep,
    OpRecord,
    SourceLine,
    StepPart,
    TensorShape,
)
from launchscope.runner.child.code_owner import is_ours, is_torch
from launchscope.runner.child.hooks.hooks import Hooks
from launchscope.runner.child.hooks.patching import is_replaced, put_in_place
from launchscope.runner.child.ops.blocking import (
    COPIES,
    HOST_COPY,
    OTHER,
    RNG,
    SYNC,
    UNKNOWN_WAIT,
    blocker_of,
    is_replaceable,
    runs_no_kernel,
)
from launchscope.runner.child.ops.module_stack import ModuleNames
from launchscope.runner.child.ops.torch_modes import dispatch_mode, function_mode
from launchscope.runner.child.plain_values import (
    computes_itself,
    dims_of,
    is_distributed,
    shape_of,
    tensors_in,
    values_of,
)
from launchscope.runner.child.source_lines import CodePlace, code_place, library_frames, user_line
from launchscope.runner.child.torch_types import (
    Args,
    Function,
    Kwargs,
    Op,
    Storage,
    StorageRef,
    Tensor,
    Torch,
    Value,
)

RNG_CALLS = ("get_rng_state", "set_rng_state", "get_rng_state_all", "set_rng_state_all")
_ITEM = "aten::_local_scalar_dense"
_ZEROES = ("aten::zero_", "aten::_foreach_zero_")
_ACCUMULATE = "aten::add_"
_LIFT = "aten::lift_fresh"  # of a tensor that the step makes from values: one number is no input
_COPY = "aten._to_copy"  # what .cpu() and .to(device) run on a GPU
MOST_OPS_KEPT = 20_000
# PyTorch warns of a synchronization by a plain UserWarning, which only its text tells from those of
# the script. If the text changes, the capture fails at that line, which is reported.
_SYNC_WARNING = "synchronizing CUDA operation"


def copies_to_gpu(torch: Torch, func: Value, args: Args, kwargs: Kwargs) -> bool:
    """Whether a call makes a tensor on the GPU from values on the host, for which no op shows."""
    device = kwargs.get("device")
    if (func is not torch.tensor and func is not torch.as_tensor) or device is None:
        return False
    on_gpu = isinstance(device, int) or torch.device(device).type == "cuda"
    source = args[0] if args else kwargs.get("data")
    return on_gpu and not isinstance(source, torch.Tensor)


def sync_calls(cuda: Torch) -> tuple[tuple[Value, str], ...]:
    """Python calls that wait for the GPU: what holds each, and its name."""
    return tuple((owner, "synchronize") for owner in (cuda, cuda.Stream, cuda.Event))


def weak_storage(tensor: Tensor) -> StorageRef:
    """A weak reference to a tensor's storage, equal for all tensors that share it.

    None for a tensor without its own, such as sparse ones and torch.func's wrappers.
    """
    try:
        # torch keeps this object for as long as the storage.
        return weakref.ref(tensor.untyped_storage())
    except (RuntimeError, NotImplementedError):
        return None


def alive(reference: StorageRef) -> Storage | None:
    """The storage, if the script still has it."""
    storage = reference()
    if storage is not None:
        storage._fix_weakref()  # so that the result keeps it alive
    return storage


def written_by(torch: Torch, op: Op, args: Args, kwargs: Kwargs) -> Iterator[Tensor]:
    """The tensors that an op writes, according to its schema."""
    for index, argument in enumerate(op._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[index] if index < len(args) else kwargs.get(argument.name)
            values = values_of(value) or (value,)
            yield from (tensor for tensor in values if isinstance(tensor, torch.Tensor))


def library_step(torch: Torch) -> LibraryStep | None:
    """Whose `step` the running op belongs to; None if the person's own code calls it."""
    frames = library_frames(sys._getframe(1))
    owners = [frame.f_locals.get("self") for frame in frames if frame.f_code.co_name == "step"]
    kinds: tuple[tuple[type, LibraryStep], ...] = (
        (torch.amp.GradScaler, "grad_scaler"),
        (torch.optim.LBFGS, "lbfgs"),
        (torch.optim.Optimizer, "optimizer"),
    )
    for kind, name in kinds:
        if any(isinstance(owner, kind) for owner in owners):
            return name
    return None


class StepStream:
    """What one step did, or what ran before it, filled in while it runs.

    After `most_ops` device ops the rest goes unseen.
    """

    def __init__(self, hooks: Hooks | None = None, most_ops: int = sys.maxsize) -> None:
        self._hooks = hooks
        self.most_ops = most_ops
        self._module_names = ModuleNames()
        self.digest = hashlib.blake2b(digest_size=8)
        self.ops: list[OpRecord] = []
        self.device_ops = 0
        self.copies = 0  # between host and device, in a rehearsal
        # To the device, since the step before: storage and offset.
        self.copied: set[tuple[StorageRef, int]] = set()
        # Kept up to date by the pass that runs the step.
        self.part: StepPart = "forward"
        self.in_compiled = False  # in a call of compiled code
        self.running: str | None = None  # the op that runs now, if a stub can replace its result
        self.unnamed_waits = 0  # of which torch did not say in which op they were
        self.names_waits = False  # finds out the op of each wait, which costs time
        self.blockers: Counter[BlockerRecord] = Counter()
        self.produced: set[StorageRef] = {None}  # what has no storage is no input either
        self.read: dict[StorageRef, TensorShape] = {}
        self.written: set[StorageRef] = set()
        self.read_bytes: dict[StorageRef, int] = {}

    @property
    def signature(self) -> str:
        return self.digest.hexdigest()

    @property
    def backward_where(self) -> SourceLine | None:
        """The line that called the backward that runs now, or the last one."""
        return None if self._hooks is None else self._hooks.backward_where

    def line(self) -> SourceLine | None:
        """The user's line that runs now; in a backward the line that called it."""
        return user_line(sys._getframe(1)) or self.backward_where

    def place(self) -> CodePlace:
        """That line, and the library's below it."""
        return code_place(sys._getframe(1), self.backward_where)

    def add(self, op: str, where: SourceLine | None) -> None:
        """One more device op."""
        self.device_ops += 1
        if len(self.ops) < MOST_OPS_KEPT:
            modules = self._module_names.stack(sys._getframe(1))
            self.ops.append(OpRecord(op, where, modules))

    def copy(self, where: SourceLine | None) -> None:
        """A copy to the device. A rehearsal sees no op for it."""
        self.copies += 1
        self.add(_COPY, where)

    def block(
        self, op: str, category: str, place: CodePlace, inside: LibraryStep | None = None
    ) -> None:
        library = None if place.library is None else LibraryLine(place.library)
        record = BlockerRecord(
            *(op, category, place.where, 0, None, self.part, inside, (), library, self.in_compiled)
        )
        self.blockers[record] += 1

    def records(self) -> list[BlockerRecord]:
        return [replace(record, count=count) for record, count in self.blockers.items()]


class HostTensors:
    """In a rehearsal: the memory seen so far that would be on the host if there were a GPU."""

    def __init__(self, *, devices_named: bool = False) -> None:
        self._storages: set[StorageRef] = set()
        # Of optimizers. References and not addresses: freed memory is used again within a step.
        self.step_counts: set[StorageRef] = set()
        # Whether the script names devices; otherwise nothing distinguishes host and device.
        self.devices_named = devices_named
        self._thread = threading.local()
        self.error: Exception | None = None  # of our own, in a call of the script
        self.arrived: set[StorageRef] = {None}  # on the device without a copy of the script
        self.zeroed: dict[StorageRef, SourceLine | None] = {}  # memory set to 0, and the line
        self._same_memory: dict[StorageRef, StorageRef] = {}

    @property
    def unrecorded(self) -> bool:
        """Whether what this thread runs now is no op of a GPU."""
        return getattr(self._thread, "unrecorded", False)

    @contextlib.contextmanager
    def recording_nothing(self) -> Iterator[None]:
        """Inside, what this thread runs is no op of a GPU."""
        before = self.unrecorded
        self._thread.unrecorded = True
        try:
            yield
        finally:
            self._thread.unrecorded = before

    def made(self, run: Function, args: Args, kwargs: Kwargs) -> Tensor:
        """The result of a call that makes a tensor on the host."""
        with self.recording_nothing():
            tensor = run(*args, **kwargs)
        self.add(tensor)
        return tensor

    def same_memory(self, torch: Torch, storage: Storage) -> Storage:
        """Another storage on the same memory: always the same one, because files hold tensors that
        share a storage once."""
        ref = weakref.ref(storage)
        known = self._same_memory.get(ref)
        found = None if known is None else alive(known)
        if found is None:
            flat = torch._C._VariableFunctions.empty(0, dtype=torch.uint8, device="cpu")
            torch._C.TensorBase.set_(flat, storage)
            shared = torch._C._from_dlpack(torch._C._to_dlpack(flat))
            found = shared.untyped_storage()
            self._same_memory[ref] = weakref.ref(found)
        return found

    def holds(self, tensor: Tensor) -> bool:
        return bool(self._storages) and weak_storage(tensor) in self._storages

    def on_device(self, tensor: Tensor) -> bool:
        """Whether a GPU would hold this tensor: everything not known to stay on the host."""
        if self.holds(tensor):
            return False
        return weak_storage(tensor) not in self.step_counts or tensor.ndim > 0

    def add(self, tensor: Tensor) -> None:
        self._storages |= {weak_storage(tensor)} - {None}

    def discard(self, tensor: Tensor) -> None:
        self._storages.discard(weak_storage(tensor))


def make_dispatch_mode(
    torch: Torch, stream: StepStream, on_device: Callable[[Tensor], bool], host: HostTensors
) -> Value:
    """A TorchDispatchMode that records into `stream`; enter it around one step.

    A result computed from tensors in `host`, with none on the device, is added to `host`.
    """
    launches_nothing = functools.cache(runs_no_kernel)

    def record_memory(tensors: list[Tensor], written: list[Tensor]) -> None:
        for tensor in filter(on_device, tensors):
            ref = weak_storage(tensor)
            if ref not in stream.produced and ref not in stream.read:
                stream.read[ref] = shape_of(tensor)
                size = tensor.element_size()
                stream.read_bytes[ref] = tensor.numel() * size
        on_gpu = filter(on_device, written)
        stream.written |= {weak_storage(tensor) for tensor in on_gpu} - stream.produced

    def on_op(op: Op, run: Function, args: Args, kwargs: Kwargs) -> Value:
        if host.unrecorded or stream.device_ops >= stream.most_ops:
            return run(*args, **kwargs)
        name = op._schema.name
        tensors = list(tensors_in(torch, (args, kwargs)))
        own = [tensor for tensor in tensors if computes_itself(torch, tensor)]
        if own:  # of a tensor in parts, what is done with the part of this rank comes here instead
            return NotImplemented if all(map(is_distributed, own)) else run(*args, **kwargs)
        written = list(written_by(torch, op, args, kwargs))
        # Only a copy writes from the device to the host; a scalar of another op is on the host too.
        of_host = written and name not in COPIES and not any(map(on_device, written))
        touches = not of_host and any(map(on_device, tensors))
        category = blocker_of(torch, op, args, kwargs, on_device)
        where = None
        if category is not None:
            place = stream.place()
            where = place.where
            stream.block(dotted(name), category, place, library_step(torch))
        if name in _ZEROES:
            for tensor in written:
                host.zeroed[weak_storage(tensor)] = stream.line()
        elif name == _ACCUMULATE and host.zeroed and stream.line() == stream.backward_where:
            # The backward adds to a gradient because somebody has kept it.
            where = host.zeroed.pop(weak_storage(args[0]), where)
        if touches and not (name == _LIFT and tensors[0].ndim == 0):
            record_memory(tensors, written)
        stream.running = dotted(name) if is_replaceable(op) else None
        try:
            if stream.names_waits:
                result = _warning_at_once(torch, lambda: run(*args, **kwargs))
            else:
                result = run(*args, **kwargs)
        finally:
            stream.running = None
        made = list(tensors_in(torch, result))
        if any(computes_itself(torch, tensor) for tensor in made):
            return result  # without memory, as DTensor makes them once to learn shapes
        if not touches and any(host.holds(tensor) for tensor in tensors):
            for tensor in made:
                host.add(tensor)
        if not touches and not any(on_device(tensor) for tensor in made):
            return result
        stream.produced |= {ref for ref in map(weak_storage, made) if ref not in stream.read}
        shapes = ";".join(f"{dims_of(t)}{t.dtype}" for t in tensors)
        if name != _ITEM:  # it launches nothing: a value read only for some logs is no branch
            stream.digest.update(f"{op}|{shapes}\n".encode())
        if not launches_nothing(op):
            stream.add(dotted(name), where or stream.line())
        return result

    return dispatch_mode(on_op)


def make_function_mode(torch: Torch, stream: StepStream) -> Value:
    """A TorchFunctionMode that sees `torch.tensor(x, device=...)`, which dispatches no op."""

    def on_call(func: Value, run: Function, args: Args, kwargs: Kwargs) -> Value:
        if copies_to_gpu(torch, func, args, kwargs):
            stream.block(f"torch.{func.__name__}", HOST_COPY, code_place(sys._getframe()))
        return run(*args, **kwargs)

    return function_mode(on_call)


@contextlib.contextmanager
def recording_syncs(torch: Torch, stream: StepStream) -> Iterator[None]:
    """Records synchronizations that are no ops: Python calls, and torch's sync warnings."""
    cuda = torch.cuda
    # Whoever imports a patched name now keeps the patch for good (torch's own lazily imported
    # modules do): then it must neither keep the stream alive nor record anything.
    streams = [stream]
    errors: list[Exception] = []  # of ours, which are raised at the end

    def patch(owner: Value, name: str, category: str) -> None:
        if is_replaced(owner, name):  # it runs between steps, too, where the script may look at it
            return
        original = getattr(owner, name)

        def patched(*args: Value, **kwargs: Value) -> Value:
            try:
                for stream in streams:
                    stream.block(f"torch.cuda.{name}", category, code_place(sys._getframe(1)))
            except Exception as error:
                errors.append(error)
            return original(*args, **kwargs)

        undo.callback(put_in_place(owner, name, patched))

    # What calls `warnings.showwarning`, which does not get the source of a warning.
    shows: Value = warnings
    original_show = shows._showwarnmsg

    def show(shown: warnings.WarningMessage) -> None:
        if not streams or not _is_sync_warning(shown.message):
            # A thread of the backward has no line of the script. It was warned of in steps before.
            at_once = any(stream.names_waits for stream in streams)
            # torch warns of what it does eagerly where the script has it compiled.
            eager = any(stream.in_compiled for stream in streams) and is_torch(shown.filename)
            if not eager and (not at_once or _has_caller(sys._getframe(1))):
                original_show(shown)
            return
        try:
            for stream in streams:
                place, op = stream.place(), stream.running
                stream.unnamed_waits += op is None
                known = (record.op for record in stream.blockers if _place_of(record) == place)
                if op is None and not any(known):
                    stream.block(UNKNOWN_WAIT, SYNC, place)
                elif op is not None and op not in known:
                    stream.block(op, OTHER, place)
        except Exception as error:
            errors.append(error)

    with contextlib.ExitStack() as undo:
        for owner, name in sync_calls(cuda):
            patch(owner, name, SYNC)
        for name in RNG_CALLS:
            patch(cuda, name, RNG)
        undo.enter_context(_filtered("always", _SYNC_WARNING))
        undo.callback(put_in_place(shows, "_showwarnmsg", show))
        if cuda.is_initialized():
            undo.callback(cuda.set_sync_debug_mode, cuda.get_sync_debug_mode())
            with _filtered("ignore", ""):  # torch warns that the mode is a prototype
                cuda.set_sync_debug_mode("warn")
        undo.callback(streams.clear)
        yield
    if errors:
        raise errors[0]


@contextlib.contextmanager
def _filtered(action: str, text: str) -> Iterator[None]:
    """Inside, a filter for warnings with `text` comes before all others. Python does not notice: it
    would forget which warnings of the script it has shown."""
    filters: Value = warnings.filters
    entry = (action, re.compile(f"(?s).*{text}"), Warning, None, 0)
    filters.insert(0, entry)
    try:
        yield
    finally:
        # A catch_warnings() of the script may have replaced the list by a copy.
        held: Value
        for held in (filters, warnings.filters):
            while entry in held:
                held.remove(entry)


class _Once:
    """A sequence of one byte that runs a function when it is read."""

    def __init__(self, run: Callable[[], Value]):
        self.run = run
        self.result: Value = None
        self.error: BaseException | None = None

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        try:
            self.result = self.run()
        except BaseException as error:  # the conversion expects none
            self.error = error
        return 0


def _warning_at_once(torch: Torch, run: Callable[[], Value]) -> Value:
    """The result of `run()`, after what torch warned of in it. It keeps the warnings of an op until
    the function that the script called returns, and those of a backward until that is over; the
    function that is called here ends sooner."""
    once = _Once(run)
    try:
        torch.UntypedStorage(once)
        if once.error is not None:
            raise once.error
        return once.result
    finally:
        once.error = None  # it holds this frame, and with it the tensors of the script


def _has_caller(frame: FrameType | None) -> bool:
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None


def _place_of(record: BlockerRecord) -> CodePlace:
    return CodePlace(record.where, None if record.library is None else record.library.where)


def _is_sync_warning(message: Warning | str) -> bool:
    """Of torch, which gives a plain text; a warning of the script is not asked for its own."""
    words = message.args[:1] if type(message) is UserWarning else (message,)
    return any(type(word) is str and _SYNC_WARNING in word for word in words)


def dotted(name: str) -> str:
    """ "aten::add_" as "aten.add_", the way people write it."""
    return name.replace("::", ".", 1)
