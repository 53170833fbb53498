"""The parameters of a comparison: read, checked, and put into the script's arguments."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from launchscope.config import BATCH_VARIABLE
from launchscope.errors import UsageError
from launchscope.model import Target
from launchscope.workflows.script_flags import ScriptOptions

BATCH_SIZE = "batch_size"
# What scripts call it, the usual names first.
_BATCH_FLAGS = (
    "batch-size", "bs", "batchsize", "batch", "train-batch-size", "per-device-train-batch-size",
    "per-gpu-batch-size", "micro-batch-size", "eval-batch-size", "b",
)  # fmt: skip
_MOST_POINTS = 64
_PLACE = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True)
class Axis:
    """One parameter and its values as text. `flag` None: it fills `{name}` in the arguments, or
    is in the environment alone."""

    name: str
    values: tuple[str, ...]
    flag: str | None = None


@dataclass(frozen=True)
class Combination:
    """One point to be run."""

    parameters: dict[str, str]
    target: Target
    environ: dict[str, str]

    @property
    def batch_size(self) -> int | None:
        text = self.parameters.get(BATCH_SIZE)
        return int(text) if text is not None else None


def batch_sizes(text: str, option: str = "--batch-sizes") -> tuple[int, ...]:
    """`8,32,128` in ascending order; UsageError for anything but distinct whole numbers from 1."""
    sizes: list[int] = []
    for part in text.split(","):
        word = part.strip()
        if not word:
            raise UsageError(
                f"{option} {text}: there is nothing between two commas"
                if text.strip(", ")
                else f"{option} names no size",
                hint="write them as 8,32,128",
            )
        try:
            size = int(word)
        except ValueError:
            raise UsageError(
                f"{option}: expected whole numbers, not {word}", hint="write them as 8,32,128"
            ) from None
        if size < 1:
            raise UsageError(f"{option}: a batch of {size} holds no sample", hint="1 or more")
        if size in sizes:
            raise UsageError(f"{option}: {size} is named twice", hint="each size runs once")
        sizes.append(size)
    return tuple(sorted(sizes))


def parameter(text: str) -> Axis:
    """`NAME=a,b` of --param; UsageError for another form."""
    name, equals, listed = text.partition("=")
    name = name.strip().lstrip("-")
    if name.replace("-", "_") == BATCH_SIZE:
        name = BATCH_SIZE
    values = tuple(value.strip() for value in listed.split(","))
    if not equals or not name or not all(values):
        raise UsageError(f"--param {text}: expected NAME=a,b", hint="such as --param width=128,256")
    if not all(part.isidentifier() for part in name.replace("-", "_").split(".")):
        raise UsageError(f"--param {text}: {name} is not a name")
    twice = next((value for value in values if values.count(value) > 1), None)
    if twice is not None:
        raise UsageError(f"--param {name}: {twice} is named twice", hint="each value runs once")
    return Axis(name, values)


def axes_of(
    sizes: str | None,
    parameters: Sequence[str],
    batch_flag: str | None,
    target: Target,
    options: ScriptOptions,
) -> tuple[Axis, ...]:
    """Every axis with the flag that the script has for it.

    Raises UsageError where the script would take no notice of it: every point would then
    measure the same thing.
    """
    axes: list[Axis] = []
    if sizes is not None:
        values = tuple(map(str, batch_sizes(sizes, "--batch-sizes")))
        axes.append(Axis(BATCH_SIZE, values, _batch_flag(target, options, batch_flag)))
    elif batch_flag is not None:
        raise UsageError("--batch-flag is of no use without --batch-sizes")
    for text in parameters:
        axis = parameter(text)
        if axis.name in {known.name for known in axes}:
            raise UsageError(f"--param {axis.name} is given twice", hint="list its values once")
        if axis.name == BATCH_SIZE:
            # It is the batch size, however it was typed: samples are counted with it.
            values = tuple(map(str, batch_sizes(",".join(axis.values), f"--param {BATCH_SIZE}")))
            axis = replace(axis, values=values)
        axes.append(replace(axis, flag=_flag_of(axis.name, target, options)))
    count = 1
    for axis in axes:
        count *= len(axis.values)
    if count > _MOST_POINTS:
        raise UsageError(
            f"{count} points are more than the {_MOST_POINTS} that one comparison runs",
            hint="each point is a run of the script; take fewer values",
        )
    return tuple(axes)


def combinations(axes: Sequence[Axis], target: Target) -> tuple[Combination, ...]:
    """The cross product, the last axis running fastest; one point where there is no axis."""
    return tuple(
        _combined(axes, values, target)
        for values in itertools.product(*(axis.values for axis in axes))
    )


def _combined(axes: Sequence[Axis], values: Sequence[str], target: Target) -> Combination:
    parameters = {axis.name: value for axis, value in zip(axes, values)}
    # In one pass: a value that looks like a place is a value.
    args = [
        _PLACE.sub(lambda place: parameters.get(place[1], place[0]), arg) for arg in target.args
    ]
    for axis, value in zip(axes, values):
        if axis.flag is not None:
            args += [axis.flag, value]
    batch = parameters.get(BATCH_SIZE)
    return Combination(
        parameters,
        replace(target, args=tuple(args)),
        {} if batch is None else {BATCH_VARIABLE: batch},
    )


def _batch_flag(target: Target, options: ScriptOptions, chosen: str | None) -> str | None:
    """The script's own flag for the batch size; None if the arguments or the environment do."""
    if _has_place(BATCH_SIZE, target):
        if chosen is not None:
            raise UsageError("the arguments hold {batch_size}, so --batch-flag is of no use")
        return None
    if chosen is not None:
        return _chosen(chosen, target, options)
    for name in _BATCH_FLAGS:
        flag = options.spelled(name)
        if flag is not None:
            return flag
    if any(BATCH_VARIABLE in word for word in options.words):
        return None
    raise UsageError(
        f"{target.name} has no option for a batch size, so all points would measure the same thing",
        hint=_no_flag_hint(options),
    )


