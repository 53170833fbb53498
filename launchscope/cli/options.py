"""Options that several commands share, as typer defaults by parameter name; unset is None."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer


def text(help_text: str, metavar: str) -> Any:
    """An option with a value, which `Settings` or the command converts."""
    return typer.Option(None, help=help_text, metavar=metavar)


def switch(name: str, help_text: str) -> Any:
    """An option without a value; None where it was not typed, so that a setting can apply."""
    return typer.Option(None, name, help=help_text)


MODULE = typer.Option(False, "-m", help="Run a module, as `python -m` does.")
CONFIG = text("Settings file to use instead of the nearest pyproject.toml.", "PATH")
PYTHON = text("Interpreter that runs the script.", "PATH")
VERBOSE = typer.Option(False, "--verbose", "-v", help="All kernels; tracebacks of internal errors.")

_VERDICT = {
    "threshold": text(
        "Adopt when a replay removes at least this share of the iteration. [default: 15%]", "PCT"
    ),
    "expected_steps": text(
        "Steps you plan to run; a capture that takes more steps to pay back is not adopted.", "N"
    ),
}
# Of commands that run a script. The names are those of Settings.
RUN = {
    **_VERDICT,
    "warmup": text("Steps to find the step and warm up. [default: 10]", "N"),
    "timing": text(
        "Steps to time, without any profiler; half as many again at the end. [default: 30]", "N"
    ),
    "trace": text("Steps to trace with Kineto. [default: 5]", "N"),
    "inspect": text("Steps whose ops are inspected. [default: 3]", "N"),
    "replay": text("Eager steps and replays to time in turn. [default: 30]", "N"),
    "verify": text("Batches on which results are compared. [default: 4]", "N"),
    "step_from": text(
        "What a step is: auto, marker, optimizer or forward. [default: auto]", "WHAT"
    ),
    "timeout": text("Stop the script after this many seconds.", "S"),
    "max_runs": text(
        "Maximum runs of the script, where passes need a fresh process. [default: 4]", "N"
    ),
    "full": switch("--full", "Let the script finish after the last pass."),
    "keep_trace": switch(
        "--keep-trace", "Keep the recording and its traces in <script>.launchscope/."
    ),
    "python": PYTHON,
}
# Of commands that read what was measured before.
READ = {
    "step_from": text(
        "What a step of a trace is: auto (marks, or else the period of its launches), marker, "
        "optimizer, or none for totals over the whole trace. [default: auto]",
        "WHAT",
    ),
    **_VERDICT,
}
# Of every command that reports.
SHOW = {
    "config": CONFIG,
    "output": typer.Option(
        None,
        "--output",
        "-o",
        help="Also write the report to this file; the suffix picks the format. Repeatable.",
        metavar="PATH",
    ),
    "format_name": typer.Option(
        "terminal", "--format", "-f", help="Format on stdout.", metavar="NAME"
    ),
    "quiet": typer.Option(False, "--quiet", "-q", help="No progress and no notes."),
    "verbose": VERBOSE,
}
# Types of the options above that are not `str | None`.
KINDS: dict[str, Any] = {
    "full": bool | None,
    "keep_trace": bool | None,
    "config": Path | None,
    "output": list[Path] | None,
    "format_name": str,
    "quiet": bool,
    "verbose": bool,
}
