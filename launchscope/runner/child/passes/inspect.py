"""Inspects the ops of a few steps, and of what runs before each of them: shapes, blockers with
the user's line, state."""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

from launchscope.model import (
    BetweenRecord,
    BlockerRecord,
    HostInput,
    InspectResult,
    LastBatch,
    LibraryLine,
    OpCount,
    SourceLine,
    StepPart,
    TensorShape,
)
from launchscope.runner.child.capture.state import state_values
from launchscope.runner.child.hooks.compile_hooks import graph_breaks
from launchscope.runner.child.hooks.epochs import is_last_batch
from launchscope.runner.child.machine import gpu_obstacle
from launchscope.runner.child.ops.blocking import OTHER, UNKNOWN_WAIT
from launchscope.runner.child.ops.device_choice import unused_gpu
from launchscope.runner.child.ops.host_copies import (
    batches_on_host,
    host_step_counts,
    make_host_copy_mode,
    prints_as_syncs,
)
from launchscope.runner.child.ops.host_inputs import host_inputs
from launchscope.runner.child.ops.learning_rate import rate_set_at
from launchscope.runner.child.ops.optimizer_devices import optimizers_as_on_cuda
from launchscope.runner.child.ops.step_ops import (
    MOST_OPS_KEPT,
    HostTensors,
    StepStream,
    make_dispatch_mode,
    recording_syncs,
    weak_storage,
)
from launchscope.runner.child.ops.torch_modes import leave_modes
from launchscope.runner.child.passes import Context, Pass
from launchscope.runner.child.plain_values import (
    objects_of,
    values_of,
)
from launchscope.runner.child.source_lines import (
    code_place,
    note_library_loop,
    package_of,
    source_text,
    user_line,
)
from launchscope.runner.child.step_pattern import PREVIOUS_END
from launchscope.runner.child.torch_types import StorageRef, Tensor, Value

# A script that changes something in every step is inspected with its changes.
_MOST_CHANGES = 3


