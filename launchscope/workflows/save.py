"""Files with reports: whether one can be written, and writing it whole."""

from __future__ import annotations

import shlex
from pathlib import Path

from launchscope.errors import UsageError
from launchscope.host import require_room_beside, write_whole
from launchscope.visible import without_commands


def write_report(path: Path, content: str | bytes, *, mode: int = 0o666) -> None:
    """The whole file or nothing. `cat` may show it to a CI service later. `mode` is of a new file.
    Raises OSError."""
    text = content.decode() if isinstance(content, bytes) else content
    write_whole(path, without_commands(text).encode(), mode=mode)


def require_writable(path: Path) -> None:
    """UsageError if the file cannot be written, which a probe beside it shows, or if a report
    would overwrite a trace or a recording."""
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a directory", hint="-o names a file, such as profile.json")
        if not path.parent.is_dir():
            raise UsageError(
                f"{path.parent} is not a directory",
                hint=f"mkdir -p {shown_path(path.parent)}",
            )
        require_room_beside(path)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}",
            hint="choose another file with -o",
        ) from error
    if path.is_file():
        from launchscope.parser import is_trace
        from launchscope.workflows.load_input import is_recording

        if is_recording(path) or is_trace(path):
            raise UsageError(
                f"-o {path} would overwrite a recording or a trace",
                hint="-o is for the report: name another file",
            )


def shown_path(path: Path) -> str:
    """A path in a shell command, where a dash would begin an option."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)
