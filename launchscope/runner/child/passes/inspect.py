"""Inspects the ops of a few steps: shapes, blockers with the user's line, state."""

from __future__ import annotations

import contextlib
import linecache
import sys
from dataclasses import replace
from types import FrameType

from launchscope.model import (
    BlockerRecord,
    HostInput,
    InspectResult,
    SourceLine,
    StepPart,
    TensorShape,
)
from launchscope.runner.child.capture.state import state_values
from launchscope.runner.child.context import Context
from launchscope.runner.child.ops.host_copies import host_step_counts, make_host_copy_mode
from launchscope.runner.child.ops.host_inputs import host_inputs
from launchscope.runner.child.ops.step_ops import (
    HostTensors,
    StepStream,
    SyncWatch,
    make_dispatch_mode,
    make_function_mode,
    weak_storage,
)
from launchscope.runner.child.passes import Pass
from launchscope.runner.child.source_lines import note_library_loop, user_line
from launchscope.runner.child.torch_types import Mode, ParamGroup, StorageRef, Tensor, Value


class InspectPass(Pass[InspectResult]):
    """Dispatch and function modes around each step; slow, and never timed."""

    name = "inspect"
    label = "inspecting"
    result_type = InspectResult
    order = 30
    fewest_steps = 2
    on_cpu = True
    runs_eagerly = True

    def start(self, context: Context) -> None:
        super().start(context)
        self._wanted = self.steps(context.schedule)
        context.hooks.wants_lines = True
        self._streams: list[StepStream] = []
        self._open: list[Mode] = []
        self._host_inputs: tuple[HostInput, ...] | None = None
        self._host = HostTensors(devices_named=context.rehearsal.named_device)
        self._forwards: list[int] = []

    def begin(self) -> None:
        self._leave()
        self._begun = user_line(sys._getframe(1))
        context = self.context
        torch, hooks, host = context.torch, context.hooks, self._host
        stream = StepStream(hooks)
        on_device = _on_gpu if context.on_gpu else self._would_be_on_gpu
        watch = SyncWatch(torch, stream)
        modes = [
            make_function_mode(torch, stream),
            make_dispatch_mode(torch, stream, on_device, host),
        ]
        if not context.on_gpu:
            host.step_counts = host_step_counts(torch, context.optimizers)
            modes.append(make_host_copy_mode(torch, stream, on_device, host))
        watch.start()
        for mode in modes:
            mode.__enter__()
        self._current = stream
        self._forwards_before = hooks.forwards - bool(hooks.depth)  # its own may be under way
        self._open = [watch, *modes]

    def _would_be_on_gpu(self, tensor: Tensor) -> bool:
        """In a rehearsal: everything but the work of data loaders and what stays on the host."""
        return not self.context.hooks.in_fetch and self._host.on_device(tensor)

    def part_ended(self, part: StepPart) -> None:
        self._current.part = "backward" if part == "forward" else "optimizer"

    def _leave(self) -> None:
        if self._open:
            watch, *modes = self._open
            for mode in reversed(modes):
                mode.__exit__(None, None, None)
            watch.stop()
            self._open = []

    def end(self) -> bool:
        self._leave()
        if self._in_library_loop():
            return False  # this step's lines are all one: look at another one
        self._streams.append(self._current)
        # The forward that begins the next step may be what ends this one.
        hooks = self.context.hooks
        forwards = hooks.forwards - bool(hooks.depth)
        self._forwards.append(forwards - self._forwards_before)
        with contextlib.suppress(Exception):  # the script's own classes may raise anything
            if self._host_inputs is None:
                self._host_inputs = _host_inputs(self.context, self._current, sys._getframe(1))
        return len(self._streams) >= self._wanted

    def _in_library_loop(self) -> bool:
        """Whether the step began and ended below one line of the person's, not known so far."""
        line = user_line(sys._getframe(2))
        trains = self.context.boundary.scope == "full_step"
        whole = trains and line is not None and line == self._begun
        return whole and line is not None and note_library_loop(line)

    def finish(self, complete: bool) -> InspectResult | None:
        self._leave()
        self.context.hooks.wants_lines = False
        if not self._streams:
            return None
        context = self.context
        known = known_storages(context)
        last = self._streams[-1]
        context.written_storages = set().union(*(s.written for s in self._streams))
        inputs = [_inputs_of(stream, known) for stream in self._streams]
        read = [ref for ref in last.read if ref not in known and ref not in last.written]
        groups = _uncapturable(context)
        partial, notes = _rehearsal_limits(context) if not context.on_gpu else (False, ())
        return InspectResult(
            steps=len(self._streams),
            signatures=tuple(stream.signature for stream in self._streams),
            inputs=tuple(inputs),
            device_ops=tuple(stream.device_ops for stream in self._streams),
            blockers=_merge(self._streams),
            ops=tuple(last.ops),
            scheduler_live=bool(live_schedulers(context)),
            scheduler_where=context.hooks.scheduler_where,
            optimizer_classes=tuple(type(o).__name__ for o in context.optimizers),
            uncapturable_tensors=sum(len(group["params"]) for group in groups),
            uncapturable_groups=len(groups),
            host_inputs=self._host_inputs or (),
            rng_used=any(stream.rng_used for stream in self._streams),
            input_tensors=len(read),
            input_bytes=sum(last.read_bytes[ref] for ref in read),
            forwards=tuple(self._forwards),
            partial=partial,
            notes=notes,
        )


