"""The typer application, and the one place where an error becomes text and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

import typer

from launchscope.cli.console import Console
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


def _app(arguments: list[str]) -> typer.Typer:
    """The application, with the code of no other command than the one that is typed."""
    app = typer.Typer(
        name="launchscope",
        help="Should this PyTorch step become a CUDA graph? Measures the answer on an unmodified "
        "script.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    # Options in front of the command take no value.
    typed = next((argument for argument in arguments if not argument.startswith("-")), None)
    for name, summary in COMMANDS.items():
        settings = {"allow_interspersed_args": False} if name in _RUN_A_SCRIPT else None
        function = _function(name) if name == typed else _only_listed
        app.command(name, short_help=summary, context_settings=settings)(function)
    return app


def _function(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(import_module(f"launchscope.cli.{name}"), name)
    return found


def _only_listed() -> None:
    """In the place of a command that is not the one typed."""


def main(arguments: list[str] | None = None) -> int:
    """Runs one command line (sys.argv without it) and returns the exit code."""
    console = new_console()
    try:
        app = _app(sys.argv[1:] if arguments is None else arguments)
        result = app(arguments, prog_name="launchscope", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except LaunchscopeError as error:
        console.problem(error)
        return error.exit_code
    except _UsageProblem as problem:
        return _usage(console, problem)
    except (KeyboardInterrupt, typer.Abort):
        console.error("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain once more at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:
        return _internal(console, error)


def _usage(console: Console, problem: BaseException) -> int:
    """A command line that typer's parser refused."""
    context = getattr(problem, "ctx", None)
    if type(problem).__name__ == "NoArgsIsHelpError":
        console.out(str(problem) + "\n")
        return 2
    said = getattr(problem, "format_message", problem.__str__)()
    command = context.command_path if context is not None else "launchscope"
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

        console.stderr.write("".join(traceback.format_exception(error)))
    return INTERNAL_ERROR
