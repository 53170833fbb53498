"""What a profiled run shows of a step that keeps it eager, whatever is moved."""

from __future__ import annotations

import ast
from pathlib import Path

from launchscope.adopt.definitions import Imports
from launchscope.adopt.patch import Patch, Refusal
from launchscope.model import BlockerRecord, Recording
from launchscope.python_source import parsed

_CALLED = frozenset(("forward", "__call__"))  # of modules, by any name


def obstacle(recording: Recording, patch: Patch, folder: Path, root: Path) -> Refusal | None:
    """Why no call of the new function would be replayed; None if nothing is known. The files of the
    recording are relative to `folder`, and those below `root` are the project's."""
    if recording.inspect is None or any(fix == "validate_args" for fix, _ in patch.hunks):
        return None  # the checks of distributions are among what blocks
    for blocker in recording.inspect.blockers:
        if blocker.where is None or not _always_reads(blocker):
            continue
        file = folder / blocker.where.file
        in_project = file.is_relative_to(root)
        if in_project and _runs_inside(patch, file, blocker.where.line):
            return Refusal(file, blocker.where.line, "read_inside", blocker.code or blocker.op)
    return None


def _always_reads(blocker: BlockerRecord) -> bool:
    """Whether a line of the person's reads a value on the host in each step."""
    own = blocker.inside is None and blocker.library is None
    return own and blocker.category == "sync" and bool(blocker.by_step) and all(blocker.by_step)


def _runs_inside(patch: Patch, file: Path, line: int) -> bool:
    """Whether a line is in a function that the new function calls; what the step itself reads, the
    rewrite has moved."""
    try:
        tree = parsed(patch.before if file == patch.file else file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    if not around:
        return False
    function = max(around, key=lambda node: node.lineno)
    if file != patch.file:
        return function.name in _CALLED
    if patch.first_line <= line <= patch.last_line:
        return False
    known = Imports.of(parsed(patch.after))
    return function.name in known.within(patch.function) | _CALLED
