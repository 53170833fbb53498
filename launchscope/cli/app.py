"""The typer application, and the only place that turns errors into text and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

import typer

from launchscope.cli.console import Console, discard_output, new_console, open_streams
from launchscope.errors import LaunchscopeError

INTERRUPTED = 130
INTERNAL_ERROR = 3
BROKEN_PIPE = 141

# typer ships its own copy of click; the base class of BadParameter is what its parser raises.
_UsageProblem: type[Exception] = cast("type[Exception]", typer.BadParameter.__mro__[1])

# Module and function have the command's name. The list of commands shows these lines without
# importing the modules, which would take as long as everything else.
COMMANDS = {
    "profile": "Measure the step of a script, eagerly and as a CUDA graph replay.",
    "compare": "Profile a script at several batch sizes and under several strategies.",
    "check": "Fail when launch overhead got worse than a baseline.",
    "report": "Render what was saved, or read a trace; no GPU needed.",
    "rules": "List the rules, or explain one of them.",
    "doctor": "Show what is installed here and what can be measured.",
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


def _run(words: list[str]) -> Any:
    """Runs one command line. A command that comes first gets an application of its own, because
    building the application of all commands takes typer longer than the rest of the start."""
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
    """Stands for a command in the list of commands, which never runs any."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command line (default: that of the process) and return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["--"]:
        del words[0]
    open_streams()
    console = new_console(words[1:])
    try:
        result = _run(words)
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
        discard_output(sys.stdout)  # its reader is gone
        return BROKEN_PIPE
    except Exception as error:
        return _internal(console, error)


def _usage(console: Console, problem: BaseException, words: list[str]) -> int:
    """Reports a command line that typer's parser refused."""
    if type(problem).__name__ == "NoArgsIsHelpError":
        console.out(str(problem) + "\n")
        return 2
    text = getattr(problem, "format_message", problem.__str__)()
    command = " ".join(["launchscope", *(word for word in words[:1] if word in COMMANDS)])
    console.error(text.rstrip("."), f"{command} --help lists commands and options")
    return 2


def _internal(console: Console, error: Exception) -> int:
    console.error(
        f"launchscope failed: {type(error).__name__}: {error}",
        None
        if console.verbose
        else "this is a bug in launchscope: please report it, with the output of the same command "
        "with -v",
    )
    if console.verbose:
        import traceback

        console.beside("".join(traceback.format_exception(error)))
    return INTERNAL_ERROR
