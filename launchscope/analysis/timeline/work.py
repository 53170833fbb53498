"""A trace's launches, device work and synchronizations as arrays, sorted into iterations.

Device work belongs to the step or iteration that launched it (by correlation id), whenever it ran.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from msgspec import Struct

from launchscope.analysis.steps.iterations import (
    DATA_RANGE,
    OPTIMIZER_RANGE,
    Iterations,
    ranges_named,
)
from launchscope.analysis.timeline.intervals import Cover, latest, union_ns_by_group
from launchscope.parser import columns as c
from launchscope.parser.launches import Launches, find_launches, synchronizations
from launchscope.parser.rows import Rows
from launchscope.parser.trace import (
    Bools,
    Floats,
    Ints,
    Table,
    Trace,
    distinct,
    ints,
    is_among,
    unique,
)

# A thread with a smaller share of the launches does something else.
_THREAD_SHARE = 0.05
# The host time of an operator that launches, before the call. In 13 recorded samples (H200) and ten
# public traces (A100 to MI300X) it is 10 to 45 us per launch.
_OPERATOR_NS = 10_000


class Work(Struct, frozen=True, dict=True):
    """One process and one device of a trace. Rows of `launches` match `*_iteration` arrays."""

    trace: Trace
    iterations: Iterations
    launches: Table  # columns of Launches.calls
    activities: Table  # of the main device; `launch` is a row of `launches` or -1
    syncs: Table  # columns of `synchronizations`
    own_copy: Ints  # of each sync: the launch that it is, if it is a copy, otherwise -1
    waited: Ints  # of each sync: ns for which it waited for that work
    iteration: Ints  # of each launch, -1 none
    step: Ints  # of each launch, -1 between steps
    activity_iteration: Ints
    activity_step: Ints
    coverage_pct: float | None
    devices: int
    # A trace by itself: no untraced time shows what is usual, so that idle time which the host
    # causes in one long gap is a pause.
    alone: bool = False

    def in_optimizer(self, time: Ints) -> Bools:
        """Whether each host time lies inside an optimizer's step."""
        mine = self.optimizer_ranges
        begin, end = np.sort(ints(mine, c.START)), np.sort(ints(mine, c.END))
        # Optimizer steps follow one another: inside is where more have begun than ended.
        return np.searchsorted(begin, time, "right") > np.searchsorted(end, time, "left")

    def busy_ms(self, group: Ints) -> Floats:
        """How long the device was busy for each used iteration; `group` has that of each
        activity, as do the `activity_*` arrays."""
        start, end = ints(self.activities, c.START), ints(self.activities, c.END)
        union = union_ns_by_group(start, end, group, len(self.iterations))
        return union[self.iterations.used] / 1e6

    def last_end(self, group: Ints) -> Ints:
        """When the last device work of each iteration ended, likewise; 0 without any."""
        last = np.zeros(len(self.iterations), np.int64)
        np.maximum.at(last, group[group >= 0], ints(self.activities, c.END)[group >= 0])
        return last

    @property
    def optimizers(self) -> tuple[str, ...]:
        """Classes of the optimizers that the trace names, each once."""
        names = dict.fromkeys(self.optimizer_ranges[c.NAME])
        return tuple(name.removeprefix(OPTIMIZER_RANGE).removesuffix(".step") for name in names)

    @property
    def one_thread(self) -> bool:
        """Whether one thread makes all launches of the steps: backward has threads of its own."""
        return len(unique(ints(self.launches, c.TID)[self.step >= 0])) <= 1

    @cached_property
    def optimizer_ranges(self) -> Table:
        """The process's ranges around optimizer steps: RANGE_COLUMNS, by start."""
        return self.iterations.of_process(ranges_named(self.trace, OPTIMIZER_RANGE))

    @cached_property
    def operators(self) -> Table:
        """The process's operators, by start: OP_COLUMNS; none where no names were read."""
        ops = self.iterations.of_process(self.trace.ops)
        return ops if c.NAME in ops.columns else Rows(c.OP_COLUMNS).table()

    @cached_property
    def python_calls(self) -> Table:
        """The process's calls of Python functions and modules, by start: RANGE_COLUMNS."""
        return self.iterations.of_process(self.trace.python)

    @cached_property
    def launches_kernel(self) -> Bools:
        """Whether each launch is of one kernel, and of no graph."""
        return np.asarray(self.launches[c.KIND] == c.KERNEL, bool)

    @cached_property
    def launching(self) -> Cover:
        """When one of the threads that launch was in an operator that launches work, in a call or
        in an optimizer's step. What a thread does otherwise may be of any use. A launch in no
        operator gets the time of one: not every program records them."""
        optimizers = self.optimizer_ranges
        # An operator that ends where the next one begins is another.
        start, length, thread = self._of_threads(self.trace.ops, c.START, c.DUR, c.TID)
        outer = Cover.of(start, start + (length - 1), thread)
        launch = ints(self.launches, c.START)
        row = latest(outer.starts, outer.groups, launch, ints(self.launches, c.TID))
        inside = (row >= 0) & (launch < np.append(outer.ends, 0)[row])
        row, alone = unique(row[inside]), launch[~inside]
        return Cover.of(
            *map(
                np.concatenate,
                zip(
                    (outer.starts[row], outer.ends[row]),
                    (alone - _OPERATOR_NS, alone),
                    self._of_threads(self.trace.calls, c.START, c.END),
                    self._of_threads(ranges_named(self.trace, DATA_RANGE), c.START, c.END),
                    (ints(optimizers, c.START), ints(optimizers, c.END)),
                    strict=True,
                ),
            )
        )

    def recorded(self, begin: Ints, end: Ints) -> Floats:
        """How many operators and calls begin in each span of the threads that launch."""
        counted = sum(np.searchsorted(s, end) - np.searchsorted(s, begin) for s in self._recorded)
        return np.clip(counted, 0, None).astype(np.float64)

    @cached_property
    def _recorded(self) -> list[Ints]:
        """When operators and calls began that recording stretches. Those of other threads, which
        load data or watch, work beside them."""
        tables = (self.trace.ops, self.trace.calls)
        return [start for table in tables for start in self._of_threads(table, c.START)]

    def _of_threads(self, table: Table, *columns: str) -> tuple[Ints, ...]:
        """These columns of the table's rows that are of the process's threads that launch."""
        table = self.iterations.of_process(table)
        mine = is_among(table[c.TID], self.threads)
        every = mine.all()
        return tuple(ints(table, name) if every else ints(table, name)[mine] for name in columns)

    @cached_property
    def threads(self) -> Ints:
        """The threads that launch the work of the steps, backward's among them."""
        threads, often = np.unique(ints(self.launches, c.TID), return_counts=True)
        return threads[often >= _THREAD_SHARE * len(self.launches)]


