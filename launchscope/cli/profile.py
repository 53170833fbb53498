"""launchscope profile [options] script.py [script args]: record, analyse, advise, report."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import threading
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from launchscope.cli.console import Console
from launchscope.cli.output import Outputs
from launchscope.cli.shared import Typed, runs_a_script
from launchscope.errors import InputError, LaunchscopeError, MeasureError, UsageError
from launchscope.workflows.recording import record, recording_folder

if TYPE_CHECKING:
    from launchscope.config import Settings
    from launchscope.model import Profile, Target
    from launchscope.runner.parent.session import Outcome

_INTERPRETER = re.compile(r"python[\d.]*")


@runs_a_script()
def profile(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SCRIPT [ARGS]",
            help="The script as after `python`, or with -m the module.",
            show_default=False,
        ),
    ] = None,
    module: Annotated[bool, typer.Option("-m", help="Run a module, as `python -m` does.")] = False,
    *,
    typed: Typed,
) -> int:
    """Measure the step of an unmodified script, eagerly and as a CUDA graph replay.

    Options of launchscope stand before the script; what follows it goes to the script. Of the
    counts of steps, 0 leaves a pass out.
    """
    from launchscope.model import Profile

    screen = typed.console()
    settings = typed.run_settings("profile")
    target = target_of(command or [], module=module)
    outputs = typed.outputs(Profile)
    python_exists(settings.python)
    misplaced(target.args, target.name, screen)
    return _run(target, settings, outputs, screen, typed.again())


def _run(
    target: Target, settings: Settings, outputs: Outputs, screen: Console, typed: list[str]
) -> int:
    from launchscope.runner.parent.session import RunOptions

    run_options = RunOptions(
        python=settings.python, timeout_s=settings.timeout, max_runs=settings.max_runs
    )
    with recording_folder(target, screen, keep=settings.keep_trace) as directory:
        loading = threading.Thread(target=load_analysis, daemon=True)
        loading.start()
        outcome = record(target, settings.schedule, run_options, directory, screen)
        loading.join()
        profile = profile_of(outcome, settings)
        outcome.settle()
        code = outputs.deliver(profile, screen, _next_commands(profile, outputs, target, typed))
        if outcome.problem is not None:
            screen.problem(outcome.problem)
        elif outcome.interrupted:
            screen.error("interrupted; this is what was measured until then")
        return outcome.exit_code or code


def load_analysis() -> None:
    """Imports pandas and what stands on it while the script runs, so that the report is quick."""
    import launchscope.analysis
    import launchscope.rules  # noqa: F401


def profile_of(outcome: Outcome, settings: Settings) -> Profile:
    """The Profile of a run that measured something; otherwise the reason why it did not."""
    from launchscope.analysis import build_profile
    from launchscope.parser import read_recording
    from launchscope.rules import advise

    try:
        recording = read_recording(outcome.directory)
    except InputError:
        raise _nothing(outcome) from None
    if recording.timing is None and recording.inspect is None and recording.trace is None:
        raise _nothing(outcome, left_out=not (settings.inspect and settings.timing))
    return advise(
        build_profile(
            recording,
            threshold_pct=settings.threshold,
            expected_steps=settings.expected_steps,
        )
    )


def _nothing(outcome: Outcome, *, left_out: bool = False) -> LaunchscopeError:
    if outcome.problem is not None:
        return outcome.problem
    if outcome.interrupted:
        return MeasureError("interrupted before anything was measured", exit_code=outcome.exit_code)
    return MeasureError(
        "the run left nothing to report on",
        hint="passes were left out with a 0; without a GPU only --inspect shows something"
        if left_out
        else None,
    )


# ------------------------------------------------------------------ before the run


def target_of(command: list[str], *, module: bool, typed: str = "profile") -> Target:
    """What is to be run; UsageError where it cannot be. `typed` is our command, for the hints."""
    from launchscope.model import Target

    if not command or not command[0].strip():
        raise UsageError(
            "no script was named",
            hint=f"launchscope {typed} [options] script.py [script args]",
        )
    name, args = command[0], tuple(command[1:])
    if module:
        return Target("module", name, args)
    path = Path(name)
    if _INTERPRETER.fullmatch(path.name) and args:
        chosen = "" if path.name == name else f"--python {shlex.quote(name)} "
        raise UsageError(
            f"{name} is an interpreter, not a script",
            hint=f"launchscope {typed} [options] {chosen}{shlex.join(args)}",
        )
    if os.path.isdir(path):
        raise UsageError(
            f"{name} is a directory", hint="name the script in it, or run a package with -m"
        )
    require_file(path, lambda: _nearest_script(path, typed))
    if _is_archive(path):
        raise UsageError(f"{name} is an archive", hint="unpack it, and name the script in it")
    return Target("script", name, args)


def _is_archive(path: Path) -> bool:
    import zipfile  # no other command needs it

    return zipfile.is_zipfile(path)


def require_file(path: Path, hint: Callable[[], str | None] = lambda: None) -> None:
    """UsageError, with the hint, unless something is there that may be looked at."""
    try:
        found = path.exists()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    if not found:
        raise UsageError(f"{path}: no such file", hint=hint())


def unwrapped(words: Sequence[str]) -> tuple[list[str], bool]:
    """A command of a settings file without its `python` and `-m`, and whether it had the latter."""
    left = list(words[1:] if words[:1] and words[0] in ("python", "python3") else words)
    module = left[:1] == ["-m"]
    return (left[1:] if module else left), module


def _nearest_script(path: Path, typed: str) -> str | None:
    dotted = str(path).split(".")
    if path.suffix != ".py" and len(dotted) > 1 and all(part.isidentifier() for part in dotted):
        return f"to run a module, type launchscope {typed} -m {path}"
    if not path.parent.is_dir():
        return f"{path.parent} is not a directory"
    near = get_close_matches(path.name, [p.name for p in path.parent.glob("*.py")], n=1)
    return f"did you mean {path.with_name(near[0])}?" if near else None


def python_exists(python: str | None) -> None:
    """UsageError unless the interpreter that was named can be run."""
    if python is not None and shutil.which(python) is None:
        raise UsageError(
            f"--python: {python} is not a program that can be run",
            hint="it takes the path of a Python interpreter, such as /opt/env/bin/python",
        )


def misplaced(
    args: Sequence[str], name: str, screen: Console, more: set[str] | None = None
) -> None:
    """A note on options after the script `name` that look like ours: they went to the script.

    `more` are options that only the command at hand has.
    """
    first = first_of_ours(args, more)
    if first is not None:
        screen.note(
            f"{first} stands after {name} and goes to it; options of launchscope come before the "
            "script"
        )


def first_of_ours(args: Sequence[str], more: set[str] | None = None) -> str | None:
    """The first of these arguments that looks like an option of ours."""
    ours = _long_options() | (more or set())
    for arg, following in zip(args, [*args[1:], ""]):
        if arg.split("=", 1)[0] in ours or (arg == "-o" and _is_report(following)):
            return arg
    return None


@cache
def _long_options() -> frozenset[str]:
    """Those of ours; seen after the script they were probably meant for us."""
    from dataclasses import fields

    from launchscope.config import Settings

    # A setting only, so a script's option of that name is its own.
    names = {field.name for field in fields(Settings)} - {"command"}
    return frozenset(f"--{name.replace('_', '-')}" for name in names | {"output", "format"})


def _is_report(path: str) -> bool:
    from launchscope.report import all_reporters

    return Path(path).suffix in {s for reporter in all_reporters() for s in reporter.suffixes}


# ------------------------------------------------------------------- after the run


def _next_commands(
    profile: Profile, outputs: Outputs, target: Target, typed: list[str]
) -> tuple[str, ...]:
    """What to type next, depending on what was typed already."""
    commands = []
    verdict = profile.verdict
    if verdict is not None and verdict.because:
        weighty = [f.code for f in profile.findings if f.severity in ("warning", "error")]
        first = next((code for code in verdict.because if code in weighty), verdict.because[0])
        commands.append(f"launchscope rules {first}")
    saved = next((path for path, reporter in outputs.files if reporter.name == "json"), None)
    if saved is not None:
        commands.append(f"launchscope report {shlex.quote(str(saved))}")
    else:
        script = ["-m", target.name] if target.kind == "module" else [target.name]
        again = shlex.join([*typed, *script, *target.args])
        commands.append(f"launchscope profile -o profile.json {again}")
    return tuple(commands)
