"""Records the operations of one step: what runs on the device, what blocks a capture, and
which memory the step reads and writes that it did not make itself.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import sys
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
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
from launchscope.runner.child.facts import blocking
from launchscope.runner.child.facts.patching import wrap
from launchscope.runner.child.facts.plain_values import (
    computes_itself,
    dims_of,
    loaded_torch,
    shape_of,
    tensors_in,
    values_of,
)
from launchscope.runner.child.facts.source_lines import (
    code_place,
    library_frames,
    line_of_torch,
    user_line,
)
from launchscope.runner.child.facts.torch_modes import dispatch_mode
from launchscope.runner.child.facts.torch_types import (
    Args,
    Function,
    Kwargs,
    Mode,
    Module,
    Op,
    Storage,
    StorageRef,
    Tensor,
    Torch,
    Value,
)

RNG_CALLS = ("get_rng_state", "set_rng_state", "get_rng_state_all", "set_rng_state_all")
_ITEM = "aten::_local_scalar_dense"
_LIFT = "aten::lift_fresh"  # of a tensor that the step makes from values: one number is no input
_DDP_READ = "ddp.find_unused_parameters"  # of what one copy has brought to the host
_COPY = "aten._to_copy"  # what .cpu() and .to(device) run on a GPU
MOST_OPS_KEPT = 20_000
# PyTorch warns of a synchronization by a plain UserWarning, and only its text tells it from one of
# the script. If the text changes, the capture fails at that line, and the report names it.
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
    """The kind of library `step` that runs the op; None if the person's own code runs it."""
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

    def __init__(
        self,
        backward_line: Callable[[], SourceLine | None] = lambda: None,
        most_ops: int = sys.maxsize,
    ) -> None:
        """`backward_line()` gives the line that called the current backward, or the last one."""
        self.backward_line = backward_line
        self.most_ops = most_ops
        self._module_names = ModuleNames()
        self.digest = hashlib.blake2b(digest_size=8)
        self.ops: list[OpRecord] = []
        self.device_ops = 0
        self.copies = 0  # between host and device, in a rehearsal
        # Kept up to date by the pass that runs the step.
        self.part: StepPart = "forward"
        self.in_compiled = False  # in a call of compiled code
        self.running: str | None = None  # the op that runs now, if a stub can replace its result
        self.names_waits = False  # whether each wait is matched to its op, which costs time
        self.blockers: Counter[BlockerRecord] = Counter()
        self.dynamic = False  # an op has made a tensor whose shape depends on values
        self.produced: set[StorageRef] = {None}  # what has no storage is no input either
        self.read: dict[StorageRef, TensorShape] = {}
        self.written: set[StorageRef] = set()
        # Calls that are one op: the numbers of their nodes in a backward, and its name there.
        self.joined: list[tuple[range, str]] = []
        # Of nodes of the backward by their number, and of those that ran by name: forward's lines.
        self.node_lines: dict[int, SourceLine | None] = {}
        self.nodes: dict[str, SourceLine | None] = {}
        self.last_read = 0  # of a value on the host: how many ops were before it
        self.read_bytes: dict[StorageRef, int] = {}

    @property
    def signature(self) -> str:
        return self.digest.hexdigest()

    def line(self) -> SourceLine | None:
        """The user's line that runs now; in a backward the line that called it."""
        return user_line(sys._getframe(1)) or self.backward_line()

    def add(self, op: str, where: SourceLine | None) -> None:
        """One more device op."""
        self.device_ops += 1
        if len(self.ops) < MOST_OPS_KEPT:
            modules = self._module_names.stack(sys._getframe(1))
            self.ops.append(OpRecord(op, where, modules))

    def copy(self) -> None:
        """A copy to the device. A rehearsal sees no op for it."""
        self.copies += 1
        self.add(_COPY, self.line())

    def block(self, op: str, category: str, inside: LibraryStep | None = None) -> None:
        """One more operation that a capture cannot contain."""
        where, line = code_place(sys._getframe(1), self.backward_line())
        if line is None and inside is None:
            line = line_of_torch(sys._getframe(1))
        library, torch = None if line is None else LibraryLine(line), loaded_torch()
        task, node = torch._C._current_graph_task_id(), torch._C._current_autograd_node()
        if op == dotted(_ITEM) and self.part == "backward" and torch.is_anomaly_enabled():
            op = "torch.autograd.detect_anomaly"
        elif op == dotted(_ITEM) and line is None and task != -1 and node is None:
            op = _DDP_READ  # in DDP's reducer, behind the last node of the backward
        record = BlockerRecord(
            *(op, category, where, 0, None, self.part, inside, (), library, self.in_compiled)
        )
        self.blockers[record] = 1 if op == _DDP_READ else self.blockers[record] + 1

    def as_one_op(self, op: str, run: Function, args: Args, kwargs: Kwargs) -> Value:
        """The result of a call that a GPU runs as one op, and its backward as another."""
        nodes = loaded_torch()._C._autograd._get_sequence_nr
        since, first = len(self.ops), nodes()
        result = run(*args, **kwargs)
        self.device_ops -= len(self.ops) - since
        del self.ops[since:]
        self.add(op, self.line())
        self.joined.append((range(first, nodes()), f"{op}_backward"))
        return result

    def add_reads(self, nodes: Iterable[str]) -> None:
        """These nodes of the backward read a value on the host unless a mode sees them."""
        for name in self.nodes.keys() & nodes:
            record = BlockerRecord(name, blocking.OTHER, self.nodes[name], 0, None, "backward")
            self.blockers[record] += 1

    def add_earlier(self, other: StepStream) -> None:
        """What another one has recorded ran before this."""
        self.ops = [*other.ops, *self.ops]
        self.device_ops += other.device_ops
        self.blockers = other.blockers + self.blockers
        self.copies += other.copies

    def blocked_here(self) -> set[str]:
        """The operations of this kind that were seen at this place."""
        where = code_place(sys._getframe(1), self.backward_line()).where
        return {record.op for record in self.blockers if record.where == where}