OnWork = Callable[[Work], object]  # gets the work that a Profile is made of


def gather(
    trace: Trace, iterations: Iterations, joined: Launches | None = None, *, alone: bool = False
) -> Work:
    """Launches and device work of the steps' process, on the device that did most of it."""
    joined = joined or find_launches(trace)
    waits = synchronizations(trace, joined)
    calls, activities = joined.calls, joined.activities
    wanted = np.ones(len(calls), bool)
    if iterations.pid is not None:
        wanted = ints(calls, c.PID) == iterations.pid
        waits = waits[waits[c.PID] == iterations.pid]
        mine = np.isin(ints(activities, c.PID), (iterations.pid, -1))
        activities = activities if mine.all() else activities[mine]
    numbers, device = distinct(ints(activities, c.DEVICE))
    if len(numbers) > 1:
        busiest = np.bincount(device, ints(activities, c.DUR)).argmax()
        activities = activities[device == busiest]
        wanted &= np.isin(np.arange(len(calls)), ints(activities, c.LAUNCH))
    row = np.full(len(calls) + 1, -1, np.int64)  # the last entry answers for -1, no launch
    row[:-1][wanted] = np.arange(int(wanted.sum()))
    launches = calls
    if not wanted.all():
        launches = calls[wanted]
        activities = activities.assign(**{c.LAUNCH: row[activities[c.LAUNCH]]})
    iteration = iterations.of(ints(launches, c.START))
    step = iterations.step_of(ints(launches, c.START))
    launch = ints(activities, c.LAUNCH)
    # Over the whole trace device work counts whether its launch was recorded or not.
    orphan = 0 if iterations.whole else -1
    return Work(
        trace,
        iterations,
        launches,
        activities,
        waits,
        row[ints(waits, c.LAUNCH)],
        _waited(launches, waits),
        iteration=iteration,
        step=step,
        activity_iteration=np.append(iteration, orphan)[launch],
        activity_step=np.append(step, orphan)[launch],
        coverage_pct=joined.coverage_pct,
        devices=len(numbers),
        alone=alone,
    )


def _waited(launches: Table, syncs: Table) -> Ints:
    """How long each synchronization waited for what was launched before it."""
    start, end = ints(syncs, c.START), ints(syncs, c.END)
    reach = np.maximum.accumulate(np.append(0, ints(launches, c.LAST)))
    # Launched before the call: a copy's own launch starts with it and is not counted.
    drained = reach[np.searchsorted(ints(launches, c.START), start, side="left")]
    waited: Ints = np.maximum(np.minimum(drained, end) - start, 0)
    return waited
