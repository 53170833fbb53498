"""What the rewrite takes and gives: the calls of one step as they ran, and a patch or an error."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from launchscope.model import Covered as Covered
from launchscope.model import Fix as Fix
from launchscope.model import RefusalReason as RefusalReason
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
    inner: frozenset[str] = frozenset()  # names that the step binds and only the step reads
    reference: bytes = b""  # `before` with the changes beside the step, if there are any


class RefusedError(Exception):
    """There is no patch. `name` is the name, statement or call that stands in the way; `why` what
    it does. Without a file, it is that of the step."""

    def __init__(
        self,
        reason: RefusalReason,
        at: ast.AST | int | None = None,
        name: str | None = None,
        *,
        why: str | None = None,
        file: Path | None = None,
    ):
        super().__init__(reason)
        self.reason, self.name, self.why, self.file = reason, name, why, file
        self.line: int | None = at if isinstance(at, int | None) else getattr(at, "lineno", None)
