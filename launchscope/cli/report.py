"""launchscope report PATH...: a saved Profile, a recording or anybody's trace, as a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from launchscope.cli import options
from launchscope.cli.anyfile import Asked, each, files_in, is_recording, profile_of, rank_of
from launchscope.cli.console import Console
from launchscope.cli.output import Outputs
from launchscope.cli.state import console
from launchscope.config import load_settings
from launchscope.errors import InputError, UsageError
from launchscope.model import Profile


def report(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH",
            help="A Profile (.json), the folder of a recording, or a trace of torch.profiler "
            "(.json, .json.gz) or Nsight Systems (.sqlite). Two of them: their difference. A "
            "folder of traces, or three and more: one row per rank.",
            show_default=False,
        ),
    ],
    step_from: options.TraceStepFrom = None,
    step_range: options.StepRange = None,
    ranks: options.Ranks = False,
    max_memory: options.MaxMemory = None,
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
    if step_from == "forward":
        raise UsageError(
            "--step-from forward needs the script: a trace does not say what a forward is",
            hint="leave it out, or take marker, optimizer or none",
        )
    if step_range is not None and step_from not in (None, "auto", "marker"):
        raise UsageError(
            f"--step-range names the steps and --step-from {step_from} asks for others",
            hint="give one of the two",
        )
    asked = Asked(
        threshold=settings.threshold,
        expected_steps=settings.expected_steps,
        # A default that was set for `profile` does not bind the reading of traces.
        step_from="auto" if settings.step_from == "forward" else settings.step_from,
        step_range=step_range,
        memory_bytes=None if max_memory is None else options.size_in_bytes(max_memory),
        weigh_anew=threshold is not None or expected_steps is not None,
    )
    outputs = Outputs.checked(format_name, output or [])
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: no such file or directory")
    if len(paths) == 1 and paths[0].is_dir() and not is_recording(paths[0]):
        return _ranks(files_in(paths[0]), asked, outputs, screen)
    if ranks or len(paths) > 2:
        return _ranks(paths, asked, outputs, screen)
    if len(paths) == 2:
        return _difference(paths, asked, outputs, screen)
    profile = profile_of(paths[0], asked)
    codes = profile.verdict.because if profile.verdict is not None else ()
    return outputs.deliver(
        profile, screen, tuple(f"launchscope rules {code}" for code in codes[:1])
    )


def _difference(paths: list[Path], asked: Asked, outputs: Outputs, screen: Console) -> int:
    from launchscope.analysis.difference import difference

    shown = outputs.for_tables()
    before, after = each(profile_of, paths, asked, lambda path: screen.status(f"read {path.name}"))
    first, second = _rank(before), _rank(after)
    if first is not None and second is not None and first != second:
        screen.note(
            f"these are ranks {first} and {second} of one run: --ranks shows them side by side"
        )
    return shown.deliver(difference(before, after, (str(paths[0]), str(paths[1]))), screen, ())


def _rank(profile: Profile) -> int | None:
    """The rank in a run of several, where the trace says it."""
    rank = profile.facts.get("rank")
    return rank if isinstance(rank, int) and profile.environment.world_size > 1 else None


def _ranks(paths: list[Path], asked: Asked, outputs: Outputs, screen: Console) -> int:
    from launchscope.analysis.ranks import ranks_of

    shown = outputs.for_tables()
    count = len(paths)
    read: list[Path] = []

    def done(path: Path) -> None:
        read.append(path)
        screen.status(f"read {len(read)} of {count} files")

    rows = each(rank_of, paths, asked, done)
    if all(row.problem is not None for row in rows):
        raise InputError(
            f"none of the {count} files could be read: {rows[0].problem}",
            hint="launchscope report FILE says of one file what is wrong with it",
        )
    return shown.deliver(ranks_of(rows), screen, ())
