"""What a step is in a trace that somebody else recorded, and which of its steps are whole."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from launchscope.analysis.steps.iterations import (
    DATA_RANGE,
    OPTIMIZER_RANGE,
    STEP_MARKS,
    Iterations,
    before_calibration,
    most_frequent,
    ranges_named,
    whole_span,
)
from launchscope.analysis.steps.period import MIN_DEVICE, MIN_STEPS, find_period
from launchscope.errors import InputError
from launchscope.model import StepBoundary
from launchscope.parser import columns as c
from launchscope.parser.launches import Launches
from launchscope.parser.trace import (
    Bools,
    Ints,
    Table,
    Trace,
    distinct,
    ints,
    is_among,
    median_of,
    unique,
    where,
)
from launchscope.wording import plural

# Ranges that are steps where most of the device work was launched inside them, and how many of them
# there have to be. A serving engine is often recorded for one step only: vLLM and xDiT, SGLang,
# TensorRT-LLM. Of Lightning and hand-written loops ("Iteration 3", "train_step") one could be the
# whole loop.
_FRAMEWORK_MARKS = {
    r"execute_(?:model|\d+|context|diffusion)": 1,
    r"step\[": 1,
    r"(?:\[Executor\] )?_?forward_step": 1,
    r"\[pl\]\[profile\]run_training_batch": MIN_STEPS,
    r"\[pl\]\[profile\].*\.(?:training|validation|test|predict)_step": MIN_STEPS,
    r"(?i:iteration|iter|step|train_step|training_step|train_batch|inference_step|decode_step"
    r"|denoising_step)(?:[\W_]*\d+)?$": MIN_STEPS,
}
# Calls that cannot go without device work, unless a stream is being captured.
_ALWAYS_LAUNCH = re.compile(r"Launch(?:Cooperative)?Kernel|GraphLaunch")
_CAPTURE, _CAPTURED = "StreamBeginCapture", "StreamEndCapture"
# A thread with a smaller share of the launches may have ended long before the trace did.
_THREAD_SHARE = 0.05


class Steps(Struct, frozen=True):
    iterations: Iterations
    boundary: StepBoundary
    notes: tuple[str, ...] = ()
    # Launch calls of the used steps; of the trace where nothing marks them, or most lost work.
    calls: int = 0
    lost: int = 0  # those without device work
    captured: bool = False  # whether a stream was captured among them
    captured_launches: int | None = None  # of the process's smallest capture


def steps_of(
    trace: Trace, launches: Launches, step_from: str = "auto", step_range: str | None = None
) -> Steps:
    """The steps of a trace; InputError when those asked for are not in it.

    `step_range` names the ranges that are steps, whole or by their beginning. Otherwise `step_from`
    decides. auto: marks of a profiler, else of a framework, else the period of the launches, else
    the whole span. marker: only marks. optimizer: from one end of an optimizer step to the next.
    none: the whole span.
    """
    if step_range is not None:
        return _named(trace, launches, step_range)
    if step_from == "none":
        return _whole(trace, "every figure is a total over the whole span, taken as one step")
    if step_from == "optimizer":
        return _between_optimizers(trace)
    processes = set(ints(launches.calls, c.PID).tolist())
    for prefix in STEP_MARKS:
        marks = ranges_named(trace, prefix)
        found = _from_ranges(trace, launches, marks, prefix.rstrip("#*"))
        # A merged file may hold marks of a process that launches nothing.
        if found is not None and (not processes or found.iterations.pid in processes):
            return found
    for pattern, least in _FRAMEWORK_MARKS.items():
        marks = trace.ranges[where(trace.ranges[c.NAME], re.compile(pattern).match)]
        if len(marks) < least:
            continue
        begins = re.match(pattern, next(iter(marks[c.NAME])))
        name = begins[0].rstrip("0123456789 _#[") if begins else pattern
        found = _from_ranges(trace, launches, marks, name)
        if found is not None and _covers(found.iterations, launches):
            return found
    if step_from == "marker":
        raise InputError(
            "the trace has no step marks",
            hint="--step-range NAME takes other ranges, --step-from auto looks for a period",
        )
    return _repeating(trace, launches) or _whole(
        trace,
        "the trace has no step that could be found: every figure is a total over its whole span, "
        "taken as one step",
    )


def _named(trace: Trace, launches: Launches, name: str) -> Steps:
    exact = trace.ranges[trace.ranges[c.NAME] == name]
    chosen = exact if len(exact) else ranges_named(trace, name)
    found = _from_ranges(trace, launches, chosen, name)
    if found is None:
        often = Counter(re.sub(r"#.*$", "", text) for text in trace.ranges[c.NAME])
        known = [text for text, _ in often.most_common(5)]
        frequent = f"the most frequent ranges: {', '.join(known)}"
        raise InputError(
            f"the trace has no range named {name}",
            hint=frequent if len(known) else "it has no ranges at all",
        )
    return found


def _from_ranges(trace: Trace, launches: Launches, ranges: Table, name: str) -> Steps | None:
    """Steps that are ranges of one thread; nested ones of the same name count once. The last ones
    that launch nothing do not: a recording may end where a step has just begun."""
    if not len(ranges):
        return None
    pid, tid = _main_thread(ranges, launches)
    steps = ranges[(ranges[c.PID] == pid) & (ranges[c.TID] == tid)]
    steps = steps[np.lexsort((-ints(steps, c.END), ints(steps, c.START)))]
    steps = before_calibration(trace, steps)
    begin, end = ints(steps, c.START), ints(steps, c.END)
    if not len(begin):
        return None
    outer = begin >= np.append(begin[0], np.maximum.accumulate(end)[:-1])
    begin, end = begin[outer], end[outer]
    notes: tuple[str, ...] = ()
    # Those count whose device work or whose calls were lost.
    launched = where(trace.calls[c.NAME], _ALWAYS_LAUNCH.search)
    launched[launches.row] = True
    starts = ints(trace.calls, c.START)[launched & (trace.calls[c.PID] == pid)]
    starts = np.sort(np.append(starts, _orphans(launches, pid)))
    filled = np.searchsorted(starts, end) > np.searchsorted(starts, begin)
    whole = int(np.flatnonzero(filled).max(initial=-1)) + 1
    if 0 < whole < len(begin):
        empty = len(begin) - whole
        which = "step" if empty == 1 else f"{empty} steps"
        does = "does" if empty == 1 else "do"
        notes = (f"the last {which} launched nothing and {does} not count",)
        begin, end = begin[:whole], end[:whole]
    if len(begin) > 1:
        begin, end = _without_data(trace, starts, begin, end, pid, tid)
    boundary = StepBoundary("marker", ("range",), (name,), "full_step")
    return Steps(Iterations.between(begin, end, pid), boundary, notes)


def _without_data(
    trace: Trace, launched: Ints, begin: Ints, end: Ints, pid: int, tid: int
) -> tuple[Ints, Ints]:
    """Begins and ends of these steps of a thread without the data that they load before or after
    all of their launches: `prof.step()` in a loop's body marks both."""
    loads = ranges_named(trace, DATA_RANGE)
    loads = loads[(ints(loads, c.PID) == pid) & (ints(loads, c.TID) == tid)]
    loading, loaded = ints(loads, c.START), np.sort(ints(loads, c.END))
    never = np.iinfo(np.int64).max
    first = np.append(launched, never)[np.searchsorted(launched, begin)]
    last = np.append(-1, launched)[np.searchsorted(launched, end)]
    filled = (first < end) & (last >= begin)
    ready = np.append(0, loaded)[np.searchsorted(loaded, first, "right")]
    left = np.append(loading, never)[np.searchsorted(loading, last)]
    begins, ends = np.maximum(begin, ready), np.minimum(end, left)
    return np.where(filled, begins, begin), np.where(filled, ends, end)