class InspectPass(Pass[InspectResult]):
    """Dispatch and function modes around each step, and between steps; slow, and never timed."""

    name = "inspect"
    label = "inspecting"
    result_type = InspectResult
    order = 30
    fewest_steps = 2
    on_cpu = True

    def start(self, context: Context) -> None:
        super().start(context)
        context.hooks.wants_lines = True
        self._streams: list[StepStream] = []
        self._between: list[BetweenRecord] = []  # before each of `_streams`, and of the current one
        self._watching = contextlib.ExitStack()
        leave_modes()  # of a start that was interrupted
        self._host_inputs: tuple[HostInput, ...] | None = None
        self._rate_set_at: SourceLine | None = None
        self._host = HostTensors(devices_named=context.rehearsal.named_device)
        self._forwards: list[int] = []
        self._openings: list[tuple[TensorShape, ...]] = []
        self._cache_class: str | None = None
        self._last_batch: LastBatch | None = None
        self._changes = 0
        self._graph_breaks = graph_breaks()  # the modes of this pass leave compiled code eager
        self._in_step = False
        if not context.on_gpu:
            self._host.arrived |= known_storages(context)
        context.hooks.in_forks(weakref.WeakMethod(self._leave_fork))
        self._watch(StepStream(context.hooks, MOST_OPS_KEPT))

    def begin(self) -> None:
        self._unwatch()
        before = self._current
        broken_off, self._in_step = self._in_step, False
        if broken_off:  # by the script
            before.copied.clear()
        else:
            self._host.arrived |= before.produced
            self._between[len(self._streams) :] = [_between_record(before)]
        self._begun = user_line(sys._getframe(1))
        self._openings[len(self._streams) :] = [self.context.step_inputs()]
        self._cache_class = self.context.step_cache() or self._cache_class
        stream = StepStream(self.context.hooks)
        # One of them may be in an op that is not known to wait, behind one that is.
        stream.names_waits = any(before.unnamed_waits for before in self._streams)
        self._watch(stream, before)
        hooks = self.context.hooks
        self._forwards_before = hooks.forwards - bool(hooks.depth)  # its own may be under way
        self._in_step = True

    def _watch(self, stream: StepStream, before: StepStream | None = None) -> None:
        """Record into `stream` from now on."""
        self._current = stream
        if before is not None:
            stream.copied = before.copied
        self._enter_modes(stream)

    def _enter_modes(self, stream: StepStream) -> None:
        context = self.context
        torch, host = context.torch, self._host
        on_device = context.on_device if context.on_gpu else self._would_be_on_gpu
        modes = [
            recording_syncs(torch, stream),
            make_dispatch_mode(torch, stream, on_device, host),
        ]
        if not context.on_gpu:
            host.step_counts = host_step_counts(torch, context.optimizers)
            modes.append(make_host_copy_mode(torch, stream, on_device, host))
            modes.append(prints_as_syncs(torch, stream, on_device))
            if host.devices_named:
                modes.append(batches_on_host(torch, host))
            modes.append(optimizers_as_on_cuda())
        for mode in modes:
            self._watching.enter_context(mode)
        hooks = context.hooks
        hooks.around_compiled = self._in_compiled
        hooks.around_traced = hooks.around_operator = self._paused
        self._watching.callback(setattr, hooks, "around_compiled", None)
        for name in ("around_traced", "around_operator"):
            self._watching.callback(setattr, hooks, name, contextlib.nullcontext)

    @contextlib.contextmanager
    def _in_compiled(self) -> Iterator[None]:
        stream = self._current
        before, stream.in_compiled = stream.in_compiled, True
        try:
            yield
        finally:
            stream.in_compiled = before

    @contextlib.contextmanager
    def _paused(self) -> Iterator[None]:
        """Inside, torch traces or compiles for itself, and sees no mode of ours."""
        stream = self._current
        with stream.errors_apart():
            self._unwatch()
        try:
            yield
        finally:
            self._enter_modes(stream)

    def _unwatch(self) -> None:
        self._watching.close()
        leave_modes()

    def _leave_fork(self) -> None:
        """A forked child, such as the worker of a data loader, runs without the modes."""
        with contextlib.suppress(Exception):  # CUDA refuses any call there
            self._unwatch()

    def _would_be_on_gpu(self, tensor: Tensor) -> bool:
        """In a rehearsal: everything but the work of data loaders and what stays on the host."""
        return not self.context.hooks.in_fetch and self._host.on_device(tensor)

    def part_ended(self, part: StepPart) -> None:
        self._current.part = "backward" if part == "forward" else "optimizer"

    def end(self) -> bool:
        self._unwatch()
        if self._current.error is not None:
            raise self._current.error
        whole, self._in_step = self._in_step, False  # an interrupt may have kept it from beginning
        self._host.arrived |= self._current.produced
        if not whole or self._in_library_loop():
            self._watch(StepStream(self.context.hooks, MOST_OPS_KEPT))
            return False  # this step's lines are all one: look at another one
        self._streams.append(self._current)
        # The forward that begins the next step may be what ends this one.
        hooks = self.context.hooks
        forwards = hooks.forwards - bool(hooks.depth)
        self._forwards.append(forwards - self._forwards_before)
        self._leave_out_last_batch()
        self._leave_out_steps_before_change()
        with contextlib.suppress(Exception):  # the script's own classes may raise anything
            if self._host_inputs is None:
                self._host_inputs = _host_inputs(self.context, self._current, sys._getframe(1))
        with contextlib.suppress(Exception):
            if len(self._streams) == 1:
                self._rate_set_at = rate_set_at(self.context.torch, sys._getframe(1))
        if len(self._streams) >= self.wanted:
            return True
        self._watch(StepStream(hooks, MOST_OPS_KEPT))
        return False

    def _leave_out_last_batch(self) -> None:
        """The smaller last batch of an epoch is rare: another step is inspected in its place."""
        self._last_batch = last = self._last_batch or self.context.hooks.epochs.last_batch
        if last is None or len({stream.signature for stream in self._streams}) < 2:
            return
        known = known_storages(self.context)
        inputs = [_input_shapes(stream, known) for stream in self._streams]
        for index, own in reversed(list(enumerate(inputs))):
            if any(is_last_batch(last, usual, own) for usual in inputs):
                for of_steps in self._of_steps():
                    del of_steps[index]

    def _leave_out_steps_before_change(self) -> None:
        """Steps before the script replaced an optimizer or a layer are of another kind, and the
        first one after that makes new optimizer state."""
        if self.context.step_changed() and self._changes < _MOST_CHANGES:
            self._changes += 1
            for of_steps in self._of_steps():
                of_steps.clear()

    def _of_steps(self) -> tuple[list[Any], ...]:
        return self._streams, self._between, self._forwards, self._openings

    def failed(self, error: BaseException) -> None:
        self._unwatch()

    def _in_library_loop(self) -> bool:
        """Whether the step began and ended in a library below one line of the person's, not known
        so far."""
        line, library = code_place(sys._getframe(2))
        boundary = self.context.boundary
        if line is None or library is None or line != self._begun or boundary.scope != "full_step":
            return False
        if boundary.period[0] == PREVIOUS_END:  # both are the line of the optimizer's step
            return False
        return note_library_loop(line)

    def finish(self, complete: bool) -> InspectResult | None:
        self._unwatch()
        self.context.hooks.wants_lines = False
        if not self._streams:
            return None
        context = self.context
        known = known_storages(context)
        last = self._streams[-1]
        if last.names_waits:
            named = {key: n for key, n in last.blockers.items() if key.category == OTHER}
            for stream in (stream for stream in self._streams if not stream.names_waits):
                for record in [key for key in stream.blockers if key.op == UNKNOWN_WAIT]:
                    del stream.blockers[record]
                stream.blockers |= Counter(named)
        context.written_storages = set().union(*(s.written for s in self._streams))
        read = _inputs_of(last, known)
        blockers: Counter[BlockerRecord] = Counter()
        for stream in self._streams:
            blockers |= stream.blockers  # the most seen in one step
        groups = [group for optimizer in context.optimizers for group in optimizer.param_groups]
        # A capture makes these `capturable`, at the price of more kernels.
        groups = [g for g in groups if g.get("capturable") is False and not g.get("fused")]
        parameters, trained = _parameter_counts(context)
        partial, notes = _rehearsal_limits(context) if not context.on_gpu else (False, ())
        obstacle = None if context.on_gpu else gpu_obstacle(context.torch)
        return InspectResult(
            steps=len(self._streams),
            signatures=tuple(stream.signature for stream in self._streams),
            inputs=tuple(_input_shapes(stream, known) for stream in self._streams),
            device_ops=tuple(stream.device_ops for stream in self._streams),
            blockers=tuple(
                replace(record, by_step=tuple(stream.blockers[key] for stream in self._streams))
                for key, record in zip(blockers, records_of(blockers))
            ),
            ops=tuple(last.ops),
            scheduler_live=self._rate_set_at is not None or bool(live_schedulers(context)),
            scheduler_where=self._rate_set_at or context.hooks.scheduler_where,
            optimizer_classes=tuple(type(o).__name__ for o in context.optimizers),
            uncapturable_tensors=sum(len(group["params"]) for group in groups),
            uncapturable_groups=len(groups),
            host_inputs=self._host_inputs or (),
            input_tensors=len(read),
            input_bytes=sum(last.read_bytes[ref] for ref in read),
            parameters=parameters,
            trained=trained,
            forwards=tuple(self._forwards),
            step_ops=_of_steps(self._streams),
            graph_breaks=self._graph_breaks,
            copies=() if context.on_gpu else tuple(stream.copies for stream in self._streams),
            between=tuple(self._between[: len(self._streams)]),
            partial=partial,
            unused_gpu=None if obstacle is None else unused_gpu(obstacle),
            last_batch=self._last_batch,
            openings=tuple(self._openings[: len(self._streams)]),
            cache_class=self._cache_class,
            notes=notes,
        )


