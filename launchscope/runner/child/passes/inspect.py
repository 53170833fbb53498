"""Inspects the ops of a few steps, and of what runs before each of them: shapes, blockers with
the user's line, state."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from launchscope.model import (
    BetweenRecord,
    BlockerRecord,
    Cause,
    InspectResult,
    LibraryLine,
    OpCount,
    SourceLine,
    StepPart,
    TensorShape,
)
from launchscope.runner.child.capture.causes import (
    Hyperparameters,
    causes_between,
    hyperparameters,
)
from launchscope.runner.child.capture.state import state_values
from launchscope.runner.child.capture.step_trace import StepRecorder
from launchscope.runner.child.enter.machine import unused_gpu
from launchscope.runner.child.events.compile_hooks import graph_breaks
from launchscope.runner.child.events.step_pattern import PREVIOUS_END
from launchscope.runner.child.facts import step_ops
from launchscope.runner.child.facts.blocking import RNG
from launchscope.runner.child.facts.plain_values import objects_below, values_of
from launchscope.runner.child.facts.source_lines import (
    code_place,
    note_library_loop,
    package_of,
    source_text,
    user_line,
)
from launchscope.runner.child.facts.step_ops import MOST_OPS_KEPT, StepStream, weak_storage
from launchscope.runner.child.facts.torch_modes import leave_modes
from launchscope.runner.child.facts.torch_types import (
    Optimizer,
    ParamGroup,
    StorageRef,
    Tensor,
    Value,
)
from launchscope.runner.child.passes import Context, Pass
from launchscope.runner.child.rehearsal import host_copies


@dataclass
class _Step:
    """A step, and what ran before it."""

    stream: StepStream
    between: BetweenRecord
    begun: SourceLine | None
    opening: tuple[TensorShape, ...]  # what the forward that opens it gets
    forwards: int  # first those before it, then its own
    recorder: StepRecorder  # of what it gets from outside
    hyper: Hyperparameters


class InspectPass(Pass[InspectResult]):
    """Dispatch and function modes around each step, and between steps; slow, and never timed."""

    name = "inspect"

    _current: StepStream  # of the step, or of what runs between two
    _before: StepStream  # of what ran before the step

    def start(self, context: Context) -> None:
        super().start(context)
        context.hooks.wants_lines = True
        self._watching = contextlib.ExitStack()
        self._steps: list[_Step] = []
        self._step: _Step | None = None  # that runs now
        self._host = context.rehearsal.host
        self._host.devices_named = context.rehearsal.named_device
        self._reading_nodes = context.rehearsal.reading_nodes.copy()
        context.rehearsal.reading_nodes.clear()
        self._rates = [plain_rates(context)]
        self._graph_breaks = graph_breaks()  # the modes of this pass leave compiled code eager
        context.hooks.leave_fork = self._leave_fork
        self._watch_between()

    def begin(self) -> None:
        self._unwatch()
        context, before = self.context, self._current
        if self._step is not None:  # that was broken off, or had forwards that belong to none
            before.add_earlier(self._before)
        self._before, between = before, _between_record(before)
        stream = StepStream(self._backward_line)
        stream.names_waits = context.on_gpu
        begun, opening = user_line(sys._getframe(1)), context.step_inputs()
        traces = [step.recorder.trace for step in self._steps]
        others = *([traces[0], traces[-1]] if traces else [None, None]), known_storages(context)
        recorder = StepRecorder(context.torch, context.hooks, self._would_be_on_gpu, *others)
        hyper = hyperparameters(context.optimizers)
        self._step = _Step(stream, between, begun, opening, self._forwards(), recorder, hyper)
        self._current = stream
        self._watch()

    def part_ended(self, part: StepPart) -> None:
        self._current.part = "backward" if part == "forward" else "optimizer"

    def end(self) -> bool:
        self._unwatch()
        step, self._step = self._step, None
        stream = self._current
        if step is None or self._in_library_loop(step):
            self._watch_between()
            return False  # this step's lines are all one: look at another one
        step.forwards = self._forwards() - step.forwards
        stream.add_reads(self._reading_nodes - self.context.rehearsal.reading_nodes)
        self._steps.append(step)
        self._rates.append(plain_rates(self.context))
        if len(self._steps) >= self.wanted:
            return True
        self._watch_between()
        return False

    def _forwards(self) -> int:
        """So far, without one that is under way: it may begin a step, and end the one before."""
        hooks = self.context.hooks
        return hooks.forwards - hooks.in_forward

    def _backward_line(self) -> SourceLine | None:
        return self.context.hooks.backward_where

    def _watch_between(self) -> None:
        self._current = StepStream(self._backward_line, MOST_OPS_KEPT)
        self._watch()

    def _watch(self) -> None:
        """Record into the current stream from now on."""
        context, stream, host = self.context, self._current, self._host
        torch, hooks = context.torch, context.hooks
        on_device = context.on_device if context.on_gpu else self._would_be_on_gpu
        enter = self._watching.enter_context
        enter(step_ops.recording_syncs(torch, stream))
        if not context.on_gpu:
            host.step_counts = host_copies.host_step_counts(torch, context.optimizers)
            enter(host_copies.host_copies(torch, stream, on_device, host))
        enter(step_ops.make_dispatch_mode(torch, stream, on_device, host))
        if self._step is not None and not context.on_gpu:  # on one, `verify` compares with a graph
            enter(self._step.recorder.mode())
        hooks.around_compiled = self._in_compiled
        hooks.around_traced = self._paused
        self._watching.callback(setattr, hooks, "around_compiled", None)
        self._watching.callback(setattr, hooks, "around_traced", contextlib.nullcontext)

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
        self._unwatch()
        try:
            yield
        finally:
            self._watch()

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

    def failed(self, error: BaseException) -> None:
        self._unwatch()

    def _in_library_loop(self, step: _Step) -> bool:
        """Whether the step began and ended in a library below one line of the person's, not known
        so far."""
        line, library = code_place(sys._getframe(2))
        boundary = self.context.boundary
        if line is None or library is None or line != step.begun or boundary.scope != "full_step":
            return False
        if boundary.period[0] == PREVIOUS_END:  # both are the line of the optimizer's step
            return False
        return note_library_loop(line)

    def finish(self, complete: bool) -> InspectResult | None:
        self._unwatch()
        hooks = self.context.hooks
        hooks.wants_lines, hooks.leave_fork = False, lambda: None
        if not self._steps:
            return None
        context, steps = self.context, self._steps
        streams = [step.stream for step in steps]
        known, last = known_storages(context), streams[-1]
        context.written_storages = set().union(*(stream.written for stream in streams))
        read = _inputs_of(last, known)
        groups = [group for optimizer in context.optimizers for group in _uncapturable(optimizer)]
        for remark in context.rehearsal.remarks:
            context.folder.emit(remark)
        partial, notes = (False, ()) if context.on_gpu else _rehearsal_limits(context, steps)
        return InspectResult(
            steps=len(steps),
            signatures=tuple(stream.signature for stream in streams),
            inputs=tuple(_input_shapes(stream, known) for stream in streams),
            device_ops=tuple(stream.device_ops for stream in streams),
            blockers=_blockers(streams),
            ops=tuple(last.ops),
            scheduler_live=len(set(map(tuple, self._rates))) > 1 or bool(live_schedulers(context)),
            scheduler_where=context.hooks.scheduler_where,
            optimizer_classes=tuple(type(o).__name__ for o in context.optimizers),
            uncapturable_tensors=sum(len(group["params"]) for group in groups),
            uncapturable_groups=len(groups),
            input_tensors=len(read),
            input_bytes=sum(last.read_bytes[ref] for ref in read),
            forwards=tuple(step.forwards for step in steps),
            step_ops=_of_steps(streams),
            graph_breaks=self._graph_breaks,
            skipped_graphs=tuple(hooks.skipped_graphs) if context.on_gpu else (),
            copies=() if context.on_gpu else tuple(stream.copies for stream in streams),
            between=tuple(step.between for step in steps),
            partial=partial,
            unused_gpu=None if context.on_gpu else unused_gpu(context.torch),
            openings=tuple(step.opening for step in steps),
            causes=() if context.on_gpu else _frozen(steps, counts_on_host=bool(groups)),
            notes=notes,
        )


def _frozen(steps: Sequence[_Step], *, counts_on_host: bool) -> tuple[Cause, ...]:
    """What a graph of the first step would get wrong in others that run the same ops."""
    (first, *others), found = steps, list[Cause]()
    for step in others:
        step.recorder.trace.settle()
        traces = first.recorder.trace, step.recorder.trace
        found += causes_between(*traces, first.hyper, step.hyper, counts_on_host=counts_on_host)
    return tuple(dict.fromkeys(cause for cause in found if cause.kind != "branch"))


def _blockers(streams: Sequence[StepStream]) -> tuple[BlockerRecord, ...]:
    """With the most that was seen in one step."""
    most: Counter[BlockerRecord] = Counter()
    for stream in streams:
        most |= stream.blockers
    by_step = (tuple(stream.blockers[key] for stream in streams) for key in most)
    return tuple(
        replace(record, by_step=counts) for record, counts in zip(records_of(most), by_step)
    )


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
    with contextlib.suppress(Exception):  # a distribution may have another name than its package
        from importlib import metadata  # slow to import

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


def _inputs_of(stream: StepStream, known: set[StorageRef]) -> list[StorageRef]:
    """What the step reads and does not write, beside what belongs to the model."""
    return [ref for ref in stream.read if ref not in known and ref not in stream.written]


def _input_shapes(stream: StepStream, known: set[StorageRef]) -> tuple[TensorShape, ...]:
    """In an order that does not depend on which one the step reads first."""
    shapes = [stream.read[ref] for ref in _inputs_of(stream, known)]
    return tuple(sorted(shapes, key=lambda shape: (len(shape.dims), shape.dtype, shape.dims)))


def plain_rates(context: Context) -> list[float]:
    """Learning rates that a capture freezes: kernels receive a number, and a tensor on the host,
    by value."""
    groups = (group for optimizer in context.optimizers for group in optimizer.param_groups)
    rates = (group.get("lr") for group in groups)
    return [float(rate) for rate in rates if rate is not None and _is_frozen(context, rate)]


def _is_frozen(context: Context, rate: Value) -> bool:
    is_tensor = isinstance(rate, context.torch.Tensor)
    return not is_tensor or (context.on_gpu and rate.device.type == "cpu")


def live_schedulers(context: Context) -> list[Value]:
    """Schedulers that still change a learning rate of this step's optimizers that a graph freezes.
    Some libraries (Fabric, accelerate) give them an object that holds the optimizer."""
    if not plain_rates(context):
        return []
    mine = {id(optimizer) for optimizer in context.optimizers}

    def is_mine(given: Value) -> bool:
        return not mine.isdisjoint(map(id, (given, *getattr(given, "__dict__", {}).values())))

    known = objects_below(context.torch.optim.lr_scheduler.LRScheduler)
    return [one for one in known if is_mine(getattr(one, "optimizer", None))]


def _uncapturable(optimizer: Optimizer) -> list[ParamGroup]:
    """The groups that a capture makes `capturable`, at the price of more kernels."""
    groups = optimizer.param_groups
    return [one for one in groups if one.get("capturable") is False and not one.get("fused")]


def _rehearsal_limits(context: Context, steps: Sequence[_Step]) -> tuple[bool, tuple[str, ...]]:
    lines = context.rehearsal.optimizer_lines
    notes = [
        f"{type(one).__name__} at {lines.get(id(one))} has no capturable=True, so PyTorch refuses "
        "a capture of its step()"
        for one in filter(_uncapturable, context.optimizers)
    ]
    between = (blocker for step in steps for blocker in step.between.blockers)
    notes += dict.fromkeys(
        f"the generator of the script at {one.where} is used between steps: a graph that contains "
        "that line needs graph.register_generator_state(generator)"
        for one in between
        if one.category == RNG
    )
    notes += [
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
