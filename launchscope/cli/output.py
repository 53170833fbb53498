"""Where a report goes: checked before the run, written after it, never lost."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launchscope.cli.console import Console
from launchscope.errors import UsageError
from launchscope.host import write_whole
from launchscope.report import Reporter, reporter_for_path, reporter_named

UNWRITTEN = 2


@dataclass(frozen=True)
class Outputs:
    """The formats and places a person asked for."""

    shown: Reporter
    files: tuple[tuple[Path, Reporter], ...]

    @classmethod
    def checked(cls, format_name: str, paths: Sequence[Path], kind: type) -> Outputs:
        """UsageError for an unknown format or suffix, one that cannot show values of this kind,
        or a place that cannot be written."""
        shown = reporter_named(format_name)
        for path in paths:
            check_place(path)
        files = tuple((path, reporter_for_path(path)) for path in paths)
        for reporter in (shown, *(reporter for _, reporter in files)):
            reporter.renderer(kind)
        return cls(shown, files)

    def deliver(self, value: object, console: Console, next_commands: tuple[str, ...]) -> int:
        """Prints the report and writes the files. Exit code 2 if a file could not be written;
        a Profile or comparison is then in a folder for temporary files, which is named."""
        options: dict[str, object] = {
            "width": console.width,
            "color": console.color,
            "unicode": console.unicode,
            "folder": console.folder,
            "top": 10_000 if console.verbose else 8,
            "next_commands": next_commands,
        }
        shown = self.shown.render(value, **options)
        written: list[bool] = []
        try:
            console.out(shown)
        finally:  # the files are wanted also when nobody reads stdout any more
            written += [self._written(path, kind, value, console) for path, kind in self.files]
        if all(written):
            return 0
        _rescue(value, console)
        return UNWRITTEN

    @staticmethod
    def _written(path: Path, reporter: Reporter, value: object, console: Console) -> bool:
        try:
            write(path, reporter.render(value, folder=console.folder))
        except OSError as error:
            console.error(f"cannot write {path}: {error.strerror or error}")
            return False
        console.progress(f"wrote {path}")
        return True


def write(path: Path, content: str | bytes) -> None:
    """All of it or nothing."""
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file():  # a pipe or a device
        path.write_bytes(data)
        return
    write_whole(path, data)


def append(path: Path, content: str | bytes, console: Console) -> None:
    """At the end of a file that others write to as well; a note where that does not work."""
    data = content.encode() if isinstance(content, str) else content
    try:
        with path.open("ab") as file:
            file.write(data)
    except OSError as error:
        console.note(f"cannot write {path}: {error.strerror or error}")


def check_place(path: Path) -> None:
    """UsageError unless the place can be written (writing nothing to it shows that), or where a
    report would take the place of what was recorded."""
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
            hint="choose another place with -o",
        ) from error
    if path.is_file() and _is_recorded(path):
        raise UsageError(
            f"-o {path} would overwrite what was recorded",
            hint="-o is for the report: name another file",
        )


def _is_recorded(path: Path) -> bool:
    from launchscope.parser import is_trace
    from launchscope.workflows.load_input import is_recording

    return is_recording(path) or is_trace(path)


def _rescue(value: object, console: Console) -> None:
    """What was measured, a Profile or a comparison, is never lost for want of a place."""
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
            "set TMPDIR to a folder with room",
        )
        return
    console.error(
        f"the {noun} was saved as {saved}", f"launchscope report {saved} -o PATH writes it again"
    )
