"""launchscope report PATH...: what was saved, a recording or anybody's trace, as a report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from launchscope.cli import options
from launchscope.cli.shared import Typed, reads
from launchscope.errors import InputError, UsageError
from launchscope.workflows.load_input import (
    ReadOptions,
    check_readable,
    distinct_names,
    each,
    files_in,
    is_recording,
    profile_of,
    rank_of,
    saved_as,
)

if TYPE_CHECKING:
    from launchscope.model import Profile


@reads()
def report(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH",
            help="What was saved as .json (a Profile, or any other report), the folder of a "
            "recording, or a trace of torch.profiler (.json, .json.gz) or Nsight Systems "
            "(.sqlite). Two of them: their difference. A folder of traces, or three and more: one "
            "row per rank.",
            show_default=False,
        ),
    ],
    step_range: options.StepRange = None,
    ranks: options.Ranks = False,
    max_memory: options.MaxMemory = None,
    *,
    typed: Typed,
) -> int:
    """Render what was saved again, or read a trace; no GPU and no torch needed."""
    from launchscope.model import Profile

    screen, settings = typed.console(), typed.settings()
    step_from = typed.flags["step_from"]
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
    asked = ReadOptions(
        threshold=settings.threshold,
        expected_steps=settings.expected_steps,
        # A default that was set for `profile` does not bind the reading of traces.
        step_from="auto" if settings.step_from == "forward" else settings.step_from,
        step_range=step_range,
        memory_bytes=None if max_memory is None else options.size_in_bytes(max_memory),
        weigh_anew=any(typed.flags[name] is not None for name in ("threshold", "expected_steps")),
    )
    for path in paths:
        check_readable(path)
    if len(paths) == 1 and paths[0].is_dir() and not is_recording(paths[0]):
        return _ranks(files_in(paths[0]), asked, typed)
    if ranks or len(paths) > 2:
        return _ranks(paths, asked, typed)
    if len(paths) == 2:
        return _difference(paths, asked, typed)
    noun = saved_as(paths[0])
    if noun is not None:
        given = [f"--{name.replace('_', '-')}" for name, value in typed.flags.items() if value]
        return _again(paths[0], noun, given + ["--step-range"] * bool(step_range), typed)
    if is_recording(paths[0]):
        _steps_are_known(paths[0], step_from, step_range)
    outputs = typed.outputs(Profile)
    profile = profile_of(paths[0], asked)
    codes = profile.verdict.because if profile.verdict is not None else ()
    return outputs.deliver(
        profile, screen, tuple(f"launchscope rules {code}" for code in codes[:1])
    )


def _steps_are_known(recording: Path, step_from: str | None, step_range: str | None) -> None:
    """UsageError for options that choose the steps of a trace: a recording has its own."""
    asked = "--step-range" if step_range is not None else f"--step-from {step_from}"
    if step_range is not None or step_from not in (None, "auto"):
        raise UsageError(
            f"{recording} is a recording, whose steps were found while the script ran: {asked} "
            "cannot choose others",
            hint=f"leave it out, or name the trace in {recording}"
            if recording.is_dir()
            else "leave it out",
        )


def _difference(paths: list[Path], asked: ReadOptions, typed: Typed) -> int:
    from launchscope.analysis.comparison.profiles import difference
    from launchscope.model import Difference

    outputs, screen = typed.outputs(Difference), typed.console()
    before, after = each(profile_of, paths, asked, lambda path: screen.status(f"read {path.name}"))
    first, second = _rank(before), _rank(after)
    if first is not None and second is not None and first != second:
        screen.note(
            f"these are ranks {first} and {second} of one run: --ranks shows them side by side"
        )
    found = difference(before, after, (str(paths[0]), str(paths[1])))
    return outputs.deliver(found, screen, ())


def _rank(profile: Profile) -> int | None:
    """The rank in a run of several, where the trace says it."""
    return profile.facts.rank if profile.environment.world_size > 1 else None


def _again(path: Path, noun: str, given: list[str], typed: Typed) -> int:
    from launchscope.parser import SAVED, read_saved

    if given:
        raise UsageError(
            f"{path} holds a finished report ({noun}), which {given[0]} cannot change",
            hint=f"leave {given[0]} out, or make the report again with it",
        )
    outputs = typed.outputs(SAVED[noun])
    return outputs.deliver(read_saved(path, noun), typed.console(), ())


def _ranks(paths: list[Path], asked: ReadOptions, typed: Typed) -> int:
    from launchscope.analysis.comparison.ranks import ranks_of
    from launchscope.model import Ranks

    outputs, screen = typed.outputs(Ranks), typed.console()
    count = len(paths)
    read: list[Path] = []

    def done(path: Path) -> None:
        read.append(path)
        screen.status(f"read {len(read)} of {count} files")

    rows = [
        replace(row, name=name)
        for row, name in zip(each(rank_of, paths, asked, done), distinct_names(paths))
    ]
    if all(row.problem is not None for row in rows):
        raise InputError(
            f"none of the {count} files could be read: {rows[0].problem}",
            hint="launchscope report FILE says of one file what is wrong with it",
        )
    return outputs.deliver(ranks_of(rows), screen, ())
