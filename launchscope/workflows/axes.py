"""The parameters of a comparison: read, checked, and put into the script's arguments."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from math import prod
from pathlib import Path
from types import MappingProxyType

from launchscope.config import BATCH_VARIABLE, Positive, convert
from launchscope.errors import UsageError
from launchscope.frozen import dataclass
from launchscope.model import Target
from launchscope.recorded import masked_value

BATCH_SIZE = "batch_size"
# The usual names of a batch size, the plainest first, without dashes and in lower case.
_BATCH_NAMES = (
    {"batchsize", "batchsz", "batch", "bs"},
    {"trainbatchsize", "perdevicetrainbatchsize", "microbatchsize"},
    {"b"},
)
_MAX_POINTS = 64
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_QUOTED_FLAG = re.compile(r"""["'](--?[A-Za-z][\w.-]*)["']""")
_SAME = "so every point would measure the same thing"


@dataclass(frozen=True)
class Axis:
    """One parameter and its values as text. A `flag` that ends with "=" and the value are one word.
    `flag` None: the value replaces `{name}` in the arguments, or is only in the environment."""

    name: str
    values: tuple[str, ...]
    flag: str | None = None


@dataclass(frozen=True)
class Combination:
    """The target of one point, and what is added to its environment. `parameters` are what is
    shown and saved, without secrets."""

    parameters: dict[str, str]
    target: Target
    environ: dict[str, str]

    @property
    def name(self) -> str:
        return ", ".join(f"{key} {value}" for key, value in self.parameters.items())

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
    *,
    batch_sizes: Sequence[int | str] | None = None,
    parameters: Mapping[str, Sequence[object]] = MappingProxyType({}),
    batch_flag: str | None = None,
) -> tuple[Axis, ...]:
    """Every axis with the flag that the script has for it. UsageError for one that the script does
    not seem to have."""
    source = _source(target)
    axes: list[Axis] = []
    if batch_sizes is not None:
        if BATCH_SIZE in parameters:
            raise _given_twice(BATCH_SIZE)
        sizes = _sizes(batch_sizes, "--batch-sizes")
        axes.append(Axis(BATCH_SIZE, sizes, _batch_flag(target, source, batch_flag)))
    elif batch_flag is not None:
        raise UsageError("--batch-flag has no effect without --batch-sizes")
    for name, given in parameters.items():
        values = tuple(map(str, given))
        if name == BATCH_SIZE:
            values = _sizes(values, f"--param {name}")
        _require_distinct(values, f"--param {name}")
        axes.append(Axis(name, values, _parameter_flag(name, target, source)))
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
    sizes: list[int] = [convert(word, Positive, option, UsageError) for word in words]
    _require_distinct(sizes, option)
    return tuple(map(str, sorted(sizes)))


def _require_distinct(values: Sequence[object], option: str) -> None:
    for value in values:
        if values.count(value) > 1:
            raise UsageError(f"{option}: {value} is given twice", hint="each value runs once")


def combinations(axes: Sequence[Axis], target: Target) -> tuple[Combination, ...]:
    """The cross product, the last axis running fastest; one point where there is no axis."""
    points = itertools.product(*(axis.values for axis in axes))
    return tuple(_combination(axes, values, target) for values in points)


def _combination(axes: Sequence[Axis], values: Sequence[str], target: Target) -> Combination:
    given = {axis.name: value for axis, value in zip(axes, values)}
    args = [_filled(arg, given) for arg in target.args]
    for axis, value in zip(axes, values):
        if axis.flag is not None:
            args = _with_option(args, axis.flag, value)
    environ = {BATCH_VARIABLE: given[BATCH_SIZE]} if BATCH_SIZE in given else {}
    parameters = {axis.name: _shown(axis, value) for axis, value in zip(axes, values)}
    return Combination(parameters, replace(target, args=tuple(args)), environ)


def _shown(axis: Axis, value: str) -> str:
    """The value, or for a secret its place in the list."""
    masked = masked_value(axis.name, value)
    if masked == value or len(axis.values) == 1:
        return masked
    return f"{masked} {axis.values.index(value) + 1}"


def _with_option(args: list[str], flag: str, value: str) -> list[str]:
    """The last option counts for most parsers; some refuse a setting that comes twice."""
    if not flag.endswith("="):
        return [*args, flag, value]
    changed = [flag + value if arg.startswith(flag) else arg for arg in args]
    return changed if changed != args else [*args, flag + value]


def _filled(arg: str, values: Mapping[str, str]) -> str:
    """Fills all placeholders in one pass, so that a value that looks like one stays a value."""
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), arg)


# --------------------------------------------------------------- the flag of a parameter


def _source(target: Target) -> str:
    """The text of the script, or of a module below the working directory; empty if it is not
    found."""
    stem = Path(*target.name.split("."))
    candidates = [Path(target.name)]
    if target.kind == "module":
        candidates = [stem.with_suffix(".py"), stem / "__main__.py"]
    path = next((path for path in candidates if path.is_file()), None)
    return "" if path is None else path.read_text(encoding="utf-8", errors="replace")


def _batch_flag(target: Target, source: str, given: str | None) -> str | None:
    """The script's own flag for the batch size; None if a placeholder or the environment has it."""
    if _has_placeholder(BATCH_SIZE, target):
        if given is not None:
            raise UsageError("the arguments contain {batch_size}, so --batch-flag has no effect")
        return None
    if given is not None:
        return given if given.startswith("-") or given.endswith("=") else f"--{given}"
    # A setting that is typed already shows the spelling that this script reads.
    typed = {f"{arg.partition('=')[0]}=" for arg in target.args if "=" in arg}
    for flags in (typed, _flags(source)):
        for names in _BATCH_NAMES:
            found = sorted(flag for flag in flags if _bare(flag) in names)
            if len(found) > 1:
                raise UsageError(
                    f"{target.name} has {len(found)} options that may be its batch size: "
                    f"{', '.join(found[:-1])} and {found[-1]}",
                    hint=f"--batch-flag {found[0]} takes this one",
                )
            if found:
                return found[0]
    if BATCH_VARIABLE in source:
        return None
    raise UsageError(
        f"{target.name} has no option that looks like a batch size, {_SAME}",
        hint="name its flag with --batch-flag, put {batch_size} into its arguments, or have the "
        f"script read {BATCH_VARIABLE}",
    )


def _parameter_flag(name: str, target: Target, source: str) -> str | None:
    """The flag as the script spells it; one that its source does not show may come from a library,
    unless the script names flags of its own."""
    if _has_placeholder(name, target):
        return None
    flags = _flags(source)
    known = {flag.lstrip("-").replace("-", "_"): flag for flag in sorted(flags)}
    flag = known.get(name.replace("-", "_"))
    if flag is not None or not flags:
        return flag or f"--{name}"
    near = get_close_matches(f"--{name}", sorted(flags), n=1)
    meant = f"did you mean {near[0]}? Or " if near else ""
    raise UsageError(
        f"--param {name}: {target.name} has no option --{name}, {_SAME}",
        hint=f"{meant}put {{{name}}} into the arguments, where the value belongs",
    )


def _flags(source: str) -> set[str]:
    """What stands in quotes and looks like a flag, as in calls of argparse and click."""
    return set(_QUOTED_FLAG.findall(source))


def _bare(flag: str) -> str:
    """`batchsize` of `--data.batch_size=`."""
    return re.sub(r"[\W_]", "", flag.rstrip("=").rpartition(".")[2]).lower()


def _has_placeholder(name: str, target: Target) -> bool:
    return any("{" + name + "}" in arg for arg in target.args)
