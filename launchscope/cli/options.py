"""The options that commands share. A decorator adds a group of them to a command, which gets what
was typed as one value, `Typed`."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import typer

from launchscope.cli.console import Console, console
from launchscope.workflows.signals import ends_on_signals

if TYPE_CHECKING:
    from launchscope.config import Settings

Command = TypeVar("Command", bound=Callable[..., int])


def text(help_text: str, metavar: str) -> Any:
    """An option with a value, which `Settings` or the command converts; None: not typed."""
    return typer.Option(None, help=help_text, metavar=metavar)


def switch(name: str, help_text: str) -> Any:
    """An option without a value; None: not typed, so that a setting can apply."""
    return typer.Option(None, name, help=help_text)


SCRIPT = typer.Argument(
    None, metavar="SCRIPT [ARGS]", help="The script, as after `python`; with -m, the module."
)
MODULE = typer.Option(False, "-m", help="Run a module, as `python -m` does.")
CONFIG = text("Settings file to use instead of the nearest pyproject.toml.", "PATH")
PYTHON = text("Interpreter that runs the script.", "PATH")
VERBOSE = typer.Option(
    False, "--verbose", "-v", help="Show the whole report, and tracebacks of errors."
)


# Each group by parameter name.
_VERDICT = {
    "threshold": text(
        "Adopt when a replay removes at least this share of the iteration. [default: 15%]", "PCT"
    ),
    "expected_steps": text(
        "Steps you plan to run; a capture that takes more steps to pay back is not adopted.", "N"
    ),
}
# Of commands that run a script. The names are those of Settings.
_MEASUREMENT = {
    "warmup": text("Steps to find the step and warm up. [default: 10]", "N"),
    "timing": text(
        "Steps to time, without any profiler; half as many again at the end. [default: 30]",
        "N",
    ),
    "trace": text("Steps to trace with Kineto. [default: 5]", "N"),
    "inspect": text("Steps whose ops are inspected. [default: 3]", "N"),
    "replay": text("Eager steps and replays to time in turn. [default: 30]", "N"),
    "verify": text("Batches on which results are compared. [default: 4]", "N"),
    "step_from": text(
        "What a step is: auto, marker, optimizer or forward. [default: auto]", "WHAT"
    ),
    "skip_steps": text(
        "Steps to pass over before the warm-up, such as those with shorter sequences. [default: 0]",
        "N",
    ),
    "wait_for": text(
        "optimizer: do not measure forwards alone, wait until an optimizer steps. [default: step]",
        "WHAT",
    ),
    "timeout": text("Stop the script after this many seconds.", "S"),
    "max_runs": text(
        "Maximum runs of the script, where passes need a fresh process. [default: 4]", "N"
    ),
    "full": switch("--full", "Run the script once more, to its end, unmeasured."),
    "keep_trace": switch(
        "--keep-trace", "Keep the recording and its traces in <script>.launchscope/."
    ),
}
RUN = {**_VERDICT, **_MEASUREMENT, "python": PYTHON}
WATCH = {key: RUN[key] for key in ("warmup", "step_from", "skip_steps", "wait_for", "python")}
WATCH["every"] = text("Seconds between two windows of measured steps. [default: 60]", "S")
# Of commands that start a rank per GPU: options of torch's launcher, with its names.
LAUNCH = {
    "nproc_per_node": text(
        "Start the script in N processes with torch's launcher, one per GPU, and report all ranks "
        "together; gpu: as many as there are GPUs. Under torchrun it is not needed.",
        "N",
    ),
    "nnodes": text("With --nproc-per-node: machines of the run.", "N"),
    "node_rank": text("With --nnodes: the number of this machine.", "N"),
    "master_addr": text("With --nnodes: the address of the first machine.", "HOST"),
    "master_port": text("With --nproc-per-node: the port at which the ranks meet.", "PORT"),
}
for _title, _group in (("Measurement", _MEASUREMENT), ("Several GPUs and machines", LAUNCH)):
    for _option in _group.values():
        _option.rich_help_panel = _title
# Of `adopt`: the settings of its first measurement, and how long all of it may take.
ADOPT = {
    **_VERDICT,
    "timeout": text("Give up after this many seconds; what is not verified is not shown.", "S"),
    "python": PYTHON,
}
# Of `check`: its settings in the settings file.
CHECK = {
    "baseline": text(
        "What to compare with: a folder, which has one file per script and device.",
        "PATH",
    ),
    "against": text(
        "Measure this git revision, too, and compare its counts with those of the current files.",
        "REF",
    ),
    "repeats": text("Fresh processes to measure before a limit fails. [default: 3]", "N"),
    "strict": switch("--strict", "Fail on a limit that is inconclusive or cannot be evaluated."),
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
_SHOW = {
    "config": CONFIG,
    "output": typer.Option(
        None,
        "--output",
        "-o",
        help="Also write the report to this file; the suffix picks the format: .html, .md, .json "
        "and more. Repeatable.",
        metavar="PATH",
    ),
    "format_name": typer.Option(
        "terminal",
        "--format",
        "-f",
        help="Format on stdout, such as markdown or json.",
        metavar="NAME",
    ),
    "quiet": typer.Option(False, "--quiet", "-q", help="No progress and no notes."),
    "verbose": VERBOSE,
}
# Many scripts have these, too.
_OF_SCRIPTS_TOO = {"--command", "--module", "--config", "--quiet", "--verbose"}
# Types of those above that are not `str | None`.
_KINDS: dict[str, Any] = {
    **dict.fromkeys(("full", "keep_trace", "strict"), bool | None),
    "output": list[str] | None,
    "format_name": str,
    "quiet": bool,
    "verbose": bool,
}


@dataclass(frozen=True)
class Typed:
    """What was typed of the shared options. `flags` are settings; None was not typed."""

    command: str
    flags: dict[str, Any]
    console: Console  # as quiet or verbose as was typed
    config: str | None
    output: list[Path]
    format_name: str

    def settings(self) -> Settings:
        from launchscope.config import load_settings

        return load_settings(self.flags, config=self.config)

    def launch(self) -> None:
        """Starts the ranks, in place of this process, if that was typed and this is none of them.
        The options are taken out of `flags`."""
        options = {name: self.flags.pop(name) for name in LAUNCH}
        if any(value is not None for value in options.values()):
            from launchscope.runner.parent.rank_place import rank_place
            from launchscope.workflows.launch_ranks import become_launcher

            if rank_place(os.environ) is None and "TORCHELASTIC_RUN_ID" not in os.environ:
                words = [self.command, *self.console.words]
                become_launcher(options, words, self.flags.get("python"))


def shares(
    group: Mapping[str, Any], *, without: Collection[str] = ()
) -> Callable[[Command], Command]:
    """For a command with a parameter `typed`, and `command` if it runs a script: adds the options
    of this group and those of every report."""
    flags = {name: option for name, option in group.items() if name not in without}
    shared = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=option,
            annotation=_KINDS.get(name, str | None),
        )
        for name, option in {**flags, **_SHOW}.items()
    ]  # fmt: skip

    def share(command: Command) -> Command:
        hints = get_type_hints(command, include_extras=True)
        own = [
            parameter.replace(annotation=hints[name])
            for name, parameter in inspect.signature(command).parameters.items()
            if name != "typed"
        ]
        parameters = [*own, *shared]

        @functools.wraps(command)
        def run(**given: Any) -> int:
            shown = console()
            shown.quiet, shown.verbose = given.pop("quiet"), given.pop("verbose")
            script, *args = given.get("command") or [""]
            shown.script = script
            if problem := _misplaced(command.__name__, parameters, script, args):
                shown.note(problem)
            typed = Typed(
                command=command.__name__,
                flags={name: given.pop(name) for name in flags},
                console=shown,
                config=given.pop("config"),
                output=[Path(path) for path in given.pop("output") or ()],
                format_name=given.pop("format_name"),
            )
            with ends_on_signals():
                return command(**given, typed=typed)

        # What typer reads: the command's own options, then the shared ones.
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run  # type: ignore[return-value]

    return share


def _misplaced(
    command: str, parameters: Iterable[inspect.Parameter], script: str, args: Sequence[str]
) -> str | None:
    """A sentence, if an option of the command seems to have gone to the script."""
    names = {f"--{p.name.removesuffix('_name').replace('_', '-')}" for p in parameters}
    for arg, value in zip(args, (*args[1:], "")):
        if arg.partition("=")[0] in names - _OF_SCRIPTS_TOO or (arg == "-o" and _is_report(value)):
            right = f"type launchscope {command} {arg} ... before the script"
            return f"{arg} comes after {script}, so it goes to the script; {right}"
    return None


def _is_report(path: str) -> bool:
    from launchscope.report import all_reporters

    return path.endswith(tuple(s for reporter in all_reporters() for s in reporter.suffixes))
