"""Builds the NVTX tool of injection.c and reads what it saw of another process."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

SOURCE = Path(__file__).with_name("injection.c")


@dataclass(frozen=True)
class Range:
    """One range. `path` holds the messages from the outermost pushed range of its domain
    and thread to this one; `closed` is False where the process ended inside it."""

    pid: int
    domain: str
    path: tuple[str, ...]
    closed: bool

    @property
    def message(self) -> str:
        return self.path[-1]


def build(directory: Path) -> Path:
    """Compiles the tool into `directory`; `CC` names another compiler than cc."""
    library = directory / "libranges.so"
    compiler = os.environ.get("CC", "cc")
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared"]
    subprocess.run([compiler, *flags, str(SOURCE), "-o", str(library)], check=True)
    return library


def observe(command: list[str], library: Path, directory: Path) -> list[Range]:
    """Runs `python <command>` in `directory` with the tool loaded; the ranges it saw.

    The command must succeed. `library` is what `build` made.
    """
    ranges = directory / "ranges.tsv"
    result = subprocess.run(
        [sys.executable, *command],
        env={
            **os.environ,
            "NVTX_INJECTION64_PATH": str(library),
            "NVTX_RANGES_FILE": str(ranges),
        },
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return read(ranges)


def read(ranges: Path) -> list[Range]:
    """Every range of the file in the order of its push; empty if no tool was loaded."""
    if not ranges.exists():
        return []
    found: list[Range] = []
    nested: dict[tuple[str, str, str], list[int]] = {}  # push and pop, per thread and domain
    started: dict[tuple[str, str], int] = {}  # start and end, per process and id
    for line in ranges.read_text().splitlines():
        pid, thread, kind, domain, identity, message = line.split("\t")
        stack = nested.setdefault((pid, thread, domain), [])
        if kind == "push":
            outer = found[stack[-1]].path if stack else ()
            stack.append(len(found))
            found.append(Range(int(pid), domain, (*outer, message), closed=False))
        elif kind == "start":
            started[pid, identity] = len(found)
            found.append(Range(int(pid), domain, (message,), closed=False))
        else:
            at = stack.pop() if kind == "pop" else started.pop((pid, identity))
            found[at] = replace(found[at], closed=True)
    return found
