"""The options that commands share, added to a command by a decorator.

A command names its group of options and gets what was typed as one value, `Typed`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from launchscope.cli.console import Console, console
from launchscope.cli.options import KINDS, READ, RUN, SHOW
from launchscope.cli.output import Outputs
from launchscope.errors import MissingOptionError
from launchscope.workflows.signals import ends_on_signals

if TYPE_CHECKING:
    from launchscope.config import Settings

__all__ = ["Typed", "reads", "runs_a_script"]

_TYPED = "typed"
Command = TypeVar("Command", bound=Callable[..., int])


@dataclass(frozen=True)
class Typed:
    """What was typed of the shared options. `flags` are settings; None was not typed. `options`
    are the long names of all options of the command, apart from those many scripts have too."""

    flags: dict[str, Any]
    options: frozenset[str]
    config: Path | None
    output: tuple[Path, ...]
    format_name: str
    quiet: bool
    verbose: bool

    def console(self) -> Console:
        """The console, as quiet or verbose as was typed."""
        found = console()
        found.quiet, found.verbose = self.quiet, self.verbose
        return found

    def settings(self, **more: object) -> Settings:
        """The settings in force, with more flags of the command itself."""
        from launchscope.config import load_settings

        return load_settings({**self.flags, **more}, config=self.config)

    def outputs(self, kind: type) -> Outputs:
        """Where the report goes; UsageError for a wrong format or a place that is not writable."""
        return Outputs.checked(self.format_name, self.output, kind)

    def misplaced(self, args: Sequence[str]) -> str | None:
        """The first argument of the script that looks like an option of launchscope."""
        for arg, following in zip(args, [*args[1:], ""]):
            if arg.split("=", 1)[0] in self.options or (arg == "-o" and _is_report(following)):
                return arg
        return None

    def note_misplaced(self, name: str, args: Sequence[str]) -> None:
        """A note if an option of launchscope seems to have gone to the script `name`."""
        option = self.misplaced(args)
        if option is not None:
            self.console().note(
                f"{option} comes after {name}, so it goes to the script; type options of "
                "launchscope before the script"
            )


def runs_a_script(*, without: Iterable[str] = ()) -> Callable[[Command], Command]:
    """For a command with parameters `command` (the script and its arguments) and `typed`: adds
    the options of a run."""
    return _sharing({name: option for name, option in RUN.items() if name not in without})


def reads() -> Callable[[Command], Command]:
    """For a command with a parameter `typed`: adds the options of reading."""
    return _sharing(READ)


def _sharing(flags: dict[str, Any]) -> Callable[[Command], Command]:
    def share(command: Command) -> Command:
        hints = get_type_hints(command, include_extras=True)
        own = [
            parameter.replace(annotation=hints[name])
            for name, parameter in inspect.signature(command).parameters.items()
            if name != _TYPED
        ]
        shared = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=KINDS.get(name, str | None),
            )
            for name, default in {**flags, **SHOW}.items()
        ]
        named = {parameter.name for parameter in own} - {"command", "module"}
        options = frozenset(map(_long, [*named, *flags, "output", "format"]))

        @functools.wraps(command)
        def run(**given: Any) -> int:
            typed = Typed(
                flags={name: given.pop(name, None) for name in flags},
                options=options,
                output=tuple(given.pop("output", None) or ()),
                **{name: given.pop(name) for name in SHOW if name != "output"},
            )
            try:
                with ends_on_signals():
                    return command(**given, typed=typed)
            except MissingOptionError as error:
                script, *args = given.get("command") or [""]
                option = typed.misplaced(args)
                if option is not None:
                    error.hint = (
                        f"{option} comes after {script}, so it goes to the script: type it before"
                    )
                raise

        # What typer reads: the command's own options, then the shared ones.
        run.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
        run.__annotations__ = {
            parameter.name: parameter.annotation for parameter in (*own, *shared)
        }
        return run  # type: ignore[return-value]

    return share


def _long(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _is_report(path: str) -> bool:
    from launchscope.report import all_reporters

    return Path(path).suffix in {s for reporter in all_reporters() for s in reporter.suffixes}
