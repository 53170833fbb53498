"""Files with reports: whether one can be written, and writing it whole."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from launchscope.errors import UsageError, raised_as
from launchscope.host import Blocks, require_room_beside, write_whole
from launchscope.visible import without_commands

if TYPE_CHECKING:
    from launchscope.report import Content


def write_report(path: Path, content: Content, *, mode: int = 0o666) -> None:
    """The whole file or nothing; blocks are compressed if its name ends in .gz. `cat` may show a
    text to a CI service later; bytes are written as they are. `mode` is of a new file. Raises
    OSError."""
    if isinstance(content, Blocks):
        from launchscope.parser.decompress import compress

        is_compressed = path.suffix.lower() == ".gz"
        blocks = Blocks(lambda: compress(content)) if is_compressed else content
        write_whole(path, blocks, mode=mode)
    else:
        text = without_commands(content).encode() if isinstance(content, str) else content
        write_whole(path, text, mode=mode)


def require_writable(path: Path) -> None:
    """UsageError if the file cannot be written, which a probe beside it shows."""
    with raised_as(UsageError, f"cannot write {path}", hint="choose another file with -o"):
        if path.is_dir():
            raise UsageError(f"{path} is a directory", hint="-o names a file, such as profile.json")
        if not path.parent.is_dir():
            raise UsageError(
                f"{path.parent} is not a directory",
                hint=f"mkdir -p {shown_path(path.parent)}",
            )
        require_room_beside(path)


def shown_path(path: Path) -> str:
    """A path in a shell command, where a dash would begin an option."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)