def _covers(iterations: Iterations, launches: Launches) -> bool:
    """Whether most of the device time of the process was launched in its steps."""
    time, mine = _device_ns(launches), ints(launches.calls, c.PID) == iterations.pid
    inside = iterations.step_of(ints(launches.calls, c.START)) >= 0
    return float(time[inside & mine].sum()) >= MIN_DEVICE * float(time[mine].sum())


def _device_ns(launches: Launches) -> Ints:
    """The summed durations of what each launch started."""
    launch = ints(launches.activities, c.LAUNCH)
    known, time = launch >= 0, ints(launches.activities, c.DUR)
    return np.bincount(launch[known], time[known], minlength=len(launches.calls)).astype(np.int64)


def _main_thread(ranges: Table, launches: Launches) -> tuple[int, int]:
    """Process and thread with the most of these ranges, of those threads that launch, or else of
    the processes that do; of the process with the most device time, if it has any."""
    often = Counter(zip(ints(ranges, c.PID).tolist(), ints(ranges, c.TID).tolist()))
    pid, tid = ints(launches.calls, c.PID), ints(launches.calls, c.TID)
    called = {process: set(tid[pid == process].tolist()) for process in unique(pid).tolist()}
    launching = [(p, t) for p, t in often if t in called.get(p, ())]
    launching = launching or [(p, t) for p, t in often if p in called]
    busiest = _busiest(launches) if called else None
    return max(sorted(launching or often), key=lambda found: (found[0] == busiest, often[found]))


