"""The parameters of a comparison: read, checked, and put into the script's arguments."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from math import prod
from types import MappingProxyType

from launchscope.config import BATCH_VARIABLE, Positive, convert
from launchscope.errors import UsageError
from launchscope.frozen import dataclass
from launchscope.model import Target
from launchscope.recorded import masked_value
from launchscope.workflows.script_flags import ScriptOptions

BATCH_SIZE = "batch_size"
# What scripts call it, without what separates words; each form counts only if no earlier one is
# there. `--test-batch-size` beside `--batch-size` is no second candidate.
_BATCH_NAMES = (
    re.compile(r"(?!.*(eval|test|val|infer|auto|find|scale|max)).*batch(size|sz).*|bs|batch"),
    re.compile(r"b"),
    re.compile(r".*batch(size|sz).*"),
)
_MAX_POINTS = 64
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
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
    options: ScriptOptions,
    *,
    batch_sizes: Sequence[int | str] | None = None,
    parameters: Mapping[str, Sequence[object]] = MappingProxyType({}),
    batch_flag: str | None = None,
) -> tuple[Axis, ...]:
    """Every axis with the flag that the script has for it; UsageError for one that the script would
    ignore, so that every point would measure the same thing."""
    axes: list[Axis] = []
    if batch_sizes is not None:
        if BATCH_SIZE in parameters:
            raise _given_twice(BATCH_SIZE)
        sizes = _sizes(batch_sizes, "--batch-sizes")
        axes.append(Axis(BATCH_SIZE, sizes, _batch_flag(target, options, batch_flag)))
    elif batch_flag is not None:
        raise UsageError("--batch-flag has no effect without --batch-sizes")
    for name, given in parameters.items():
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
    sizes = [convert(word, Positive, option, UsageError) for word in words]
    for size in sizes:
        if sizes.count(size) > 1:
            raise UsageError(f"{option}: {size} is given twice", hint="each size runs once")
    return tuple(map(str, sorted(sizes)))


def combinations(axes: Sequence[Axis], target: Target) -> tuple[Combination, ...]:
    """The cross product, the last axis running fastest; one point where there is no axis."""
    found, shown = [], {axis.name: _shown(axis) for axis in axes}
    for values in itertools.product(*(axis.values for axis in axes)):
        given = {axis.name: value for axis, value in zip(axes, values)}
        args = [_filled(arg, given) for arg in target.args]
        for axis, value in zip(axes, values):
            if axis.flag is not None:
                args = _with_option(args, axis.flag, value)
        environ = {BATCH_VARIABLE: given[BATCH_SIZE]} if BATCH_SIZE in given else {}
        parameters = {name: shown[name][value] for name, value in given.items()}
        found.append(Combination(parameters, replace(target, args=tuple(args)), environ))
    return tuple(found)


def _shown(axis: Axis) -> dict[str, str]:
    """How each value is shown: secrets only by their place in the list."""
    masked = {value: masked_value(axis.name, value) for value in axis.values}
    same = Counter(masked.values())
    return {
        value: text if same[text] == 1 else f"{text} {place}"
        for place, (value, text) in enumerate(masked.items(), 1)
    }


def _with_option(args: list[str], flag: str, value: str) -> list[str]:
    """The last option counts for most parsers; some refuse a setting that comes twice."""
    if not flag.endswith("="):
        return [*args, flag, value]
    changed = [flag + value if arg.startswith(flag) else arg for arg in args]
    return changed if any(arg.startswith(flag) for arg in args) else [*args, flag + value]


def _filled(arg: str, values: Mapping[str, str]) -> str:
    """Fills all placeholders in one pass, so that a value that looks like one stays a value."""
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), arg)


def _batch_flag(target: Target, options: ScriptOptions, given: str | None) -> str | None:
    """The script's own flag for the batch size; None if a placeholder or the environment has it."""
    if _has_placeholder(BATCH_SIZE, target):
        if given is not None:
            raise UsageError("the arguments contain {batch_size}, so --batch-flag has no effect")
        return None
    if given is not None:
        wanted = given if given.startswith("-") or given.endswith("=") else f"--{given}"
        flag = wanted if wanted.endswith("=") else options.spelled(wanted)
        if flag is None and options.opaque is None and options.found:
            raise _no_option("--batch-flag", wanted, target, options)
        return flag or wanted
    # A setting that is typed already shows the spelling that this script reads.
    typed = {f"{arg.partition('=')[0]}=" for arg in target.args if "=" in arg}
    for words, forms in (
        ([(word,) for word in sorted(typed)], _BATCH_NAMES[:1]),
        (sorted(options.declared), _BATCH_NAMES),
        ([(word,) for word in sorted(options.settings)], _BATCH_NAMES[:1]),
    ):
        found = _candidates(words, forms)
        if len(found) > 1:
            raise UsageError(
                f"{target.name} has {len(found)} options that may be its batch size: "
                f"{', '.join(found[:-1])} and {found[-1]}",
                hint=f"--batch-flag {found[0]} takes this one",
            )
        if found:
            return found[0]
    if any(BATCH_VARIABLE in word for word in options.words):
        return None
    known = f"it reads its options with {options.opaque}" if options.opaque else _known(options)
    raise UsageError(
        f"{target.name} has no option for a batch size, {_SAME}",
        hint=f"{known}; put {{batch_size}} into its arguments, name its flag with --batch-flag, or "
        f"have the script read {BATCH_VARIABLE}",
    )


def _candidates(options: Sequence[tuple[str, ...]], forms: Sequence[re.Pattern[str]]) -> list[str]:
    """What may set the batch size among options, each given by its spellings: the longest one."""
    for form in forms:
        found = [
            max(spellings, key=len)
            for spellings in options
            if any(form.fullmatch(_bare(word)) for word in spellings)
        ]
        if found:
            return list(dict.fromkeys(found))
    return []


def _bare(word: str) -> str:
    """`batchsize` of `--data.batch_size=`."""
    return re.sub(r"[\W_]", "", word.rstrip("=").rpartition(".")[2]).lower()


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
        f"{place}: {target.name} has no option {wanted}, {_SAME}",
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