class HostTensors:
    """In a rehearsal: the memory seen so far that would be on the host if there were a GPU."""

    def __init__(self) -> None:
        self._storages: set[StorageRef] = set()
        # Of optimizers. References and not addresses: freed memory is used again within a step.
        self.step_counts: set[StorageRef] = set()
        # Whether the script names devices; otherwise nothing distinguishes host and device.
        self.devices_named = False
        self.registered: list[Value] = []  # generators, with a graph of the script
        self.unrecorded = False  # what runs now is no op of a GPU

    def made(self, run: Function, args: Args, kwargs: Kwargs) -> Tensor:
        """The result of a call that makes a tensor on the host, unless it makes it of another."""
        if any(isinstance(value, loaded_torch().Tensor) for value in args):
            return run(*args, **kwargs)
        tensor = self._unrecorded(run, *args, **kwargs)
        self.add(tensor)
        return tensor

    def moved(self, tensor: Tensor) -> Tensor:
        """The tensor on the device: a copy of one on the host, which stays there."""
        on_host = weak_storage(tensor) in self._storages
        return self._unrecorded(tensor.clone) if on_host else tensor

    def _unrecorded(self, run: Function, *args: Value, **kwargs: Value) -> Tensor:
        self.unrecorded = self.devices_named
        try:
            return run(*args, **kwargs)
        finally:
            self.unrecorded = False

    def holds(self, tensor: Tensor) -> bool:
        return self.devices_named and weak_storage(tensor) in self._storages

    def on_device(self, tensor: Tensor) -> bool:
        """Whether a GPU would hold this tensor: everything not known to stay on the host."""
        if self.holds(tensor):
            return False
        return weak_storage(tensor) not in self.step_counts or tensor.ndim > 0

    def add(self, tensor: Tensor) -> None:
        self._storages |= {weak_storage(tensor)} - {None}


@dataclass
class StreamRecorder:
    """What a callback of a mode needs to record into `stream`."""

    torch: Torch
    stream: StepStream
    on_device: Callable[[Tensor], bool]
    host: HostTensors


def make_dispatch_mode(
    torch: Torch, stream: StepStream, on_device: Callable[[Tensor], bool], host: HostTensors
) -> Mode:
    """A TorchDispatchMode that records into `stream`; enter it around one step.

    A result computed from tensors in `host`, with none on the device, is added to `host`.
    """
    return dispatch_mode(_OpRecorder(torch, stream, on_device, host).on_op)


