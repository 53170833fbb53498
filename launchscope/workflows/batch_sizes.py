"""The script at each batch size: its arguments with the size in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import Struct

from launchscope.config import Positive, convert
from launchscope.errors import UsageError
from launchscope.model import Target

PLACEHOLDER = "{batch_size}"
# The usual flags for a batch size, the plainest first.
_BATCH_FLAGS = ("--batch-size", "--batch_size", "--batchsize", "--batch", "--bs", "-b")


class PlannedPoint(Struct, frozen=True):
    """The script at one batch size; None: as it was typed."""

    target: Target
    batch_size: int | None = None


def planned_points(
    target: Target, batch_sizes: Sequence[int | str] | None
) -> tuple[PlannedPoint, ...]:
    """A point per batch size, in ascending order; one point without any. UsageError for a size that
    is none, and for a script that does not seem to have a batch size."""
    if batch_sizes is None:
        return (PlannedPoint(target),)
    sizes: set[int] = {convert(word, Positive, "--batch-sizes", UsageError) for word in batch_sizes}
    args = target.args
    if not any(PLACEHOLDER in arg for arg in args):
        args = (*args, _flag(target), PLACEHOLDER)  # the last option counts for most parsers
    return tuple(
        PlannedPoint(
            replace(target, args=tuple(arg.replace(PLACEHOLDER, str(size)) for arg in args)), size
        )
        for size in sorted(sizes)
    )


def _flag(target: Target) -> str:
    """The script's own flag for the batch size."""
    source = _source(target)
    for flag in _BATCH_FLAGS:
        if f"'{flag}'" in source or f'"{flag}"' in source:
            return flag
    raise UsageError(
        f"{target.name} has no option that looks like a batch size, so every point would measure "
        "the same thing",
        hint="put {batch_size} into its arguments, where the size belongs",
    )


def _source(target: Target) -> str:
    """The text of the script, or of a module below the working directory; empty if it is not
    found."""
    stem = Path(*target.name.split("."))
    candidates = [Path(target.name)]
    if target.kind == "module":
        candidates = [stem.with_suffix(".py"), stem / "__main__.py"]
    path = next((path for path in candidates if path.is_file()), None)
    return "" if path is None else path.read_text(encoding="utf-8", errors="replace")
