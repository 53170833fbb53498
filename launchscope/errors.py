"""Every exception launchscope raises on purpose.

LaunchscopeError
├── UsageError            exit 2: flags, arguments, files the person named
│   ├── ConfigError       exit 2: environment variables and [tool.launchscope]
├── MeasureError          exit 3: the run gave nothing to report on
│   └── NoStepError       exit 3: no repeating step was found
├── InputError            exit 3: a trace, Profile or recording could not be read
└── ScriptError           the script's own exit code: it failed, before a verdict or under --full

Each carries a sentence, a hint on what to do about it, and the exit code of the process. Where it
says what another error says, it is raised `from None`: in a traceback, Python would write the path
or the content that the other one quotes to the terminal or to the log as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from launchscope.visible import visible, without_commands


class LaunchscopeError(Exception):
    """Base of the tree. `exit_code` and `hint` may be set per instance."""

    exit_code: int = 3

    def __init__(self, message: str, *, hint: str | None = None, exit_code: int | None = None):
        # Python, or who catches it, writes it to the terminal or to the log as it is.
        super().__init__(without_commands(visible(message)))
        self.hint = None if hint is None else without_commands(visible(hint))
        if exit_code is not None:
            self.exit_code = exit_code


class UsageError(LaunchscopeError):
    """The command cannot run the way it was typed."""

    exit_code = 2


class ConfigError(UsageError):
    """A setting has an unknown name or a value of the wrong form."""


class MeasureError(LaunchscopeError):
    """The script ran, but nothing could be measured."""


class NoStepError(MeasureError):
    """The script has no repeating step."""


class InputError(LaunchscopeError):
    """A file given as input is missing, damaged, foreign or of another version."""


class ScriptError(LaunchscopeError):
    """The script failed before a verdict was possible, or later if it was let finish. `exit_code`
    is its own, or 128 + N for death by signal N. `out_of_memory`: it ended because the GPU had no
    memory left."""

    def __init__(
        self, message: str, *, exit_code: int, hint: str | None = None, out_of_memory: bool = False
    ):
        super().__init__(message, hint=hint, exit_code=exit_code)
        self.out_of_memory = out_of_memory


@contextmanager
def raised_as(
    kind: type[LaunchscopeError], problem: str, *, hint: str | None = None, names_file: bool = False
) -> Iterator[None]:
    """Inside, an OSError becomes this error: the problem, the file if `names_file`, and the reason
    that the system gives."""
    try:
        yield
    except OSError as error:
        file = f" {error.filename}" if names_file else ""
        raise kind(f"{problem}{file}: {error.strerror or error}", hint=hint) from None
