"""launchscope report PATH: a saved Profile, a recording or anybody's trace, as a report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from launchscope.cli import options
from launchscope.cli.output import Outputs
from launchscope.cli.state import console
from launchscope.config import Settings, load_settings
from launchscope.errors import InputError, UsageError
from launchscope.model import Profile


def report(
    path: Annotated[
        Path,
        typer.Argument(
            help="A Profile (.json), the folder of a recording, or a trace of torch.profiler "
            "(.json, .json.gz) or Nsight Systems (.sqlite)."
        ),
    ],
    step_from: options.TraceStepFrom = None,
    step_range: options.StepRange = None,
    threshold: options.Threshold = None,
    expected_steps: options.ExpectedSteps = None,
    output: options.Output = None,
    format_name: options.Format = "terminal",
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    config: options.Config = None,
) -> int:
    """Render a saved Profile again, or make one from a trace; no GPU and no torch needed."""
    screen = console()
    screen.quiet, screen.verbose = quiet, verbose
    flags = {"threshold": threshold, "expected_steps": expected_steps, "step_from": step_from}
    settings = load_settings(flags, config=config)
    if settings.step_from == "forward" and step_from is not None:
        raise UsageError(
            "--step-from forward needs the script: a trace does not say what a forward is",
            hint="leave it out, or take marker, optimizer or none",
        )
    outputs = Outputs.checked(format_name, output or [])
    if not path.exists():
        raise InputError(f"{path}: no such file or directory")
    profile = _profile(path, flags, settings, step_range)
    codes = profile.verdict.because if profile.verdict is not None else ()
    return outputs.deliver(
        profile, screen, tuple(f"launchscope rules {code}" for code in codes[:1])
    )


def _profile(
    path: Path, flags: dict[str, str | None], settings: Settings, step_range: str | None
) -> Profile:
    """Whatever the file is, by its content."""
    if _is_recording(path):
        return profile_of_recording(path, settings.threshold, settings.expected_steps)
    from launchscope.parser import is_trace

    if is_trace(path):
        return profile_of_trace_file(path, settings, step_range)
    return _saved(path, flags, settings.threshold, settings.expected_steps)


def profile_of_recording(path: Path, threshold: float, expected_steps: int | None) -> Profile:
    """Recording -> Profile with its verdict."""
    from launchscope.analysis import build_profile
    from launchscope.parser import read_recording
    from launchscope.rules import advise

    recording = read_recording(path)
    return advise(build_profile(recording, threshold_pct=threshold, expected_steps=expected_steps))


def profile_of_trace_file(path: Path, settings: Settings, step_range: str | None) -> Profile:
    """Trace -> Profile with its verdict."""
    from launchscope.analysis import profile_of_trace
    from launchscope.parser import read_trace
    from launchscope.rules import advise

    return advise(
        profile_of_trace(
            read_trace(path),
            path.name,
            threshold_pct=settings.threshold,
            expected_steps=settings.expected_steps,
            step_from=settings.step_from,
            step_range=step_range,
        )
    )


def _saved(
    path: Path, flags: dict[str, str | None], threshold: float, expected_steps: int | None
) -> Profile:
    """A saved Profile; weighed anew only when a flag changes what it is weighed by."""
    from launchscope.parser import read_profile
    from launchscope.rules import advise

    profile = read_profile(path)
    if flags["threshold"] is not None:
        profile = replace(profile, threshold_pct=threshold, verdict=None)
    if flags["expected_steps"] is not None:
        profile = replace(profile, expected_steps=expected_steps, verdict=None)
    return advise(profile) if profile.verdict is None else profile


def _is_recording(path: Path) -> bool:
    """Folders are recordings, and so is a file that says it is one."""
    if path.is_dir() or path.name == "recording.json":
        return True
    try:
        with path.open("rb") as file:
            head = file.read(4096)
            file.seek(max(0, path.stat().st_size - 4096))
            return b'"launchscope/recording/' in head + file.read()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
