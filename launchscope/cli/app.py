"""The typer application, and the one place where an error becomes text and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

import typer

from launchscope.cli.console import Console, open_streams, to_nowhere
from launchscope.cli.state import new_console
from launchscope.errors import LaunchscopeError

INTERRUPTED = 130
INTERNAL_ERROR = 3
BROKEN_PIPE = 141

# typer ships its own copy of click; what its parser raises is the base of BadParameter.
_UsageProblem: type[Exception] = cast("type[Exception]", typer.BadParameter.__mro__[1])

# Module and function have the command's name. The line is for the list of commands, which is shown
# without importing them: together they need as long as all the rest.
COMMANDS = {
    "profile": "Measure the step of a script, eagerly and as a CUDA graph replay.",
    "compare": "Profile a script at several batch sizes, and ways to adopt.",
    "check": "Fail when launch overhead got worse than a baseline.",
    "report": "Render what was saved, or read a trace; no GPU needed.",
    "rules": "List the rules, or explain one of them.",
    "doctor": "Say what is installed here and what can be measured.",
}
_HELP = {"help_option_names": ["-h", "--help"]}
_RUN_A_SCRIPT = ("profile", "compare", "check")


def _version(wanted: bool) -> None:
    if wanted:
        import launchscope

        typer.echo(f"launchscope {launchscope.__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    pass


def _carry_out(words: list[str]) -> Any:
    """One command line. A command that is typed first is an application of its own: typer need not
    go through what all commands share, which takes it longer than all of ours."""
    name = words[0] if words else ""
    if name in COMMANDS:
        function: Callable[..., Any] = getattr(import_module(f"launchscope.cli.{name}"), name)
        settings = {**_HELP, "allow_interspersed_args": name not in _RUN_A_SCRIPT}
        app = _application()
        app.command(name, context_settings=settings)(function)
        return app(words[1:], prog_name=f"launchscope {name}", standalone_mode=False)
    app = _application(
        help="Should this PyTorch step become a CUDA graph? Measures the answer on an unmodified "
        "script.",
        no_args_is_help=True,
        context_settings=_HELP,
    )
    app.callback()(_root)
    for name, summary in COMMANDS.items():
        app.command(name, short_help=summary)(_only_listed)
    return app(words, prog_name="launchscope", standalone_mode=False)


def _application(**settings: Any) -> typer.Typer:
    return typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, **settings
    )


def _only_listed() -> None:
    """In the place of a command in the list of them; none is reached by way of the list."""


def main(arguments: list[str] | None = None) -> int:
    """Runs one command line (sys.argv without it) and returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["--"]:
        del words[0]
    open_streams()
    console = new_console()
    try:
        result = _carry_out(words)
        return result if isinstance(result, int) else 0
    except LaunchscopeError as error:
        console.problem(error)
        return error.exit_code
    except _UsageProblem as problem:
        return _usage(console, problem, words)
    except (KeyboardInterrupt, typer.Abort):
        console.error("interrupted")
        return INTERRUPTED
    except (BrokenPipeError, SystemExit):  # typer makes the latter of the former, with a 1
        to_nowhere(sys.stdout)  # whoever read it has gone
        return BROKEN_PIPE
    except Exception as error:
        return _internal(console, error)


def _usage(console: Console, problem: BaseException, words: list[str]) -> int:
    """A command line that typer's parser refused."""
    if type(problem).__name__ == "NoArgsIsHelpError":
        console.out(str(problem) + "\n")
        return 2
    said = getattr(problem, "format_message", problem.__str__)()
    command = " ".join(["launchscope", *(word for word in words[:1] if word in COMMANDS)])
    console.error(said.rstrip("."), f"{command} --help lists what there is")
    return 2


def _internal(console: Console, error: Exception) -> int:
    console.error(
        f"launchscope failed: {type(error).__name__}: {error}",
        None
        if console.verbose
        else "this is a bug of launchscope: please report it, with the "
        "output of the same command with -v",
    )
    if console.verbose:
        import traceback

        console.beside("".join(traceback.format_exception(error)))
    return INTERNAL_ERROR