def _on_gpu(tensor: Tensor) -> bool:
    return bool(tensor.device.type == "cuda")


def _merge(streams: list[StepStream]) -> tuple[BlockerRecord, ...]:
    """Every blocker of any step, in order of appearance, with the most seen in one step."""
    merged: dict[tuple[str, str, SourceLine | None, StepPart], BlockerRecord] = {}
    for stream in streams:
        for record in stream.records():
            key = (record.op, record.category, record.where, record.part)
            if key not in merged or merged[key].count < record.count:
                merged[key] = record
    return tuple(replace(r, code=_source_of(r.where)) for r in merged.values())


def _source_of(where: SourceLine | None) -> str | None:
    return None if where is None else linecache.getline(where.file, where.line).strip() or None


def known_storages(context: Context) -> set[StorageRef]:
    """Parameters, buffers, gradients and optimizer state: read by a step, not its inputs."""
    known = set()
    for value, _ in state_values(context.modules, context.optimizers):
        for tensor in value if isinstance(value, list | tuple) else (value,):  # as LBFGS keeps them
            if isinstance(tensor, context.torch.Tensor):
                known.add(weak_storage(tensor))
    return known - {None}


def _inputs_of(stream: StepStream, known: set[StorageRef]) -> tuple[TensorShape, ...]:
    """In an order that does not depend on which one the step reads first."""
    shapes = [
        shape for ref, shape in stream.read.items() if not (ref in known or ref in stream.written)
    ]
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


def _uncapturable(context: Context) -> list[ParamGroup]:
    """Parameter groups that a capture makes `capturable`, at the price of more kernels."""
    groups = [group for optimizer in context.optimizers for group in optimizer.param_groups]
    return [g for g in groups if g.get("capturable") is False and not g.get("fused")]


def live_schedulers(context: Context) -> list[Value]:
    """Schedulers that still change a learning rate of this step's optimizers that a graph freezes.

    Those of a library of its own (timm's) are known by name. A tensor on the host is handed to
    kernels by value, as a float is.
    """
    import gc

    base = context.torch.optim.lr_scheduler.LRScheduler
    mine = {id(optimizer): optimizer for optimizer in context.optimizers}
    kinds: dict[type, bool] = {}

    def schedules(kind: type) -> bool:
        if kind not in kinds:
            named = any(parent.__name__.endswith("Scheduler") for parent in kind.__mro__)
            kinds[kind] = issubclass(kind, base) or named
        return kinds[kind]

    def follows(rate: Value) -> bool:
        tensor = isinstance(rate, context.torch.Tensor)
        return tensor and (rate.device.type != "cpu" or not context.on_gpu)

    found = []
    for entry in gc.get_objects():
        if not schedules(type(entry)):
            continue
        optimizer = mine.get(id(getattr(entry, "__dict__", {}).get("optimizer")))
        if optimizer and not all(follows(group.get("lr")) for group in optimizer.param_groups):
            found.append(entry)
    return found


def _rehearsal_limits(context: Context) -> tuple[bool, tuple[str, ...]]:
    notes = [
        "copies from the host to the device are not seen without a GPU, and copies to the host "
        'only where a line says .cpu(), .to("cpu"), .tolist() or .item()',
    ]
    if context.rehearsal.named_cuda:
        notes.append("what the script puts on a cuda device was on the CPU in this run")
    partial = context.rehearsal.used_autocast or context.rehearsal.used_grad_scaler
    if partial:
        notes.append(
            "autocast and GradScaler do nothing on this machine: "
            "their casts and checks are missing from the count"
        )
    return partial, tuple(notes)


PASS = InspectPass
