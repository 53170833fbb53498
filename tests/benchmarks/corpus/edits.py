"""The changes that a person makes to run a script's step as a CUDA graph with plain PyTorch.

`edits/ID.json` has the lines to look for and the lines to put there. `both` makes a script
countable: it calls `step_done` of stopwatch.py after each step, and evaluates less often.
`captured` is the change itself.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.corpus.scripts import Script, sample, workloads

EDITS = Path(__file__).parent / "edits"
BLOCK, LEAD = 10, 4


class EditError(Exception):
    """An edit does not fit the script."""


class Edit(NamedTuple):
    """Where `find` stands in the file, `put` takes its place. Relative to the script's folder."""

    file: str
    find: list[str]
    put: list[str]


class ByHand(NamedTuple):
    """`note` says what the person has to do besides calling the step through a graph. A window
    times `block` iterations together, after `lead` that are left out."""

    id: str
    kind: str
    note: str
    both: list[Edit]
    captured: list[Edit]
    block: int = BLOCK
    lead: int = LEAD


def read(path: Path) -> ByHand:
    stored = json.loads(path.read_text())
    both, captured = ([Edit(**each) for each in stored[part]] for part in ("both", "captured"))
    block, lead = stored.get("block", BLOCK), stored.get("lead", LEAD)
    return ByHand(path.stem, stored["kind"], stored["note"], both, captured, block, lead)


def available() -> dict[str, ByHand]:
    """All scripts that were captured by hand, by their id."""
    return {path.stem: read(path) for path in sorted(EDITS.glob("*.json"))}


def scripts() -> dict[str, Script]:
    """The scripts that may have edits: the sample, this project's own sample workloads, and
    variants with more arguments."""
    found = {script.id: script for script in [*sample(), *workloads(400)]}
    for path in EDITS.glob("*.json"):
        if variant := json.loads(path.read_text()).get("variant_of"):
            script, more = found[variant[0]], variant[1]
            found[path.stem] = script._replace(id=path.stem, command=[*script.command, *more])
    return found


def edited(source: str, edit: Edit) -> str:
    """The source with the edit. Raises EditError unless its place is there exactly once."""
    old, new = "\n".join(edit.find), "\n".join(edit.put)
    count = source.count(old)
    if not old or count != 1:
        raise EditError(f"{edit.file}: {count} places have {edit.find[0]!r} and what follows")
    return source.replace(old, new)


def apply(edits: Sequence[Edit], inside: Path) -> None:
    """Edit the files of a script. Raises EditError also if one is no longer Python."""
    for edit in edits:
        path = inside / edit.file
        source = edited(path.read_text(), edit)
        path.write_text(source)
    for name in sorted({edit.file for edit in edits}):
        try:
            ast.parse((inside / name).read_text(), name)
        except SyntaxError as error:
            raise EditError(f"{name}, line {error.lineno}: {error.msg}") from error
