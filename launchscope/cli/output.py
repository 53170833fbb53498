"""Where a report goes: checked before the run, written after it, saved elsewhere if that fails."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launchscope.cli.console import Console
from launchscope.errors import LaunchscopeError, UsageError
from launchscope.host import write_whole
from launchscope.report import RenderOptions, Reporter, reporter_for_path, reporter_named

UNWRITTEN = 2


@dataclass(frozen=True)
class Outputs:
    """The format on stdout, and the files with theirs."""

    shown: Reporter
    files: tuple[tuple[Path, Reporter], ...]

    @classmethod
    def checked(cls, format_name: str, paths: Sequence[Path], kind: type) -> Outputs:
        """UsageError for an unknown format or suffix, a format that cannot show values of this
        kind, or a file that cannot be written."""
        shown = reporter_named(format_name)
        for path in paths:
            require_writable(path)
        files = tuple((path, reporter_for_path(path)) for path in paths)
        for reporter in (shown, *(reporter for _, reporter in files)):
            reporter.renderer(kind)
        return cls(shown, files)

    @property
    def report_again(self) -> tuple[str, ...]:
        """The command that shows the report again, if it is saved as JSON."""
        saved = next((path for path, reporter in self.files if reporter.name == "json"), None)
        return () if saved is None else (f"launchscope report {shlex.quote(str(saved))}",)

    def deliver(
        self,
        value: object,
        console: Console,
        next_commands: tuple[str, ...],
        problem: LaunchscopeError | None = None,
    ) -> int:
        """Print the report, write the files and print the problem; returns the exit code.

        The code is 2 if a file could not be written; a Profile or Comparison is then saved in a
        temporary folder.
        """
        options = RenderOptions(
            width=console.width,
            color=console.color,
            unicode=console.unicode,
            top=10_000 if console.verbose else None,
            folder=console.folder,
            next_commands=next_commands,
        )
        shown = self.shown.render(value, options)
        written: list[bool] = []
        try:
            console.out(shown)
        finally:  # write the files even if the reader of stdout is gone
            written += [self._written(path, kind, value, console) for path, kind in self.files]
        if not all(written):
            _rescue(value, console)
        if problem is not None:
            console.problem(problem)
            return problem.exit_code
        return 0 if all(written) else UNWRITTEN

    @staticmethod
    def _written(path: Path, reporter: Reporter, value: object, console: Console) -> bool:
        try:
            write(path, reporter.render(value, RenderOptions(folder=console.folder)))
        except OSError as error:
            console.error(f"cannot write {path}: {error.strerror or error}")
            return False
        console.message(f"wrote {path}")
        return True


def write(path: Path, content: str | bytes) -> None:
    """The whole file or nothing."""
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file():  # a pipe or a device
        path.write_bytes(data)
        return
    write_whole(path, data)


def append(path: Path, content: str | bytes, console: Console) -> None:
    """To the end of a file that others write to as well; a note if that does not work."""
    data = content.encode() if isinstance(content, str) else content
    try:
        with path.open("ab") as file:
            file.write(data)
    except OSError as error:
        console.note(f"cannot write {path}: {error.strerror or error}")


def require_writable(path: Path) -> None:
    """UsageError if the file cannot be written, which a probe beside it shows, or if a report
    would overwrite a trace or a recording."""
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a directory", hint="-o names a file, such as profile.json")
        if not path.parent.is_dir():
            raise UsageError(
                f"{path.parent} is not a directory",
                hint=f"mkdir -p {shlex.quote(str(path.parent))}",
            )
        if path.exists() and not path.is_file():
            return
        probe = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}",
            hint="choose another file with -o",
        ) from error
    if path.is_file() and _is_recorded(path):
        raise UsageError(
            f"-o {path} would overwrite a recording or a trace",
            hint="-o is for the report: name another file",
        )


def _is_recorded(path: Path) -> bool:
    from launchscope.parser import is_trace
    from launchscope.workflows.load_input import is_recording

    return is_recording(path) or is_trace(path)


def _rescue(value: object, console: Console) -> None:
    """Saves a Profile or Comparison whose file could not be written."""
    from launchscope.model import Comparison, Profile

    if not isinstance(value, Profile | Comparison):
        return
    noun = "Profile" if isinstance(value, Profile) else "comparison"
    content = reporter_named("json").render(value)
    try:
        saved = Path(tempfile.mkdtemp(prefix="launchscope-")) / f"{noun.lower()}.json"
        write(saved, content)
    except OSError as error:
        console.error(
            f"the {noun} could not be saved for later either: {error.strerror or error}",
            "set TMPDIR to a writable folder with room",
        )
        return
    console.error(
        f"the {noun} was saved as {saved}",
        f"launchscope report {saved} -o PATH writes it again",
    )
