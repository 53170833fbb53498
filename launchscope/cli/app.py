"""The typer application, and the one place where an error becomes text and an exit code."""

from __future__ import annotations

import os
import sys
from typing import cast

import typer

from launchscope.cli.check import check
from launchscope.cli.compare import compare
from launchscope.cli.console import Console
from launchscope.cli.doctor import doctor
from launchscope.cli.profile import profile
from launchscope.cli.report import report
from launchscope.cli.rules import rules
from launchscope.cli.state import new_console
from launchscope.errors import LaunchscopeError

INTERRUPTED = 130
INTERNAL_ERROR = 3
BROKEN_PIPE = 141

# typer ships its own copy of click; what its parser raises is the base of BadParameter.
_UsageProblem: type[Exception] = cast("type[Exception]", typer.BadParameter.__mro__[1])

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


def _version(wanted: bool) -> None:
    if wanted:
        import launchscope

        typer.echo(f"launchscope {launchscope.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    pass


app.command(context_settings={"allow_interspersed_args": False})(profile)
app.command(context_settings={"allow_interspersed_args": False})(compare)
app.command(context_settings={"allow_interspersed_args": False})(check)
app.command()(report)
app.command()(rules)
app.command()(doctor)


def main(arguments: list[str] | None = None) -> int:
    """Runs one command line (sys.argv without it) and returns the exit code."""
    console = new_console()
    try:
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
