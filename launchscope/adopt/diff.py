"""A patch as the lines that people read, and that `git apply` takes."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from launchscope.adopt.patch import Patch
from launchscope.visible import visible

_CONTEXT = 3


def diff_lines(patch: Patch, root: Path) -> tuple[str, ...]:
    """The change of the file as a unified diff below `root`, without line feeds. A byte that is no
    UTF-8 is a surrogate, as Python reads it."""
    text = _diff(patch.file, patch.before, patch.after, root).decode("utf-8", "surrogateescape")
    return tuple(text.split("\n")[:-1])


def _diff(file: Path, before: bytes, after: bytes, root: Path) -> bytes:
    """In latin-1 each byte is a character, whatever the encoding of the file."""
    name = os.path.relpath(file, root)
    a_name, b_name = _quoted(f"a/{name}"), _quoted(f"b/{name}")
    body = difflib.unified_diff(_lines(before), _lines(after), a_name, b_name, n=_CONTEXT)
    made = []
    for line in body:
        made.append(line)
        if not line.endswith("\n"):
            made.append("\n\\ No newline at end of file\n")
    head = f"diff --git {a_name} {b_name}\n"
    return head.encode("utf-8", "surrogateescape") + b"".join(
        line.encode("utf-8", "surrogateescape")
        if line.startswith(("--- ", "+++ ")) and number < 2
        else line.encode("latin-1")
        for number, line in enumerate(made)
    )


def _quoted(name: str) -> str:
    """A name as git writes it: one with a line break, for example, would begin other lines."""
    if visible(name) == name and not set(name) & {'"', "\\"}:
        return name
    signs = (
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}"
        for byte in os.fsencode(name)
    )
    return f'"{"".join(signs)}"'


def _lines(content: bytes) -> list[str]:
    lines = content.decode("latin-1").split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