class _OpRecorder(StreamRecorder):
    def on_op(self, op: Op, run: Function, args: Args, kwargs: Kwargs) -> Value:
        torch, stream, host = self.torch, self.stream, self.host
        traced = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
        if traced or host.unrecorded or stream.device_ops >= stream.most_ops:
            return run(*args, **kwargs)
        tensors = list(tensors_in(torch, (args, kwargs)))
        if any(computes_itself(torch, tensor) for tensor in tensors):
            return NotImplemented  # what the class of the tensor does with it comes here instead
        touches = self._before(op, tensors, args, kwargs)
        result = self._run(op, run, args, kwargs)
        made = list(tensors_in(torch, result))
        if any(computes_itself(torch, tensor) for tensor in made):
            return result  # without memory, as DTensor makes them once to learn shapes
        if not touches and any(map(host.holds, tensors)):
            for tensor in made:
                host.add(tensor)
        if touches or any(map(self.on_device, made)):
            self._note_generator(op, kwargs)
            self._after(op, tensors, made)
        return result

    def _before(self, op: Op, tensors: list[Tensor], args: Args, kwargs: Kwargs) -> bool:
        """Whether the op, which is about to run, reads or writes memory of the device."""
        torch, stream, name = self.torch, self.stream, op._schema.name
        written = list(written_by(torch, op, args, kwargs))
        category = blocking.blocker_of(torch, op, args, kwargs, self.on_device)
        if category is not None:
            stream.block(dotted(name), category, library_step(torch))
            stream.dynamic |= category == blocking.DYNAMIC
            stream.last_read = len(stream.ops)
        if name == _LIFT and tensors[0].is_cuda and weak_storage(tensors[0]) not in stream.produced:
            stream.block("torch.tensor", blocking.HOST_COPY)  # of Python values
        # Only a copy writes from the device to the host; a scalar of another op is on the host too.
        if written and name not in blocking.COPIES and not any(map(self.on_device, written)):
            return False
        touches = any(map(self.on_device, tensors))
        if touches and not (name == _LIFT and tensors[0].ndim == 0):
            self._record_memory(tensors, written)
        return touches

    def _note_generator(self, op: Op, kwargs: Kwargs) -> None:
        """In a rehearsal a generator of the GPU is on the CPU, and told by what it makes."""
        generator: Value = kwargs.get("generator")
        own = blocking.draws_from_own_generator(self.torch, kwargs)
        if not own or generator.device.type != "cpu":
            return
        # An op gets another object for the same generator.
        state, equal = generator.get_state(), self.torch.equal
        if not any(equal(state, known.get_state()) for known in self.host.registered):
            self.stream.block(dotted(op._schema.name), blocking.RNG)

    def _record_memory(self, tensors: list[Tensor], written: list[Tensor]) -> None:
        stream = self.stream
        for tensor in filter(self.on_device, tensors):
            ref = weak_storage(tensor)
            if ref not in stream.produced and ref not in stream.read:
                stream.read[ref] = shape_of(tensor)
                stream.read_bytes[ref] = tensor.numel() * tensor.element_size()
        on_gpu = filter(self.on_device, written)
        stream.written |= {weak_storage(tensor) for tensor in on_gpu} - stream.produced

    def _run(self, op: Op, run: Function, args: Args, kwargs: Kwargs) -> Value:
        stream = self.stream
        stream.running = dotted(op._schema.name) if blocking.is_replaceable(op) else None
        try:
            if stream.names_waits:
                return _warning_at_once(self.torch, lambda: run(*args, **kwargs))
            return run(*args, **kwargs)
        finally:
            stream.running = None

    def _after(self, op: Op, tensors: list[Tensor], made: list[Tensor]) -> None:
        """An op of the device has made some tensors of others."""
        stream, name = self.stream, op._schema.name
        stream.produced |= {ref for ref in map(weak_storage, made) if ref not in stream.read}
        if stream.dynamic:  # behind a shape that depends on data others do too, on the same path
            tensors = [t for t in tensors if weak_storage(t) not in stream.produced]
        shapes = ";".join(f"{dims_of(t)}{t.dtype}" for t in tensors)
        if name != _ITEM:  # it launches nothing: a value read only for some logs is no branch
            stream.digest.update(f"{op}|{shapes}\n".encode())
        if not blocking.runs_no_kernel(op):
            self._add(dotted(name))

    def _add(self, op: str) -> None:
        """One more device op; in the backward of a call that is one op, only the first."""
        stream, autograd = self.stream, self.torch._C._autograd
        node, line = self.torch._C._current_autograd_node(), stream.line()
        number = -1 if node is None else node._sequence_nr()
        if node is None:
            stream.node_lines.setdefault(autograd._get_sequence_nr() - 1, line)
        else:
            stream.nodes[node.name()] = stream.node_lines.get(number, line)
        for index, (nodes, whole) in enumerate(stream.joined):
            if number in nodes:
                if whole:
                    stream.add(whole, line)
                stream.joined[index] = nodes, ""
                return
        stream.add(op, line)


