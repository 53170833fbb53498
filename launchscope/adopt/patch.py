"""What the rewrite takes and gives: the calls of one step as they ran, and a patch or a refusal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from launchscope.model import Covered as Covered
from launchscope.model import Fix as Fix
from launchscope.model import ReasonCode
from launchscope.model import StepCallKind as Call


@dataclass(frozen=True)
class Place:
    """One call of the step as it ran. `frames`: (file, line, function), innermost first, of the
    person's own files only, absolute paths; `<string>` and the like where there is no file."""

    what: Call
    frames: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True)
class Patch:
    """A changed file. Lines count from 1, inclusive, and are those of `before`."""

    file: Path
    before: bytes
    after: bytes
    function: str  # the new graphed function
    first_line: int
    last_line: int
    covered: Covered
    hunks: tuple[tuple[Fix, int], ...] = ()
    import_line: int = 0  # of `after`: `from launchscope import graphed`, alone on its line
    inner: frozenset[str] = frozenset()  # names that the step binds and only the step reads
    reference: bytes = b""  # `before` with the changes beside the step, if there are any


@dataclass(frozen=True)
class Refusal:
    """Why there is no patch. `name` is the name, statement or call that stands in the way."""

    file: Path | None
    line: int | None
    reason: ReasonCode
    name: str | None = None
