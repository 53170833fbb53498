"""The parameters of a comparison: read, checked, and put into the script's arguments."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from math import prod
from types import MappingProxyType

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
_MAX_POINTS = 64
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True)
class Axis:
    """One parameter and its values as text. `flag` None: the value replaces `{name}` in the
    arguments, or is only in the environment."""

    name: str
    values: tuple[str, ...]
    flag: str | None = None


@dataclass(frozen=True)
class Combination:
    """The target of one point, and what is added to its environment."""

    parameters: dict[str, str]
    target: Target
    environ: dict[str, str]

    @property
    def batch_size(self) -> int | None:
        text = self.parameters.get(BATCH_SIZE)
        return int(text) if text is not None else None


def parse_parameters(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The values of each `NAME=a,b` of --param; UsageError for another form."""
    parameters: dict[str, tuple[str, ...]] = {}
    for word in words:
        name, equals, listed = word.partition("=")
        name = name.strip().lstrip("-")
        if name.replace("-", "_") == BATCH_SIZE:
            name = BATCH_SIZE
        values = tuple(value.strip() for value in listed.split(","))
        if not equals or not name or not all(values):
            raise UsageError(
                f"--param {word}: expected NAME=a,b", hint="such as --param width=128,256"
            )
        if name in parameters:
            raise _given_twice(name)
        parameters[name] = values
    return parameters


def axes_of(
    target: Target,
    options: ScriptOptions,
    *,
    batch_sizes: Sequence[int | str] | None = None,
    parameters: Mapping[str, Sequence[object]] = MappingProxyType({}),
    batch_flag: str | None = None,
) -> tuple[Axis, ...]:
    """Every axis with the flag that the script has for it.

    Raises UsageError for an axis that the script would ignore: every point would then measure
    the same thing.
    """
    axes: list[Axis] = []
    if batch_sizes is not None:
        sizes = _sizes(batch_sizes, "--batch-sizes")
        axes.append(Axis(BATCH_SIZE, sizes, _batch_flag(target, options, batch_flag)))
    elif batch_flag is not None:
        raise UsageError("--batch-flag has no effect without --batch-sizes")
    for name, given in parameters.items():
        if name in {axis.name for axis in axes}:
            raise _given_twice(name)
        if not all(part.isidentifier() for part in name.replace("-", "_").split(".")):
            raise UsageError(f"--param: {name} is not a name")
        values = tuple(map(str, given))
        if name == BATCH_SIZE:
            values = _sizes(values, f"--param {name}")
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None:
            raise UsageError(f"--param {name}: {twice} is given twice", hint="each value runs once")
        axes.append(Axis(name, values, _parameter_flag(name, target, options)))
    count = prod(len(axis.values) for axis in axes)
    if count > _MAX_POINTS:
        raise UsageError(
            f"{count} points are more than the {_MAX_POINTS} that one comparison runs",
            hint="each point is a run of the script; give fewer values",
        )
    return tuple(axes)


def _given_twice(name: str) -> UsageError:
    return UsageError(f"--param {name} is given twice", hint="list its values once")


def _sizes(words: Sequence[int | str], option: str) -> tuple[str, ...]:
    """Batch sizes in ascending order; UsageError for anything but distinct whole numbers from 1."""
    sizes: list[int] = []
    for word in words:
        try:
            size = int(word)
        except ValueError:
            problem = f"expected whole numbers, not {word}" if word else "a size is missing"
            raise UsageError(f"{option}: {problem}", hint="write them as 8,32,128") from None
        if size < 1:
            raise UsageError(f"{option}: a batch of {size} holds no sample", hint="1 or more")
        if size in sizes:
            raise UsageError(f"{option}: {size} is given twice", hint="each size runs once")
        sizes.append(size)
    return tuple(map(str, sorted(sizes)))


def combinations(axes: Sequence[Axis], target: Target) -> tuple[Combination, ...]:
    """The cross product, the last axis running fastest; one point where there is no axis."""
    return tuple(
        _combined(axes, values, target)
        for values in itertools.product(*(axis.values for axis in axes))
    )


def _combined(axes: Sequence[Axis], values: Sequence[str], target: Target) -> Combination:
    parameters = {axis.name: value for axis, value in zip(axes, values)}
    # In one pass: a value that looks like a placeholder stays a value.
    args = [
        _PLACEHOLDER.sub(lambda found: parameters.get(found[1], found[0]), arg)
        for arg in target.args
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


def _batch_flag(target: Target, options: ScriptOptions, given: str | None) -> str | None:
    """The script's own flag for the batch size; None if a placeholder or the environment has it."""
    if _has_placeholder(BATCH_SIZE, target):
        if given is not None:
            raise UsageError("the arguments contain {batch_size}, so --batch-flag has no effect")
        return None
    if given is not None:
        wanted = given if given.startswith("-") else f"--{given}"
        flag = options.spelled(wanted)
        if flag is None and options.opaque is None and options.found:
            raise _no_option("--batch-flag", wanted, target, options)
        return flag or wanted
    for name in _BATCH_FLAGS:
        flag = options.spelled(name)
        if flag is not None:
            return flag
    if any(BATCH_VARIABLE in word for word in options.words):
        return None
    known = f"it reads its options with {options.opaque}" if options.opaque else _known(options)
    raise UsageError(
        f"{target.name} has no option for a batch size, so every point would measure the same "
        "thing",
        hint=f"{known}; put {{batch_size}} into its arguments, name its flag with --batch-flag, or "
        f"have the script read {BATCH_VARIABLE}",
    )


def _parameter_flag(name: str, target: Target, options: ScriptOptions) -> str | None:
    if _has_placeholder(name, target):
        return None
    flag = options.spelled(name)
    if flag is None:
        error = _no_option(f"--param {name}", f"--{name}", target, options)
        error.hint = f"{error.hint}. Or put {{{name}}} into the arguments, where the value belongs"
        raise error
    return flag


def _no_option(place: str, wanted: str, target: Target, options: ScriptOptions) -> UsageError:
    near = get_close_matches(wanted, sorted(options.flags), n=1)
    return UsageError(
        f"{place}: {target.name} has no option {wanted}, so every point would measure the same "
        "thing",
        hint=f"did you mean {near[0]}?" if near else _known(options),
    )


def _has_placeholder(name: str, target: Target) -> bool:
    return any("{" + name + "}" in arg for arg in target.args)


def _known(options: ScriptOptions) -> str:
    if not options.found:
        return "its source was not found"
    if not options.flags:
        return "no options were found in its source"
    shown = sorted(options.flags)[:8]
    more = f" and {len(options.flags) - 8} more" if len(options.flags) > 8 else ""
    return f"it has {', '.join(shown)}{more}"
