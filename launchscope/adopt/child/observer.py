"""Watches a few iterations of a script, as `graphed` watches a call: what each line does."""

from __future__ import annotations

import itertools
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from types import CodeType, FrameType, ModuleType
from typing import Any

from torch.utils._python_dispatch import _disable_current_modes

from launchscope.adopt.observation import OBSERVED, RANDOM, Cause, Holding, Observation, SeenLine
from launchscope.graphed import LineRecord, cuda
from launchscope.graphed.arguments import flatten, identity
from launchscope.graphed.lines import LineRecorder
from launchscope.graphed.optimizers import hyperparameters
from launchscope.graphed.reach import Codes, Reach, equal
from launchscope.graphed.stats import line_of_name
from launchscope.graphed.watch import Blocker, Watch, host_random_states
from launchscope.model import SourceLine
from launchscope.runner.child.facts.patching import wrap
from launchscope.runner.child.facts.plain_values import objects_of
from launchscope.runner.child.facts.source_lines import (
    is_persons,
    short_path,
    source_text,
    user_line,
)
from launchscope.runner.child.facts.torch_types import Function, Torch, Value

_FIRST = 2  # steps that make what all others find: state, gradients
_COPY = "a tensor is copied to the GPU from host memory; copy it before the step"
_MOST = 60  # iterations, of those with and without a step


class HostGpu(cuda.Gpu):
    """The CPU in the place of a GPU, which is not there."""

    type = "cpu"

    def device(self) -> int:
        return 0

    def host_random_state(self) -> Any:
        """The only generator is that of the device."""
        return super().host_random_state()[:0]