def _chosen(chosen: str, target: Target, options: ScriptOptions) -> str:
    wanted = chosen if chosen.startswith("-") else f"--{chosen}"
    flag = options.spelled(wanted)
    if flag is not None or options.opaque is not None or not options.found:
        return flag or wanted
    near = get_close_matches(wanted, sorted(options.flags), n=1)
    raise UsageError(
        f"--batch-flag: {target.name} has no option {wanted}, so all points would measure the "
        "same thing",
        hint=f"did you mean {near[0]}?" if near else _known(options),
    )


def _flag_of(name: str, target: Target, options: ScriptOptions) -> str | None:
    if _has_place(name, target):
        return None
    flag = options.spelled(name)
    if flag is not None:
        return flag
    near = get_close_matches(f"--{name}", sorted(options.flags), n=1)
    hint = f"did you mean {near[0].lstrip('-')}?" if near else f"{_known(options)}."
    raise UsageError(
        f"--param {name}: {target.name} has no option --{name}, so all points would measure the "
        "same thing",
        hint=f"{hint} Or put {{{name}}} where it belongs in the arguments",
    )


def _has_place(name: str, target: Target) -> bool:
    return any("{" + name + "}" in arg for arg in target.args)


def _no_flag_hint(options: ScriptOptions) -> str:
    ways = (
        "put {batch_size} into its arguments, name its flag with --batch-flag, or let the script "
        f"read {BATCH_VARIABLE}"
    )
    if options.opaque is not None:
        return f"its options are read by {options.opaque}: {ways}"
    return f"{_known(options)}; {ways}"


def _known(options: ScriptOptions) -> str:
    if not options.found:
        return "its source was not found"
    if not options.flags:
        return "no options were found in its source"
    shown = sorted(options.flags)[:8]
    more = f" and {len(options.flags) - 8} more" if len(options.flags) > 8 else ""
    return f"it has {', '.join(shown)}{more}"