def _busiest(launches: Launches) -> int:
    """The process that launched most of the device time, and of equal ones most of the work."""
    processes, whose = distinct(ints(launches.calls, c.PID))
    time, often = np.bincount(whose, _device_ns(launches)), np.bincount(whose)
    return int(processes[np.lexsort((-often, -time))[0]])


def _between_optimizers(trace: Trace) -> Steps:
    found = ranges_named(trace, OPTIMIZER_RANGE)
    if not len(found):
        raise InputError(
            "the trace has no optimizer steps",
            hint="--step-from auto looks for marks and for a period of the launches",
        )
    pid = most_frequent(ints(found, c.PID))
    end = np.sort(ints(found[found[c.PID] == pid], c.END))
    calls = trace.calls[trace.calls[c.PID] == pid]
    first = int(ints(calls, c.START).min()) if len(calls) else int(end[0])
    begin = np.concatenate(([min(first, int(end[0]))], end[:-1]))
    names = dict.fromkeys(name.removeprefix(OPTIMIZER_RANGE) for name in found[c.NAME])
    boundary = StepBoundary("optimizer", ("optimizer",), tuple(names)[:3], "full_step")
    return Steps(Iterations.between(begin, end, pid), boundary)


def _repeating(trace: Trace, launches: Launches) -> Steps | None:
    """Steps from the period of what the busiest process launches. A step ends with its optimizer,
    where the trace names one."""
    calls = launches.calls
    if not len(calls):
        return None
    pid = _busiest(launches)
    rows = np.flatnonzero(ints(calls, c.PID) == pid)
    start, end = ints(calls, c.START)[rows], ints(calls, c.END)[rows]
    gap = np.concatenate(([0], start[1:] - np.maximum.accumulate(end)[:-1]))
    optimizers = ranges_named(trace, OPTIMIZER_RANGE)
    stepped = np.sort(ints(optimizers, c.END)[ints(optimizers, c.PID) == pid])
    behind = np.diff(np.searchsorted(stepped, start), prepend=0) > 0
    found = find_period(_codes(launches)[rows], gap, _device_ns(launches)[rows], behind)
    if found is None:
        return None
    # Of layers, or of the parts of a sequence, several lie between two optimizer steps.
    row = np.searchsorted(stepped, start[found.starts])
    between = np.bincount(row, minlength=len(stepped))[1 : len(stepped)]
    if len(stepped) > MIN_STEPS and median_of(between) > 1:
        return _between_optimizers(trace)
    last = found.starts + found.length - 1
    iterations = Iterations.between(start[found.starts], end[last], pid, found.follows)
    covered = 100.0 * found.length * len(found.starts) / len(rows)
    note = (
        f"nothing marks a step in the trace: a step is {plural(found.length, 'launch')}, copies "
        f"and memsets included, repeated {len(found.starts):,} times ({covered:.0f} % of all)"
    )
    boundary = StepBoundary("launches", (), (), "full_step", launches=found.length)
    return Steps(iterations, boundary, (note,))


def _codes(launches: Launches) -> Ints:
    """One number per launch for what it starts: the name of its first device activity."""
    activities = launches.activities
    known = ints(activities, c.LAUNCH) >= 0
    launch = ints(activities, c.LAUNCH)[known]
    code = np.zeros(len(launches.calls), np.int64)
    # Activities are by start: written backwards, the first one of a launch stays.
    code[launch[::-1]] = activities[c.NAME].codes[known][::-1] + 1
    return code


def _whole(trace: Trace, note: str) -> Steps:
    span = whole_span(trace)
    if span is None:
        raise InputError(
            "the trace holds no device work and no CUDA calls",
            hint="record it on a machine with a GPU: ProfilerActivity.CUDA, or nsys --trace cuda",
        )
    return Steps(span, StepBoundary("none", (), (), "full_step"), (note,))