class _Lines(LineRecorder):
    """Also of the host's random numbers and of rates; only work of the GPU is an operation. Keeps
    what the frame holds in the end."""

    def __init__(self, frame: FrameType, optimizers: Mapping[int, Value]):
        super().__init__(frame.f_code, {(frame.f_code, frame.f_code.co_filename): frame.f_globals})
        self.held: dict[str, Value] = {}
        self.causes: dict[int, dict[tuple[SourceLine, str, tuple[int, ...]], Cause]] = defaultdict(
            dict
        )
        self.blockers: list[Blocker] = []
        self._called: list[CodeType] = []  # by the line
        self._optimizers = optimizers
        self._apart = self._now()

    def _now(self) -> dict[str, Any]:
        rates = hyperparameters(self._optimizers.values())
        with _disable_current_modes():
            states = host_random_states().items()
            drawn = {f"{RANDOM} {name.replace('.', ' ')}": state for name, state in states}
            return {"param_groups": rates, **drawn}

    def _on_line(self, frame: FrameType, event: str, arg: Any) -> Any:
        line, before = self._line, self._apart
        super()._on_line(frame, event, arg)
        self._apart = self._now()
        if line is not None:
            # A library may be imported on the line, with its generator.
            changed = (n for n, now in self._apart.items() if n in before and now != before[n])
            self._sets[line]["values"].update(changed)
            for label in sorted(self._sets[line]["values"]):
                self._note_change(line, label)
        self._called.clear()
        if event == "return":
            self.held = dict(frame.f_locals)
        return self._on_line

    def note_call(self, code: CodeType, space: dict[str, Any]) -> None:
        super().note_call(code, space)
        self._called += [] if code is self._code else [code]

    def _note_change(self, line: int, label: str) -> None:
        """It is where the code that the line has run names it, or else on the line itself."""
        found = line_of_name(self._called, label.replace(" ", ".").rpartition(".")[2])
        file, _, number = (found or f"{self._code.co_filename}:{line}").rpartition(":")
        why = f"draws {label}" if label.startswith(RANDOM) else f"changes `{label}`"
        self._add_cause(line, why, SourceLine(short_path(file), int(number)), label)

    def _add_cause(
        self,
        line: int,
        why: str,
        where: SourceLine,
        label: str = "",
        columns: tuple[int, ...] = (),
    ) -> None:
        file = "" if where.file == short_path(self._code.co_filename) else where.file
        cause = Cause(why, file, where.line, source_text(where) or "", label, columns)
        self.causes[line].setdefault((where, label, columns), cause)

    def count(self, what: str) -> None:
        super().count(what)
        if what == "host_reads" and self._line is not None:
            profile = sys.getprofile()
            sys.setprofile(None)  # what is called here is no code of the step
            where = user_line(sys._getframe(1))
            own = SourceLine(short_path(self._code.co_filename), self._line)
            why = self.blockers.pop()[0] if self.blockers else _COPY
            columns = self._columns(sys._getframe(1), self._line)
            self._add_cause(self._line, why, where or own, columns=columns)
            sys.setprofile(profile)

    def _columns(self, frame: FrameType | None, line: int) -> tuple[int, ...]:
        """Of the expression on the line that runs, from Python 3.11 on, if it is no function of the
        person's that does."""
        while frame is not None and not is_persons(frame.f_code.co_filename):
            frame = frame.f_back
        positions = getattr(self._code, "co_positions", None)
        if frame is None or frame.f_code is not self._code or positions is None:
            return ()
        places = itertools.islice(positions(), frame.f_lasti // 2, None)
        begin, end, first, last = next(places)
        known = begin == end == line and first is not None and last is not None
        return (first, last) if known else ()

    def note_operation(self, written: set[int], *tensors: list[Value]) -> None:
        """A copy to the GPU is work of the host, also where it need not wait."""
        self._written |= written
        host = [t.dim() for given in tensors for t in given if t.device.type != cuda.gpu.type]
        if len(host) < sum(map(len, tensors)):
            self.count("operations")
            if any(host):
                self.count("host_reads")


class StepWatch:
    """`begin` is called where an iteration begins. `trains`: an iteration without a backward has no
    step in it."""

    def __init__(self, torch: Torch, *, trains: bool):
        self._torch, self._trains = torch, trains
        self._begun = self._steps = self._observed = 0
        self._watching = ExitStack()
        self._lines: _Lines | None = None
        self._frame: FrameType | None = None
        self._seen: dict[int, SeenLine] = {}
        self._held: list[dict[str, Value]] = []
        self._optimizers: dict[int, Value] = {}  # that have made a step
        self._rates: list[dict[Any, Any]] = []
        self._names: _Names | None = None
        self._validates = False

    def install(self) -> None:
        """Until the first iteration is watched: it would be code of the step."""
        self._uncount = wrap(self._torch.autograd, "backward", self._counting)

    def _counting(self, backward: Function) -> Function:
        def counted(*args: Any, **kwargs: Any) -> Value:
            self._steps += 1
            return backward(*args, **kwargs)

        return counted

    @property
    def is_over(self) -> bool:
        return len(self._held) == OBSERVED or self._observed == _MOST

    def begin(self, frame: FrameType) -> None:
        self.end()
        steps = self._steps if self._trains else self._begun
        self._begun += 1
        if steps >= _FIRST and not self.is_over:
            self._uncount()
            self._frame, self._lines = frame, _Lines(frame, self._optimizers)
            if not cuda.gpu.available():
                self._watching.callback(setattr, cuda, "gpu", cuda.gpu)
                setattr(cuda, "gpu", HostGpu())  # noqa: B010 - as tests do
            self._watch = Watch((), self._lines._codes, self._lines)
            self._lines.blockers = self._watch.blockers
            self._without_checks()
            for ours in (_Lines.note_operation, _Lines.count):
                self._watch._calls[ours.__code__] = lambda local: None
            self._watching.enter_context(self._watch.watching())
            frame.f_trace = self._lines._on_line

    def _without_checks(self) -> None:
        """Distributions check what they are given on the host. The patch can leave that out."""
        kind = self._torch.distributions.Distribution
        checks, kind._validate_args = kind._validate_args, False
        self._watching.callback(setattr, kind, "_validate_args", checks)

        def noted(local: dict[str, Any]) -> None:
            self._validates |= checks and local["validate_args"] is None

        self._watch._calls[kind.__init__.__code__] = noted

    def end(self) -> None:
        """The iteration is over."""
        lines, frame = self._lines, self._frame
        self._watching.close()
        self._lines = self._frame = None
        if lines is None or frame is None:
            return
        self._observed += 1
        for record in lines.records():
            causes = lines.causes[record.line].values()
            self._seen[record.line] = _joined(self._seen.get(record.line), record, causes)
        held = {**frame.f_globals, **(lines.held or frame.f_locals)}
        if self._watch.backward or not self._trains:
            self._held.append(held)
        if self._names is None and self._held:
            self._names = _Names(lines._codes, self._held[0])
        self._optimizers.update(self._watch.optimizers)
        self._rates.append(hyperparameters(self._optimizers.values()))

    def result(self) -> Observation:
        return Observation(
            tuple(self._seen[line] for line in sorted(self._seen)),
            _names(self._torch, self._held),
            {} if self._names is None else self._names.leading_to(self._seen.values()),
            schedules=self._schedules(),
            validates=self._validates,
        )

    def _schedules(self) -> bool:
        """Whether a rate has changed, or a scheduler waits to change one."""
        made = self._torch.optim.lr_scheduler
        kinds = made.LRScheduler, made.ReduceLROnPlateau
        schedulers = objects_of(lambda kind: issubclass(kind, kinds))
        has_one = any(id(scheduler.optimizer) in self._optimizers for scheduler in schedulers)
        return has_one or any(rates != self._rates[0] for rates in self._rates)


def _joined(known: SeenLine | None, record: LineRecord, causes: Iterable[Cause]) -> SeenLine:
    known = known or SeenLine(record.line)
    read = {name.rpartition(".")[2] for name in record.globals} | record.closures
    attributes = record.attributes.union(known.attributes)
    return SeenLine(
        record.line,
        known.operations + record.operations,
        known.host_reads + record.host_reads,
        tuple(sorted(record.values.union(known.values))),
        tuple(sorted(record.written.union(known.written))),
        tuple(sorted((record.written | record.rebound | record.gradients).union(known.tensors))),
        tuple(sorted(read.union(known.read))),
        tuple(sorted(attributes)),
        tuple(dict.fromkeys((*known.causes, *causes))),
    )


def _names(torch: Torch, held: list[dict[str, Value]]) -> Mapping[str, Holding]:
    """What the names hold that each iteration leaves."""
    names = set(held[0]).intersection(*held) if held else set()
    return {name: _holding(torch, [space[name] for space in held]) for name in names}


class _Names:
    """Which names of a frame lead to what can be reached from it."""

    def __init__(self, codes: Codes, held: Mapping[str, Value]):
        apart: Codes = {at: {} for at in codes}  # what is global is no part of each
        # How code would name things: a list and the tensors in it have the same name.
        self._objects: dict[str, set[int]] = defaultdict(set)
        self._tensors: dict[str, set[int]] = defaultdict(set)
        self._names: dict[int, set[str]] = defaultdict(set)
        for name, value in held.items():
            if not (name.startswith("__") or isinstance(value, ModuleType | type)):
                reach = Reach(apart, [(name, value)])
                for thing, label in (*reach.containers, *reach.objects):
                    self._objects[label].add(id(thing))
                    self._names[id(thing)].add(name)
                for tensor, label in reach.tensors.values():
                    self._tensors[label].add(identity(tensor))
                    self._names[identity(tensor)].add(name)

    def leading_to(self, seen: Iterable[SeenLine]) -> dict[str, tuple[str, ...]]:
        """By each label of what was changed."""
        found: dict[str, set[str]] = defaultdict(set)
        for line in seen:
            for table, labels in ((self._objects, line.values), (self._tensors, line.tensors)):
                for label in labels:
                    found[label] |= self._holders(table, label) - {label.partition(".")[0]}
        return {label: tuple(sorted(names)) for label, names in found.items() if names}

    def _holders(self, table: dict[str, set[int]], label: str) -> set[str]:
        while label and label not in table:  # an attribute of what has a name
            label = label.rpartition(".")[0]
        return set[str]().union(*(self._names[at] for at in table.get(label, ())))


def _holding(torch: Torch, values: list[Value]) -> Holding:
    if all(isinstance(value, torch.Tensor) for value in values):
        return "graph" if any(value.grad_fn is not None for value in values) else "tensor"
    leaves: list[list[Value]] = [[] for _ in values]
    forms = [flatten(value, found) for value, found in zip(values, leaves)]
    alike = all(form == forms[0] for form in forms)
    return "fixed" if alike and all(_alike(torch, parts) for parts in zip(*leaves)) else "changing"


def _alike(torch: Torch, parts: Iterable[Value]) -> bool:
    """Tensors may differ, and so may flags, of which there are two."""
    first, *others = parts
    return all(
        equal(first, other)
        or (isinstance(first, bool) and isinstance(other, bool))
        or (isinstance(first, torch.Tensor) and isinstance(other, torch.Tensor))
        for other in others
    )