def usual_steps(context: Context) -> Callable[[], bool]:
    """Says as a step begins whether it is of the kind that is captured, and has a whole batch."""
    inspect = context.result(InspectPass)
    last = None if inspect is None else inspect.last_batch
    if inspect is None or last is None:
        return context.is_main_kind
    usual = inspect.openings[-1]
    return lambda: context.is_main_kind() and not is_last_batch(last, usual, context.step_inputs())


def records_of(blockers: Counter[BlockerRecord]) -> tuple[BlockerRecord, ...]:
    return tuple(
        replace(
            blocker,
            count=count,
            code=source_text(blocker.where),
            library=blocker.library and _described(blocker.library),
        )
        for blocker, count in blockers.items()
    )


def _described(line: LibraryLine) -> LibraryLine:
    """The line with its text, its package and the version of that, where they are known."""
    package, version = package_of(line.where), None
    with contextlib.suppress(Exception):  # an importer of the script may be asked for the metadata
        # Seldom needed, and slow to import. A distribution may have another name than its package.
        from importlib import metadata

        with contextlib.suppress(metadata.PackageNotFoundError):
            version = str(metadata.version(package))
    return LibraryLine(line.where, source_text(line.where), package, version)


def _op_counts(stream: StepStream) -> tuple[OpCount, ...]:
    counted = Counter((record.op, record.where) for record in stream.ops)
    return tuple(
        OpCount(op, where, count, source_text(where)) for (op, where), count in counted.items()
    )


