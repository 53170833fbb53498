"""The options that commands share, added to a command by a decorator: one option is one line.

A command says which group it takes and gets what was typed as one value, `Typed`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from launchscope.cli import options
from launchscope.cli.console import Console
from launchscope.cli.output import Outputs
from launchscope.cli.state import console
from launchscope.errors import UsageError
from launchscope.workflows.signals import ending

if TYPE_CHECKING:
    from launchscope.config import Settings

__all__ = ["Typed", "reads", "runs_a_script"]

# Of commands that run a script. Names are those of Settings.
RUN: dict[str, Any] = {
    "threshold": options.Threshold,
    "expected_steps": options.ExpectedSteps,
    "warmup": options.Warmup,
    "timing": options.Timing,
    "trace": options.Trace,
    "inspect": options.Inspect,
    "replay": options.Replay,
    "verify": options.Verify,
    "step_from": options.StepFrom,
    "timeout": options.Timeout,
    "max_runs": options.MaxRuns,
    "full": options.Full,
    "keep_trace": options.KeepTrace,
    "python": options.Python,
}
# Of commands that read what was measured before.
READ: dict[str, Any] = {
    "step_from": options.TraceStepFrom,
    "threshold": options.Threshold,
    "expected_steps": options.ExpectedSteps,
}
# Of every command that reports.
SHOW: dict[str, tuple[Any, Any]] = {
    "config": (options.Config, None),
    "output": (options.Output, None),
    "format_name": (options.Format, "terminal"),
    "quiet": (options.Quiet, False),
    "verbose": (options.Verbose, False),
}
_TYPED = "typed"

Command = TypeVar("Command", bound=Callable[..., int])


@dataclass(frozen=True)
class Typed:
    """What was typed of the shared options. `flags` are settings; None was not typed."""

    flags: dict[str, Any]
    config: Path | None
    output: tuple[Path, ...]
    format_name: str
    quiet: bool
    verbose: bool

    def console(self) -> Console:
        """The console, as quiet or as verbose as was asked for."""
        screen = console()
        screen.quiet, screen.verbose = self.quiet, self.verbose
        return screen

    def settings(self, **more: Any) -> Settings:
        """The settings in force, with further flags of the command itself."""
        from launchscope.config import load_settings

        return load_settings({**self.flags, **more}, config=self.config)

    def run_settings(self, command: str, **more: Any) -> Settings:
        """The same for a command that runs a script; UsageError for what only a trace has."""
        settings = self.settings(**more)
        if settings.step_from == "none":
            raise UsageError(
                f"--step-from none is for reading traces: {command} needs the steps of the script",
                hint="leave it out, or take auto, marker, optimizer or forward",
            )
        return settings

    def outputs(self, kind: type) -> Outputs:
        """Where the report goes; UsageError for a format or a place that will not do."""
        return Outputs.checked(self.format_name, self.output, kind)

    def again(self) -> list[str]:
        """The options as words, to be typed once more."""
        others = {
            "config": self.config,
            "format": None if self.format_name == "terminal" else self.format_name,
            "quiet": self.quiet,
            "verbose": self.verbose,
        }
        words = []
        for name, value in {**self.flags, **others}.items():
            if value is None or value is False:
                continue
            words.append(f"--{name.replace('_', '-')}")
            if value is not True:
                words.append(str(value))
        return words + [word for path in self.output for word in ("-o", str(path))]


def runs_a_script(*, without: Iterable[str] = ()) -> Callable[[Command], Command]:
    """For a command with a parameter `typed: Typed`: gives it the options of a run."""
    left_out = set(without)
    return _sharing({name: kind for name, kind in RUN.items() if name not in left_out})


def reads() -> Callable[[Command], Command]:
    """For a command with a parameter `typed: Typed`: gives it the options of reading."""
    return _sharing(READ)


def _sharing(flags: dict[str, Any]) -> Callable[[Command], Command]:
    added = {**{name: (kind, None) for name, kind in flags.items()}, **SHOW}

    def share(command: Command) -> Command:
        hints = get_type_hints(command, include_extras=True)
        own = [
            parameter.replace(annotation=hints[name])
            for name, parameter in inspect.signature(command).parameters.items()
            if name != _TYPED
        ]
        keyword = inspect.Parameter.KEYWORD_ONLY
        shared = [
            inspect.Parameter(name, keyword, default=default, annotation=kind)
            for name, (kind, default) in added.items()
        ]

        @functools.wraps(command)
        def run(**given: Any) -> int:
            typed = Typed(
                flags={name: given.pop(name, None) for name in flags},
                config=given.pop("config", None),
                output=tuple(given.pop("output", None) or ()),
                format_name=given.pop("format_name", "terminal"),
                quiet=given.pop("quiet", False),
                verbose=given.pop("verbose", False),
            )
            with ending():
                return command(**given, typed=typed)

        # What typer reads: the command's own options, then the shared ones.
        run.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
        run.__annotations__ = {
            parameter.name: parameter.annotation for parameter in (*own, *shared)
        }
        return run  # type: ignore[return-value]

    return share
