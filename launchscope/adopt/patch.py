"""What the rewrite takes and gives: the calls of one step as they ran, and a patch or a refusal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    import_line: int = 0  # of `after`: `from launchscope import graphed`, alone on its line
    inner: frozenset[str] = frozenset()  # names that the step binds and only the step reads
    reference: bytes = b""  # `before` with the changes beside the step, if there are any


@dataclass(frozen=True)
class Refusal:
    """Why there is no patch. `name` is the name, statement or call that stands in the way."""

    file: Path | None
    line: int | None
    reason: RefusalReason
    name: str | None = None


@dataclass(frozen=True)
class Ran:
    """What is known of the run whose step is rewritten."""

    # Of an SGD with momentum, some parameters have had no gradient. The fused form fails when they
    # get one beside others that have a buffer.
    partial_momentum: bool = False


def rewrite(
    places: Sequence[Place], read: Callable[[Path], bytes], ran: Ran = Ran()
) -> Patch | Refusal:
    """Move the step that made these calls into a graphed function.

    `read` gives the bytes of a file as they were when the calls ran; it may raise OSError.
    """
    from launchscope.adopt.rewrite import rewrite_step  # libcst takes 0.3 s to import

    return rewrite_step(places, read, ran)
