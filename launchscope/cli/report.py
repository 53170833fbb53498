"""launchscope report [PATH...]: a saved report, a recording or any trace, or the last run."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from launchscope.cli.options import READ, Typed, shares, text
from launchscope.cli.output import Outputs
from launchscope.errors import UsageError


@shares(READ)
def report(
    files: list[str] | None = typer.Argument(
        None,
        metavar="PATH",
        help="What was saved as .json (a Profile, or any other report), the folder of a "
        "recording, or a trace of torch.profiler (.json, .json.gz) or Nsight Systems (.sqlite). "
        "Two of them: their difference. A folder of traces, or three or more: one row per rank. "
        "Default: the last run of profile, compare or adopt.",
    ),
    step_range: str | None = text(
        "Name of the ranges of a trace (NVTX, record_function) that are its steps.", "NAME"
    ),
    *,
    typed: Typed,
) -> int:
    """Render the last run or a saved result again, or read a trace. Needs neither a GPU nor
    PyTorch."""
    # NumPy would start a thread per core for linear algebra, which nothing here does.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from launchscope.model import Profile
    from launchscope.report.documents.next_step import rule_commands
    from launchscope.workflows.last_run import last_run
    from launchscope.workflows.load_input import ReadOptions, read_input

    settings, flags = typed.settings(), typed.flags
    if flags["step_from"] == "forward":
        raise UsageError(
            "--step-from forward needs the script: a trace does not show forwards",
            hint="leave it out, or use marker, optimizer or none",
        )
    outputs = Outputs.checked(typed)
    typed_options = {**flags, "step_range": step_range}
    options = ReadOptions(
        threshold=settings.threshold,
        expected_steps=settings.expected_steps,
        step_from=flags["step_from"] or "auto",  # a setting for `profile` is none for traces
        step_range=step_range,
        reweigh=flags["threshold"] is not None or flags["expected_steps"] is not None,
        details=typed.console.verbose or typed.format_name != "terminal" or bool(typed.output),
        given=tuple(
            f"--{name.replace('_', '-')}" for name, value in typed_options.items() if value
        ),
        on_work=outputs.annotate,
    )
    paths = [Path(file) for file in files or ()]
    if not paths:
        paths = [last_run()]
        typed.console.message(f"the last run, kept in {paths[0]}")
    outputs.require_spared(paths)
    value = read_input(paths, options, typed.console)
    commands = rule_commands(value) if isinstance(value, Profile) else ()
    return outputs.deliver(value, typed.console, commands)
