"""launchscope report PATH: a saved Profile, comparison or recording, rendered again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from launchscope.cli import options
from launchscope.cli.output import Outputs
from launchscope.cli.state import console
from launchscope.config import load_settings
from launchscope.errors import InputError, UsageError
from launchscope.model import Profile


def report(
    path: Annotated[
        Path,
        typer.Argument(help="A Profile or comparison (.json), or a recording's folder."),
    ],
    threshold: options.Threshold = None,
    expected_steps: options.ExpectedSteps = None,
    output: options.Output = None,
    format_name: options.Format = "terminal",
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    config: options.Config = None,
) -> int:
    """Render a saved Profile, comparison or recording again; no GPU and no torch needed."""
    screen = console()
    screen.quiet, screen.verbose = quiet, verbose
    flags = {"threshold": threshold, "expected_steps": expected_steps}
    settings = load_settings(flags, config=config)
    if path.is_file() and _says(path, b'"launchscope/comparison/'):
        return _comparison(path, threshold, output or [], format_name)
    outputs = Outputs.checked(format_name, output or [])
    if not path.exists():
        raise InputError(f"{path}: no such file or directory")
    if is_recording(path):
        profile = profile_of_recording(path, settings.threshold, settings.expected_steps)
    else:
        profile = _saved(path, flags, settings.threshold, settings.expected_steps)
    codes = profile.verdict.because if profile.verdict is not None else ()
    return outputs.deliver(
        profile, screen, tuple(f"launchscope rules {code}" for code in codes[:1])
    )


def profile_of_recording(path: Path, threshold: float, expected_steps: int | None) -> Profile:
    """Recording -> Profile with its verdict."""
    from launchscope.analysis import build_profile
    from launchscope.parser import read_recording
    from launchscope.rules import advise

    recording = read_recording(path)
    return advise(build_profile(recording, threshold_pct=threshold, expected_steps=expected_steps))


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


def _comparison(path: Path, threshold: str | None, output: list[Path], format_name: str) -> int:
    from launchscope.cli.comparison_output import ComparisonOutputs
    from launchscope.parser import read_comparison

    if threshold is not None:
        raise UsageError(
            "a comparison keeps the threshold it was made with",
            hint="leave --threshold out; it is an option of launchscope compare",
        )
    outputs = ComparisonOutputs.checked(format_name, output)
    return outputs.deliver(read_comparison(path), console(), ())


def is_recording(path: Path) -> bool:
    """Folders are recordings, and so is a file that says it is one."""
    if path.is_dir() or path.name == "recording.json":
        return True
    return _says(path, b'"launchscope/recording/')


def _says(path: Path, schema: bytes) -> bool:
    """Whether a file's schema begins so; it stands near its begin or its end."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
            file.seek(max(0, path.stat().st_size - 4096))
            return schema in head + file.read()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
