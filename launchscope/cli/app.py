"""The typer application, and the only place that turns errors into text and exit codes."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from launchscope.cli.console import console, discard_output, new_console
from launchscope.errors import LaunchscopeError

INTERRUPTED = 130
INTERNAL_ERROR = 3
BROKEN_PIPE = 141

# typer ships its own copy of click; the base class of BadParameter is what its parser raises.
_UsageProblem: type[Exception] = cast("type[Exception]", typer.BadParameter.__mro__[1])

# Module and function have the command's name.
COMMANDS = {
    "profile": "Measure the step of a script, eagerly and as a CUDA graph replay.",
    "adopt": "Change the step of a script into a CUDA graph, run it, and show the patch.",
    "watch": "Run a script to its end, and say what its GPU waited for.",
    "compare": "Profile a script at several batch sizes and under several strategies.",
    "check": "Fail when a step launches more than a baseline.",
    "report": "Render the last run or what was saved, or read a trace; no GPU needed.",
    "rules": "List the rules, or explain one.",
    "docs": "List the pages of the documentation, or print one.",
    "doctor": "Show what is installed here and what can be measured.",
}
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 10_000}
_BUG = "this is a bug in launchscope: report it, with the output of the same command with -v"
_RUN_A_SCRIPT = ("profile", "adopt", "watch", "compare", "check")


class _Commands(TyperGroup):
    """Imports the module of a command once that is needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _command(cmd_name) if cmd_name in COMMANDS else None


def _command(name: str) -> Any:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    settings = {**_SETTINGS, "allow_interspersed_args": name not in _RUN_A_SCRIPT}
    run = getattr(import_module(f"launchscope.cli.{name}"), name)
    app.command(name, cls=_Command, context_settings=settings, short_help=COMMANDS[name])(run)
    return typer.main.get_command(app)


class _Command(TyperCommand):
    """A command whose help has a section for each group of options."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            kind = "Arguments" if param.param_type_name == "argument" else "Options"
            title = getattr(param, "rich_help_panel", None) or kind
            if record is not None:
                sections.setdefault(title, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The words as typed. To convert them, typer loads pydantic, which takes longer than
        anything else of the start."""
        values, rest, _ = self.make_parser(ctx).parse_args(list(args))
        found = {param.name: param.consume_value(ctx, values)[0] for param in self.params}
        plain = all(isinstance(value, bool | Sequence | None) for value in found.values())
        if rest or "help" in values or not plain:
            with console().writing():
                return super().parse_args(ctx, args)  # which says what is wrong, or helps
        ctx.params.update(found)
        return []


def _version(wanted: bool) -> None:
    if wanted:
        import launchscope

        typer.echo(f"launchscope {launchscope.__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    help="Should this PyTorch step become a CUDA graph? Measures the answer on an unmodified "
    "script.",
    context_settings=_SETTINGS,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    pass


def _run(words: list[str]) -> Any:
    """One command line. The group itself, for which typer loads pydantic, only lists its
    commands."""
    name = words[0]
    if name in COMMANDS:
        return _command(name)(words[1:], prog_name=f"launchscope {name}", standalone_mode=False)
    with console().writing():
        return app(words, prog_name="launchscope", standalone_mode=False)


def _right_command(words: list[str]) -> str | None:
    """What to type for a line that begins with a script or with no command; None: unknown."""
    from difflib import get_close_matches

    from launchscope.recorded import shown_command

    meant = get_close_matches(words[0], COMMANDS, n=1) if words[0].isalpha() else []
    if meant:
        return shown_command(["launchscope", *meant, *words[1:]])
    runs = "-m" in words[:-1] or any(word.endswith(".py") for word in words)
    return shown_command(["launchscope", "profile", *words]) if runs else None


def main(arguments: list[str] | None = None) -> int:
    """Run one command line (default: that of the process) and return the exit code."""
    if arguments is None:  # the process ends with this command
        atexit.register(gc.freeze)  # or all objects would be searched for cycles once more
    words = list(sys.argv[1:] if arguments is None else arguments)
    terminal = new_console(words[1:])
    try:
        code = _run(words or ["--help"])
        return int(code or 0) if words else 2
    except LaunchscopeError as error:
        terminal.error(str(error), error.hint)
        return error.exit_code
    except _UsageProblem as problem:  # what typer's parser refused
        text = getattr(problem, "format_message", problem.__str__)()
        has_command = words[0] in COMMANDS
        command = f"launchscope {words[0]}" if has_command else "launchscope"
        right = None if has_command else _right_command(words)
        terminal.error(text.rstrip("."), right or f"{command} --help lists commands and options")
        return 2
    except (KeyboardInterrupt, typer.Abort):
        terminal.error("interrupted")
        return INTERRUPTED
    except (BrokenPipeError, SystemExit):  # typer makes the latter of the former
        discard_output(sys.stdout)  # its reader is gone
        return BROKEN_PIPE
    except Exception as error:
        text = f"launchscope failed: {type(error).__name__}: {error}"
        terminal.error(text, None if terminal.verbose else _BUG)
        if terminal.verbose:
            import traceback

            terminal.beside(traceback.format_exc())
        return INTERNAL_ERROR