def _of_steps(streams: Sequence[StepStream]) -> tuple[tuple[OpCount, ...], ...]:
    counts = [_op_counts(stream) for stream in streams]
    return tuple(counts) if len({frozenset(own) for own in counts}) > 1 else (counts[-1],)


def _between_record(stream: StepStream) -> BetweenRecord:
    return BetweenRecord(
        _op_counts(stream),
        records_of(stream.blockers),
        stream.copies,
        complete=stream.device_ops < stream.most_ops,
    )


def known_storages(context: Context) -> set[StorageRef]:
    """Parameters, buffers, gradients and optimizer state: read by a step, not its inputs."""
    known = set()
    for value, _ in state_values(context.modules, context.optimizers):
        for tensor in values_of(value) or (value,):  # as LBFGS keeps them
            if isinstance(tensor, context.torch.Tensor):
                known.add(weak_storage(tensor))
    return known - {None}


def _parameter_counts(context: Context) -> tuple[int, int]:
    """How many parameters there are, and how many of them an optimizer has."""
    known, trained = set[StorageRef | None](), set[StorageRef | None]()
    for value, group in state_values(context.modules, context.optimizers):
        if group is not None and isinstance(value, context.torch.Tensor):
            known.add(weak_storage(value))
            if group:
                trained.add(weak_storage(value))
    return len(known - {None}), len(trained - {None})


def _inputs_of(stream: StepStream, known: set[StorageRef]) -> list[StorageRef]:
    """What the step reads and does not write, beside what belongs to the model."""
    return [ref for ref in stream.read if ref not in known and ref not in stream.written]


def _input_shapes(stream: StepStream, known: set[StorageRef]) -> tuple[TensorShape, ...]:
    """In an order that does not depend on which one the step reads first."""
    shapes = [stream.read[ref] for ref in _inputs_of(stream, known)]
    return tuple(sorted(shapes, key=lambda shape: (len(shape.dims), shape.dtype, shape.dims)))


def _host_inputs(
    context: Context, stream: StepStream, frame: FrameType
) -> tuple[HostInput, ...] | None:
    """The inputs in the statements at which the step worked on the device."""
    begins = context.boundary.source
    if begins is None:
        return None
    lines = [op.where for op in stream.ops if op.where is not None]
    of_file = [line.line for line in (begins, *lines) if line.file == begins.file]
    return host_inputs(context.torch, frame, begins.file, of_file)


def live_schedulers(context: Context) -> list[Value]:
    """Schedulers that still change a learning rate of this step's optimizers that a graph freezes.

    They are recognized by name, because some libraries (timm) have classes of their own; others
    (Fabric, accelerate) give them an object that holds the optimizer. Kernels receive a tensor on
    the host by value, as they receive a float.
    """
    mine = {id(optimizer): optimizer for optimizer in context.optimizers}

    def follows(rate: Value) -> bool:
        tensor = isinstance(rate, context.torch.Tensor)
        return tensor and (rate.device.type != "cpu" or not context.on_gpu)

    def schedules(kind: type) -> bool:
        return any(parent.__name__.endswith("Scheduler") for parent in kind.__mro__)

    found = []
    for scheduler in objects_of(schedules):
        given = getattr(scheduler, "optimizer", None)
        known = (mine.get(id(one)) for one in (given, *getattr(given, "__dict__", {}).values()))
        optimizer = next((one for one in known if one is not None), None)
        groups = () if optimizer is None else optimizer.param_groups
        if not all(follows(group.get("lr")) for group in groups):
            found.append(scheduler)
    return found


def _rehearsal_limits(context: Context) -> tuple[bool, tuple[str, ...]]:
    notes = [
        "without a GPU, copies between host and device are seen only where a line says "
        '.to(device), .cuda(), .cpu(), .to("cpu"), .tolist(), .item() or print(tensor)',
    ]
    if context.rehearsal.named_cuda:
        notes.append("what the script puts on a cuda device was on the CPU in this run")
    partial = context.rehearsal.used_autocast
    if partial:
        notes.append(
            "autocast for CUDA casts nothing on this machine: its casts are missing from the count"
        )
    return partial, tuple(notes)


PASS = InspectPass