@contextlib.contextmanager
def recording_syncs(torch: Torch, stream: StepStream) -> Iterator[None]:
    """Records synchronizations that are no ops: Python calls, and torch's sync warnings."""
    cuda: Value = torch.cuda
    calls = [(owner, name, blocking.SYNC) for owner, name in sync_calls(cuda)]
    calls += [(cuda, name, blocking.RNG) for name in RNG_CALLS]
    with contextlib.ExitStack() as undo:
        for owner, name, category in calls:
            record = functools.partial(_recorded, stream, f"torch.cuda.{name}", category)
            undo.callback(wrap(owner, name, record))
        undo.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("always", f"(?s).*{_SYNC_WARNING}")
        # What calls `warnings.showwarning`, which does not get the source of a warning.
        show = functools.partial(_sync_warnings_recorded, stream)
        undo.callback(wrap(warnings, "_showwarnmsg", show))
        if cuda.is_initialized():
            undo.callback(cuda.set_sync_debug_mode, cuda.get_sync_debug_mode())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns that the mode is a prototype
                cuda.set_sync_debug_mode("warn")
        yield


def _recorded(stream: StepStream, op: str, category: str, original: Function) -> Function:
    def call(*args: Value, **kwargs: Value) -> Value:
        stream.block(op, category)
        return original(*args, **kwargs)

    return call


def _sync_warnings_recorded(stream: StepStream, original: Function) -> Function:
    def show(shown: warnings.WarningMessage) -> None:
        if _SYNC_WARNING not in str(shown.message):
            original(shown)
            return
        op, known = stream.running, stream.blocked_here()
        if op is None and not known:
            stream.block(blocking.UNKNOWN_WAIT, blocking.SYNC)
        elif op is not None and op not in known:
            stream.block(op, blocking.OTHER)

    return show


def _warning_at_once(torch: Torch, run: Callable[[], Value]) -> Value:
    """The result of `run()`, after what torch warned of in it. It keeps the warnings of an op until
    the function that the script called returns; the function that is called here ends sooner."""
    results: list[Value] = []

    def call(number: float) -> float:
        results.append(run())
        return number

    torch.zeros((), device="cpu").apply_(call)
    return results[0]


def dotted(name: str) -> str:
    """ "aten::add_" as "aten.add_", the way people write it."""
    return name.replace("::", ".", 1)


class ModuleNames:
    """Of one step: it looks for the modules below each one once."""

    def __init__(self) -> None:
        self._below: dict[int, dict[int, str]] = {}

    def stack(self, frame: FrameType | None) -> tuple[str, ...]:
        """The class of the outermost module among the callers of a frame, then the place of each
        inner one below the one around it: ("GPT", "blocks.0", "attention")."""
        file = loaded_torch().nn.modules.module.__file__
        running: list[Module] = []
        while frame is not None:
            code = frame.f_code  # torch's, whatever the script has put around it
            if code.co_name == "_call_impl" and code.co_filename == file:
                running.append(frame.f_locals.get("self"))
            frame = frame.f_back
        running.reverse()
        names = (self._name(*pair) for pair in pairwise(running))
        return (type(running[0]).__name__, *names) if running else ()

    def _name(self, outer: Module, inner: Module) -> str:
        below = self._below.get(id(outer))
        if below is None:
            below = {id(module): name for name, module in outer.named_modules()}
            self._below[id(outer)] = below
        return below.get(id(inner)) or type(inner).__name__