def whole_steps(trace: Trace, joined: Launches, steps: Steps) -> Steps:
    """The steps without those that are known to lack work, and a note that counts them.

    The profiler or the file lost the work of a launch without any, and the launch of work without
    one. Kineto writes one thread after the other, so only steps before the first thread's end count
    in a cut file: InputError if none. If every step lost work, as when each captures a graph, all
    stay.
    """
    windows = steps.iterations
    mine = np.ones(len(trace.calls), np.bool_)
    if windows.pid is not None:
        mine = ints(trace.calls, c.PID) == windows.pid
    lost = ints(trace.calls, c.START)[mine & _lost(trace, joined)]
    partial = np.zeros(len(windows), np.bool_)
    row = windows.of(np.append(lost, _orphans(joined, windows.pid)))
    partial[row[row >= 0]] = True
    # When the iteration after such a step began on the GPU is unknown, too.
    partial[1:] |= partial[:-1].copy()
    if trace.damage.cut and not windows.whole:
        partial |= windows.end > _recorded_until(joined, windows.pid)
    notes = list(steps.notes)
    if len(lost):
        notes.append(
            f"the trace has no device work for {plural(len(lost), 'launch call')}: it was lost, or "
            "it was captured into a graph"
        )
    left = windows.used[~partial[windows.used]]
    if not len(left) and trace.damage.cut:
        hint = "--step-from none reports on all that is there"
        raise InputError("no step of the trace is whole", hint=hint)
    left = left if len(left) else windows.used
    if len(left) < len(windows.used):
        notes.append(
            f"only {len(left):,} of {plural(len(windows.used), 'step')} could be used: the trace "
            "lacks a part of the others"
        )
    captures = ints(trace.calls, c.START)[
        mine & where(trace.calls[c.NAME], lambda name: _CAPTURE in name)
    ]
    smallest = _smallest_capture(trace.calls[mine], lost)
    launched = ints(joined.calls, c.START)
    # Of marked steps only those that are left are asked for lost work, if they are most of them. A
    # capture outside of them takes nothing from any.
    asked = len(captures) > 0 or 2 * len(left) >= len(windows.used)
    if asked and steps.boundary.boundary in ("marker", "optimizer"):
        lost, captures, launched = (
            times[np.isin(windows.of(times), left)] for times in (lost, captures, launched)
        )
    return replace(
        steps,
        iterations=replace(windows, used=left),
        notes=tuple(notes),
        calls=len(lost) + len(launched),
        lost=len(lost),
        captured=len(captures) > 0,
        captured_launches=smallest,
    )


def _smallest_capture(calls: Table, lost: Ints) -> int | None:
    """How many launch calls without device work the smallest capture holds."""
    start, names = ints(calls, c.START), calls[c.NAME]
    begin = start[where(names, lambda name: _CAPTURE in name)]
    end = start[where(names, lambda name: _CAPTURED in name)]
    count = min(len(begin), len(end))
    held = np.searchsorted(lost, end[:count]) - np.searchsorted(lost, begin[:count])
    return int(held[held > 0].min(initial=np.iinfo(np.int64).max)) if (held > 0).any() else None


def _lost(trace: Trace, joined: Launches) -> Bools:
    """Whether each call is a launch by its name and reached nothing."""
    calls, lost = trace.calls, where(trace.calls[c.NAME], _ALWAYS_LAUNCH.search)
    pid, launching = ints(calls, c.PID), ints(joined.calls, c.PID)
    for process in unique(launching):
        mine = np.flatnonzero(lost & (pid == process))
        found = ints(joined.calls, c.CORRELATION)[launching == process]
        lost[mine] = ~is_among(ints(calls, c.CORRELATION)[mine], found)
    # Why a process has no launch at all is unknown.
    return lost & np.isin(pid, launching)


def _orphans(joined: Launches, pid: int | None) -> Ints:
    """When the device work of a process began whose calls were lost."""
    work = joined.activities
    mine = np.ones(len(work), np.bool_) if pid is None else np.isin(ints(work, c.PID), (pid, -1))
    lost: Bools = mine & (ints(work, c.LAUNCH) < 0) & ~work[c.EARLIER]
    return ints(work, c.START)[lost]


def _recorded_until(joined: Launches, pid: int | None) -> int:
    """The last launch of the thread whose launches end first, of those that made many."""
    calls = joined.calls[joined.calls[c.PID] == pid]
    _, thread, often = np.unique(ints(calls, c.TID), return_inverse=True, return_counts=True)
    last = np.zeros(len(often), np.int64)
    np.maximum.at(last, thread, ints(calls, c.START))
    last = last[often >= _THREAD_SHARE * len(calls)]
    return int(last.min()) if len(last) else 0
