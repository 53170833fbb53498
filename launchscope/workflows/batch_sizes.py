"""The points of a comparison: the script at each batch size, which its arguments get."""

from __future__ import annotations

import re
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
_SETTING = re.compile(r"(?:[-+\w]*[-.+])?batch_?size=")
_MAX_POINTS = 64


class PlannedPoint(Struct, frozen=True):
    """The script at one batch size; None: as it was typed."""

    target: Target
    batch_size: int | None = None


def planned_points(
    target: Target, batch_sizes: Sequence[int | str] | None, batch_flag: str | None = None
) -> tuple[PlannedPoint, ...]:
    """A point per batch size, in ascending order; one point without any. UsageError for a size that
    is none, and for a script that does not seem to have a batch size."""
    if batch_sizes is None:
        if batch_flag is not None:
            raise UsageError("--batch-flag has no effect without --batch-sizes")
        return (PlannedPoint(target),)
    sizes: list[int] = [
        convert(word, Positive, "--batch-sizes", UsageError) for word in batch_sizes
    ]
    for size in sizes:
        if sizes.count(size) > 1:
            raise UsageError(f"--batch-sizes: {size} is given twice", hint="each value runs once")
    if len(sizes) > _MAX_POINTS:
        raise UsageError(
            f"{len(sizes)} points are more than the {_MAX_POINTS} that one comparison runs",
            hint="each point is a run of the script; give fewer values",
        )
    flag = _flag(target, batch_flag)
    return tuple(
        PlannedPoint(replace(target, args=_arguments(target.args, flag, str(size))), size)
        for size in sorted(sizes)
    )


def _arguments(args: Sequence[str], flag: str | None, size: str) -> tuple[str, ...]:
    """The arguments with this size. The last option counts for most parsers; a setting (`flag` ends
    with "=") may not come twice for some."""
    filled = tuple(arg.replace(PLACEHOLDER, size) for arg in args)
    if flag is None:
        return filled
    if not flag.endswith("="):
        return (*filled, flag, size)
    changed = tuple(flag + size if arg.startswith(flag) else arg for arg in filled)
    return changed if changed != filled else (*filled, flag + size)


def _flag(target: Target, given: str | None) -> str | None:
    """The script's own flag for the batch size; None if a placeholder has it."""
    if any(PLACEHOLDER in arg for arg in target.args):
        if given is not None:
            raise UsageError("the arguments contain {batch_size}, so --batch-flag has no effect")
        return None
    if given is not None:
        return given if given.startswith("-") or given.endswith("=") else f"--{given}"
    source = _source(target)
    # A setting that is typed already shows the spelling that this script reads.
    typed = [match[0] for match in map(_SETTING.match, target.args) if match]
    quoted = [f for f in _BATCH_FLAGS if f"'{f}'" in source or f'"{f}"' in source]
    if typed or quoted:
        return [*typed, *quoted][0]
    raise UsageError(
        f"{target.name} has no option that looks like a batch size, so every point would measure "
        "the same thing",
        hint="name its flag with --batch-flag, or put {batch_size} into its arguments",
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
