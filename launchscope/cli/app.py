"""The typer application, and the only place that turns errors into text and exit codes."""

from __future__ import annotations

import atexit
import gc
import sys
from importlib import import_module
from typing import Any, cast

import typer

from launchscope.cli.console import discard_output, new_console, open_streams
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
_BUG = "this is a bug in launchscope: report it, with the output of the same command with -v"
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
    name = words[0]
    app = typer.Typer(
        help="Should this PyTorch step become a CUDA graph? Measures the answer on an unmodified "
        "script.",
        context_settings=_HELP,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    if name in COMMANDS:
        settings = {**_HELP, "allow_interspersed_args": name not in _RUN_A_SCRIPT}
        command = getattr(import_module(f"launchscope.cli.{name}"), name)
        app.command(name, context_settings=settings)(command)
        return app(words[1:], prog_name=f"launchscope {name}", standalone_mode=False)
    app.callback()(_root)
    for listed, summary in COMMANDS.items():
        app.command(listed, short_help=summary)(lambda: None)  # only listed, never run
    return app(words, prog_name="launchscope", standalone_mode=False)


def main(arguments: list[str] | None = None) -> int:
    """Run one command line (default: that of the process) and return the exit code."""
    if arguments is None:  # the process ends with this command
        # Nearly all objects that a command makes are still needed when they would be searched for
        # cycles, at its end for the last time.
        gc.set_threshold(100_000)
        atexit.register(gc.freeze)
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["--"]:
        del words[0]
    open_streams()
    console = new_console(words[1:])
    try:
        code = _run(words or ["--help"])
        return int(code or 0) if words else 2
    except LaunchscopeError as error:
        console.error(str(error), error.hint)
        return error.exit_code
    except _UsageProblem as problem:  # what typer's parser refused
        text = getattr(problem, "format_message", problem.__str__)()
        command = " ".join(["launchscope", *(word for word in words[:1] if word in COMMANDS)])
        console.error(text.rstrip("."), f"{command} --help lists commands and options")
        return 2
    except (KeyboardInterrupt, typer.Abort):
        console.error("interrupted")
        return INTERRUPTED
    except (BrokenPipeError, SystemExit):  # typer makes the latter of the former, with a 1
        discard_output(sys.stdout)  # its reader is gone
        return BROKEN_PIPE
    except Exception as error:
        text = f"launchscope failed: {type(error).__name__}: {error}"
        console.error(text, None if console.verbose else _BUG)
        if console.verbose:
            import traceback

            console.beside(traceback.format_exc())
        return INTERNAL_ERROR
