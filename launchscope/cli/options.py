"""Options that several commands share, as typer annotations. Unset options are None."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from launchscope.errors import UsageError

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", re.IGNORECASE)


def size_in_bytes(text: str) -> int:
    """`512M`, `8G` or `1.5GB` in bytes (powers of 1024); UsageError otherwise."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or not float(found.group(1)):
        raise UsageError(f"--max-memory: expected a size such as 8G, not {text!r}")
    power = " KMGT".index(found.group(2).upper() or " ")
    return int(float(found.group(1)) * 1024**power)


def _pass(text: str, default: int) -> object:
    return typer.Option(help=f"{text} [default: {default}]", metavar="N")


Warmup = Annotated[str | None, _pass("Steps to find the step and warm up.", 10)]
Timing = Annotated[
    str | None, _pass("Steps timed, without any profiler; half as many again at the end.", 30)
]
Trace = Annotated[str | None, _pass("Steps traced with Kineto.", 5)]
Inspect = Annotated[str | None, _pass("Steps whose ops are inspected.", 3)]
Replay = Annotated[str | None, _pass("Eager steps and replays in turn.", 30)]
Verify = Annotated[str | None, _pass("Batches on which results are compared.", 4)]

StepFrom = Annotated[
    str | None,
    typer.Option(
        help="What a step is: auto, marker, optimizer or forward. [default: auto]",
        metavar="WHAT",
    ),
]
TraceStepFrom = Annotated[
    str | None,
    typer.Option(
        "--step-from",
        help="What a step of a trace is: auto (marks, else the period of its launches), marker, "
        "optimizer, or none for totals over the whole span. [default: auto]",
        metavar="WHAT",
    ),
]
StepRange = Annotated[
    str | None,
    typer.Option(
        help="Ranges of a trace (NVTX, record_function) that are its steps, by name.",
        metavar="NAME",
    ),
]
Ranks = Annotated[
    bool,
    typer.Option("--ranks", help="The files are ranks of one run, also when they are two."),
]
MaxMemory = Annotated[
    str | None,
    typer.Option(
        help="Memory that reading a trace may take, such as 8G; what needs more is refused. "
        "[default: half of what is free]",
        metavar="SIZE",
    ),
]
Threshold = Annotated[
    str | None,
    typer.Option(
        help="Adopt when a replay removes at least this share of the iteration. [default: 15%]",
        metavar="PCT",
    ),
]
ExpectedSteps = Annotated[
    str | None,
    typer.Option(
        help="Steps you mean to run; a capture that pays back later is not adopted.",
        metavar="N",
    ),
]
Timeout = Annotated[
    str | None,
    typer.Option(help="Stop the script after so many seconds.", metavar="S"),
]
MaxRuns = Annotated[
    str | None,
    typer.Option(
        help="Runs of the script at most, where passes need a fresh process. [default: 4]",
        metavar="N",
    ),
]
Full = Annotated[
    bool | None,
    typer.Option("--full", help="Let the script finish after the last pass."),
]
KeepTrace = Annotated[
    bool | None,
    typer.Option(
        "--keep-trace",
        help="Keep the recording and its traces in <script>.launchscope/.",
    ),
]
Python = Annotated[
    str | None,
    typer.Option(help="Interpreter that runs the script.", metavar="PATH"),
]
Config = Annotated[
    Path | None,
    typer.Option(
        help="Settings file in place of the nearest pyproject.toml.",
        metavar="PATH",
    ),
]
Output = Annotated[
    list[Path] | None,
    typer.Option(
        "--output",
        "-o",
        help="Also write the report here; the suffix picks the format. Repeatable.",
        metavar="PATH",
    ),
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        "-f",
        help="Format on stdout.",
        metavar="NAME",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no notes.")]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="All kernels; a traceback for an error of launchscope's own.",
    ),
]
