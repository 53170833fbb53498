"""The Python API: what the commands do, a callable in place of a script, and saved Profiles."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TextIO

from launchscope.config import StrPath, load_settings
from launchscope.errors import MeasureError, UsageError, raised_as
from launchscope.model import CheckResult, Profile, Schedule
from launchscope.workflows.progress import Progress

if TYPE_CHECKING:
    import pandas as pd

    from launchscope.workflows.compare import CompareResult
    from launchscope.workflows.profile import ProfileResult


def profile(
    script: StrPath,
    args: Sequence[str] = (),
    *,
    module: bool = False,
    config: StrPath | None = None,
    progress: Progress | None = None,
    **settings: object,
) -> ProfileResult:
    """Measure a script as `launchscope profile` does: `profile("train.py", ["--lr", "1"])`.

    `settings` are the options of the command, such as `timing=60`. The script runs in a process
    of its own. A `problem` in the result came after the measurement; an error is raised if nothing
    was measured, for a setting that is wrong, and in a rank that `torchrun` started.
    """
    from launchscope.workflows.profile import profile
    from launchscope.workflows.ranks import require_one_process
    from launchscope.workflows.target import script_target

    require_one_process(os.environ, "launchscope.profile()")
    target = script_target([os.fspath(script), *args], module=module, command="profile")
    return profile(target, load_settings(settings, config=config), progress or Progress())


def compare(
    script: StrPath | None = None,
    args: Sequence[str] = (),
    *,
    module: bool = False,
    batch_sizes: Sequence[int] | None = None,
    modes: Sequence[str] = (),
    config: StrPath | None = None,
    progress: Progress | None = None,
    **settings: object,
) -> CompareResult:
    """Measure a script at several batch sizes, each under every one of `modes`, as `launchscope
    compare` does."""
    from launchscope.workflows.compare import compare, plan_compare
    from launchscope.workflows.ranks import require_one_process

    require_one_process(os.environ, "launchscope.compare()")
    plan = plan_compare(
        [] if script is None else [os.fspath(script), *args],
        load_settings(settings, config=config),
        module=module,
        batch_sizes=batch_sizes,
        modes=modes,
    )
    return compare(plan, progress or Progress())


def check(
    target: StrPath | None = None,
    args: Sequence[str] = (),
    *,
    module: bool = False,
    limits: Mapping[str, object] | None = None,
    update_baseline: bool = False,
    config: StrPath | None = None,
    progress: Progress | None = None,
    **settings: object,
) -> CheckResult:
    """Check a script or a saved Profile against a baseline and limits, as `launchscope check`.

    `limits` are written as for the command: `{"launches_per_step": "+0", "iteration_ms": 9.5}`.
    Nothing is raised for a limit that failed, MeasureError if the script fails or has no step.
    """
    from launchscope.workflows.check import check, plan_check
    from launchscope.workflows.ranks import require_one_process

    plan = plan_check(
        [] if target is None else [os.fspath(target), *args],
        settings,
        module=module,
        config=None if config is None else Path(config),
        limits=[f"{metric}={limit}" for metric, limit in (limits or {}).items()],
        update_baseline=update_baseline,
    )
    if plan.saved is None:
        require_one_process(os.environ, "launchscope.check()")
    run = check(plan, progress or Progress())
    if run.problem is not None:
        raise run.problem
    return run.result


def measure(
    step: Callable[..., Any],
    *example_inputs: Any,
    replay: bool = True,
    threshold_pct: float = 15.0,
    expected_steps: int | None = None,
    schedule: Schedule | None = None,
) -> Profile:
    """Profile `step(*example_inputs)`, one call being one step, as `launchscope profile` would.

    The callable runs about 110 times in this process, on a side stream. Its changes to parameters
    stay; those of the replays are undone. A failed capture may leave CUDA unusable in this process;
    `replay=False` rules that out. Raises MeasureError if the callable raises.
    """
    from launchscope.parser import read_recording
    from launchscope.runner.parent.in_process import record_steps
    from launchscope.workflows.load_input import analyze

    plan = schedule or Schedule()
    if not replay:
        plan = replace(plan, replay=0, verify=0)
    name = getattr(step, "__qualname__", type(step).__name__)
    with TemporaryDirectory(prefix="launchscope-") as folder:
        with closing(record_steps(name, plan, Path(folder))) as marks:
            for mark in marks:
                try:
                    with mark:
                        step(*example_inputs)
                except Exception as error:
                    hint = "call it once without launchscope; it has to run on its example inputs"
                    said = f"the step raised {type(error).__name__}: {error}"
                    raise MeasureError(said, hint=hint) from error
        return analyze(read_recording(Path(folder)), threshold_pct, expected_steps)


def on_trace_ready(path: StrPath, *, threshold_pct: float = 15.0) -> Callable[[Any], None]:
    """For `torch.profiler.profile(on_trace_ready=launchscope.on_trace_ready("report.html"))`: what
    `launchscope report` says about the trace, in the format of the path's suffix. Each trace is
    written over the one before, and the short report goes to stderr.

    Raises UsageError for a path that `save` refuses. What fails later, such as a trace without GPU
    work, gives a warning and ends no training. torch saves a trace once: do not export it, too.
    """
    from launchscope.report import reporter_for_path
    from launchscope.workflows.load_input import ReadOptions, profile_of
    from launchscope.workflows.save import require_writable

    require_writable(Path(path))
    reporter = reporter_for_path(Path(path))
    if reporter.shows_trace or Profile not in reporter.renders:
        raise UsageError(f"{path}: the format {reporter.name} shows no report about a trace")

    def ready(profiler: Any) -> None:
        try:
            with TemporaryDirectory(prefix="launchscope-") as folder:
                trace = Path(folder, "trace.json")
                profiler.export_chrome_trace(str(trace))
                found = profile_of(trace, ReadOptions(threshold_pct, None, details=True))
            save(found, path)
            show(found, file=sys.stderr)
        except Exception as error:
            said = str(error).rpartition("/trace.json: ")[2]  # the file is gone
            warnings.warn(f"launchscope reports no trace: {said}", stacklevel=2)

    return ready


def load(path: StrPath) -> Profile:
    """Read a Profile that `-o profile.json` saved; InputError for another or a damaged file."""
    from launchscope.parser import read_profile

    return read_profile(os.fspath(path))


def tables(value: object) -> dict[str, pd.DataFrame]:
    """The tables of a Profile or another value as pandas frames, by name: `metrics`, `kernels`,
    `points`, ..."""
    from launchscope.report.frames import tables

    return tables(value)


def show(value: object, file: TextIO | None = None) -> None:
    """Print the short report of a Profile or another value, as the command does; to stdout unless
    there is a `file`."""
    from launchscope.report import RenderOptions, render
    from launchscope.visible import without_commands

    text = str(render(value, "terminal", RenderOptions(brief=True)))
    print(without_commands(text), end="", file=file)


def save(value: object, path: StrPath) -> None:
    """Write the report of a Profile or another value to a file, as `-o` does: the suffix picks the
    format. Raises UsageError for an unknown suffix, for a format that cannot show this value, and
    for a file that cannot be written."""
    from launchscope.report import reporter_for_path
    from launchscope.workflows.save import require_writable, write_report

    file = Path(path)
    require_writable(file)
    content = reporter_for_path(file).render(value)
    with raised_as(UsageError, f"cannot write {file}"):
        write_report(file, content)
