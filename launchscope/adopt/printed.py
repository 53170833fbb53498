"""Compares what a run printed, or wrote to a file, with what runs of the original did.

A line is its words, the template, and its numbers. Each place of a number in a template is a series
over the lines that have this template. What the runs of the original do not have in common is no
result of the step, and is left out.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from statistics import median

# A value that is stale by one step is off by the change in this step, of which there may be some
# ten from line to line; rounding is far less.
_OF_A_CHANGE = 0.05
_NOISE_FACTOR = 10  # as of tensors
# Relative errors that are none: of runs that differ by rounding, and of runs with equal bits.
_ROUNDING, _EXACT = 1e-4, 1e-6
# In fewer lines there is no change to compare with; then a number may be off by this share.
_FEW_LINES, _NEAR = 5, 0.01
# One more sample that is classified correctly changes the last digit of a number that is as large.
_FEW_UNITS, _FEW_DIGITS = 10, 3
_RARE_CHANGE = 0.02  # of a series that changes once or twice: less may be rounding
_MOST_WRONG = 1.5  # of so many lines, one is wrong, of a number that rounding does not move
_SLOW = 2  # a number that changes in at most one of so many lines
_COUNTING = 0.8  # of the changes of a counter are the same
_LATE_PCT = 5  # of the lines: where a run is stopped, another may have printed more, or less

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# A tensor that is returned from a graphed function is detached.
_OF_AUTOGRAD = re.compile(r",\s*(?:grad_fn=<\w*>|requires_grad=True)")
# The patch has more lines.
_OF_SOURCE = re.compile(r"""(\.py["']?(?::|, line ))\d+""")
_NUMBER = re.compile(
    r"""(
    0x[0-9a-fA-F]+
    | \d{4}[-/]\d\d[-/]\d\d
    | \d+:\d\d(?::\d\d)?(?:[.,]\d+)?
    | (?:(?<![\w.)\]])[-+])?
      (?: (?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?
        | (?<![A-Za-z_])(?:nan|NaN|inf)(?![A-Za-z_]) )
    )""",
    re.VERBOSE,
)
# Words and units of what may change with a faster step: times, rates and memory.
_RESOURCE = re.compile(
    r"(?<![a-z])(?:times?(?![ _-]?steps?(?![a-z]))|elapsed|took|eta|dt|duration|latency|wall|clock"
    r"|secs?|seconds|ms|minutes"
    r"|hours|speed|throughput|fps|sps|t?flops|mfu|mem|memory|vram|allocated|reserved|cached"
    r"|temp|util|utilization|[a-z]+/s(?:ec(?:ond)?)?"
    r"|(?:done|finished|completed|ended) in)(?![a-z])"
)
# Of these, what is the same in each run of one version, and another one in that with a graph.
_MEMORY = re.compile(
    r"(?<![a-z])(?:mem|memory|vram|allocated|reserved|cached|peak|util|utilization|[kmgt]i?b)(?![a-z])"
)
# The last word before a number, where it is none of them: `memory loss 0.3`.
_RESULT = re.compile(
    r"(?<![a-z/])(?<!per )(?:loss(?:es)?|acc(?:uracy)?|err(?:or)?|rewards?|returns?|scores?|mse"
    r"|mae|rmse|kl|entropy|ppl|perplexity|bleu|f1|auc|norm|grad|lr|rate|steps?|epochs?"
    r"|iter(?:ation)?s?|batch(?:es)?"
    r"|episodes?|samples?)\W*$"
)
_UNIT = re.compile(
    r"(?:\s*(?:s|secs?|seconds?|ms|us|µs|ns|mins?|minutes?|hrs?|hours?|[KkMGT]i?B|bytes|fps|FPS|Hz"
    r"|[A-Za-z]+/(?:s|sec|second|it|iter|step|batch))|m|h)(?![A-Za-z])"  # `0.5 m` is a length
)


@dataclass(frozen=True)
class Difference:
    """The first line that differs; "" where one of the two prints none."""

    original: str
    patched: str


@dataclass(frozen=True)
class Printed:
    """`lines` were compared, and so many `left_out`, which runs of the original do not have in
    common. `rank`: where the difference is, of several; `file`: or in which file; `logged`: or in
    what is logged."""

    lines: int
    left_out: int
    found: Difference | None = None
    rank: int | None = None
    file: str | None = None
    logged: bool = False


@dataclass
class _Text:
    lines: list[str] = field(default_factory=list)
    templates: list[str] = field(default_factory=list)
    # By template: the numbers of each line as they are written, and which lines these are.
    rows: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    places: dict[str, list[int]] = field(default_factory=dict)
    words: dict[str, list[str]] = field(default_factory=dict)  # around the numbers of a first line
    overwritten: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, text: str) -> _Text:
        made = cls()
        for line, overwritten in _lines(text):
            parts = _NUMBER.split(line)
            template = "\0".join("".join(part.split()) for part in parts[::2])
            if not template:
                continue
            made.places.setdefault(template, []).append(len(made.lines))
            made.rows.setdefault(template, []).append(tuple(parts[1::2]))
            made.words.setdefault(template, parts[::2])
            made.lines.append(line)
            made.templates.append(template)
            if overwritten:
                made.overwritten.add(template)
        return made

    @cached_property
    def counts(self) -> dict[str, int]:
        return Counter(self.templates)

    def of_templates(self, kept: Set[str]) -> list[int]:
        return [at for at, template in enumerate(self.templates) if template in kept]


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """Each with whether one is written over another."""
    text = _without_places(_ESCAPES.sub("", text))
    for line in text.replace("\r\n", "\n").replace("\b", "\r").split("\n"):
        pieces = line.split("\r")
        yield from ((piece, len(pieces) > 1) for piece in pieces)


def compare_printed(
    originals: Sequence[str],
    patched: str,
    *,
    rounded: Sequence[str] = (),
    exact: bool = False,
    repeatable: bool = True,
    stopped: bool = True,
) -> Printed:
    """With the first of the `originals`; the others, and those that are `rounded` in another way,
    show what its numbers depend on. `exact`: the patched run computes the same bits. `repeatable`:
    so do the originals. `stopped`: the runs did not go on to the end of the script."""
    reference, *twins = map(_Text.of, originals)
    perturbed = list(map(_Text.of, rounded))
    other = _Text.of(patched)
    others = [*twins, *perturbed]
    kept = {
        template
        for template, count in reference.counts.items()
        if all(run.counts.get(template) == count for run in others)
    }
    drawn = reference.overwritten
    if any(run.counts.get(t) != reference.counts[t] for t in drawn for run in (other, *others)):
        kept -= drawn  # a progress bar is drawn as often as its time allows
    left_out = max(
        sum(count for template, count in run.counts.items() if template not in kept)
        for run in (reference, *others)
    )
    if len({tuple(run.templates[at] for at in run.of_templates(kept)) for run in
            (reference, *others)}) > 1:  # fmt: skip
        # Threads print in turns that no seed decides.
        few = _late(len(reference.lines)) if stopped else 0
        missing = [t for t in kept if t not in other.counts and reference.counts[t] > few]
        if missing:
            first = min(reference.places[t][0] for t in missing)
            return Printed(0, left_out, Difference(reference.lines[first], ""))
        kept = {t for t in kept if reference.counts[t] == other.counts.get(t)}
    else:
        found = _other_line(reference, other, kept, stopped)
        if found is not None and not exact:
            # A comparison that rounding decides prints a line more here and there.
            kept = {t for t in kept if not _about_as_often(reference, other, t)}
            found = _other_line(reference, other, kept, stopped)
        if found is None:
            found = _new_line(reference, other, left_out, stopped)
        if found is not None:
            return Printed(0, left_out, found)
    wrong = [
        (reference.places[template][at], other.places[template][at])
        for template in kept
        if template in other.rows
        for at in _wrong_numbers(template, reference, other, twins, perturbed, exact, repeatable)
    ]
    lines = len(reference.of_templates(kept))
    if not wrong:
        return Printed(lines, len(reference.lines) - lines)
    one, another = min(wrong)
    return Printed(lines, left_out, Difference(reference.lines[one], other.lines[another]))


def _without_places(text: str) -> str:
    """Without what a patch changes of a text: gradient functions and lines of the source."""
    return _OF_SOURCE.sub(r"\1", _OF_AUTOGRAD.sub("", text))


def words_and_results(text: str) -> tuple[str, list[float]]:
    """The words of a text, and its numbers but for times, rates and memory."""
    parts = _NUMBER.split(_without_places(text))
    resource, found = False, []
    for place, number in enumerate(parts[1::2]):
        resource = _is_resource(parts[2 * place], resource)
        value = _value(number)
        if not resource and not _UNIT.match(parts[2 * place + 2]) and math.isfinite(value):
            found.append(value)
    return "\0".join(parts[::2]), found


def _about_as_often(one: _Text, other: _Text, template: str) -> bool:
    """Not equally often, but by chance. That is no line which makes up most of the text."""
    count, found = one.counts[template], other.counts.get(template, 0)
    few = 2 * count <= len(one.lines)
    return few and found > 0 and 0 < abs(count - found) <= _late(count)


def _late(lines: int) -> int:
    return 1 + lines * _LATE_PCT // 100


def _other_line(one: _Text, other: _Text, kept: Set[str], stopped: bool) -> Difference | None:
    """The first that has other words, or is missing."""
    wanted, found = one.of_templates(kept), other.of_templates(kept)
    common = min(len(wanted), len(found))
    late = _late(len(wanted)) if stopped and len(wanted) != len(found) else 0
    for at in range(max(0, common - late)):
        if one.templates[wanted[at]] != other.templates[found[at]]:
            break
    else:
        if abs(len(wanted) - len(found)) <= late:
            return None
        at = common
    after = found[at - 1] + 1 if at else 0  # the line behind the last that is equal
    return Difference(
        one.lines[wanted[at]] if at < len(wanted) else "",
        other.lines[after] if after < len(other.lines) else "",
    )


def _new_line(one: _Text, other: _Text, left_out: int, stopped: bool) -> Difference | None:
    """One that the original never prints, where it may not be another form of one left out."""
    end = len(other.lines) - (_late(len(other.lines)) if stopped else 0)
    known = {*one.counts, *other.overwritten}
    new = [at for at, template in enumerate(other.templates[:end]) if template not in known]
    if len(new) <= 2 * left_out:
        return None
    return Difference("", other.lines[new[0]])


def _wrong_numbers(
    template: str,
    reference: _Text,
    other: _Text,
    twins: Sequence[_Text],
    perturbed: Sequence[_Text],
    exact: bool,
    repeatable: bool,
) -> Iterator[int]:
    """For each place of a number, the first line of this template in which it is wrong."""
    lines = min(reference.counts[template], other.counts[template])
    if reference.rows[template][:lines] == other.rows[template][:lines]:
        return
    words = reference.words[template]
    columns = [list(zip(*run.rows[template])) for run in (reference, *twins, *perturbed)]
    resource, results = False, []
    for place, after in enumerate(words[1:]):
        resource = _is_resource(words[place], resource)
        measured = resource or _UNIT.match(after) is not None
        if not measured or _is_repeated([each[place] for each in columns], words, place):
            results.append(place)
    runs = [
        [tuple(row[place] for place in results if place < len(row)) for row in of.rows[template]]
        for of in (reference, other, *twins, *perturbed)
    ]
    # A list of many numbers that is printed once is a series of its own.
    is_list = lines < _FEW_LINES <= len(results) // 2 and not exact
    series = zip(*runs) if is_list else zip(*(zip(*run[:lines]) for run in runs))
    for number, (one, another, *rest) in enumerate(series):
        same = all(values == one for values in rest[: len(twins)])
        if one == another or (repeatable and not same):
            continue
        at = _first_wrong(one, another, rest, same, exact, rounds=exact or bool(perturbed))
        if at is not None:
            yield number if is_list else at


def _is_resource(before: str, last: bool) -> bool:
    """Whether a number behind these words is a time, a rate or memory; `last`: the one before it
    is, to which it may belong."""
    words = re.split(r"[,;|]", before.lower())[-1]
    if re.search("[a-z]", words) is None:
        return last and re.search("[a-z]", before.lower()) is None
    return _RESOURCE.search(words) is not None and _RESULT.search(words) is None


def _is_repeated(columns: Sequence[Sequence[str]], words: Sequence[str], place: int) -> bool:
    """Whether all runs of the original have the same series of many digits: that is no time."""
    first, *others = columns
    many = sum(_digits(text) >= _FEW_DIGITS for text in first)
    return (
        bool(others)
        and all(each == first for each in others)
        and 2 * many > len(first)
        and len(set(first)) > _FEW_LINES
        and not any(_MEMORY.search(text.lower()) for text in words[place : place + 2])
    )


def _first_wrong(
    one: Sequence[str],
    another: Sequence[str],
    others: Sequence[Sequence[str]],
    same: bool,
    exact: bool,
    rounds: bool,
) -> int | None:
    """The line where a series goes wrong. `others`: of other runs of the original; `same`: those
    that round as it does have this very series; `rounds`: there are some that round in another way,
    or none is needed."""
    wanted, found, *rest = ([_value(text) for text in series] for series in (one, another, *others))
    errors = [_apart(*pair) for pair in zip(wanted, found)]
    off = [at for at, error in enumerate(errors) if error]
    if (
        rounds
        and all(each == one for each in others)
        and len(set(one)) > 1
        and _MOST_WRONG * len(off) > len(one)
    ):
        return off[0]  # rounding moves the last digit of few numbers, and would have in other runs
    noises = [max((_apart(a, b) for b in c), default=0.0) for a, *c in zip(wanted, *rest)]
    if len(one) < _FEW_LINES:
        if not same:
            return None
        for at, text in enumerate(one):
            allowed = max(_NOISE_FACTOR * noises[at], _allowed_once(text, exact))
            if errors[at] > allowed:
                return at
        return None
    if exact and same:
        for at, text in enumerate(one):
            if _digits(text) >= _FEW_DIGITS and errors[at] > _allowed_once(text, exact):
                return at
    early = _off_by_a_line(one, wanted, found) if same and not any(noises) else None
    if early is not None:
        return early
    noise = _NOISE_FACTOR * median(noises)
    floor = _EXACT if exact else _ROUNDING
    changes = [0.0, *(_apart(*pair) for pair in pairwise(wanted))]
    changed = [at for at, change in enumerate(changes) if change]
    if noise and noise >= median([changes[at] for at in changed] or [0.0]):
        return None
    sizes = [abs(value) for value in wanted if math.isfinite(value)]
    if not same and noise > _NOISE_FACTOR * _NEAR * median(sizes or [0.0]):
        return None  # a time, rather than what the order of sums decides

    def is_wrong(at: int, change: float) -> bool:
        size = abs(wanted[at]) if math.isfinite(wanted[at]) else 0.0
        return errors[at] > max(_OF_A_CHANGE * change, floor * size, noise)

    step = _step_of_counter(one, wanted) if same and not any(noises) else 0.0
    if step:
        # Correct answers are counted as well, and may be one more or less.
        return next((at for at, error in enumerate(errors) if error > step / 2), None)
    wrong = [at for at in changed if is_wrong(at, changes[at])]
    if len(changed) > 2:
        if 2 * len(wrong) > len(changed):
            return wrong[0]
    elif (
        wrong
        and wrong == changed
        and all(changes[at] > _RARE_CHANGE * abs(wanted[at]) for at in changed)
    ):
        return wrong[0]
    constant = [at for at, change in enumerate(changes) if not change]
    wrong = [at for at in constant if is_wrong(at, 0.0)]
    if 2 * len(constant) >= len(one) and 2 * len(wrong) > len(constant):
        return wrong[0]
    return None


def _off_by_a_line(
    texts: Sequence[str], wanted: Sequence[float], found: Sequence[float]
) -> int | None:
    """Where a number that changes in few lines, as an epoch or a rate does, has the value of the
    line before or after. Rounding moves a fraction there, too, but not in most of its changes."""
    changes = sum(a != b for a, b in pairwise(wanted))
    if _SLOW * changes > len(wanted):
        return None
    off = [
        at
        for at, (value, other) in enumerate(zip(wanted, found))
        if other != value and other in (*wanted[max(at - 1, 0) : at], *wanted[at + 1 : at + 2])
    ]
    whole = all(text.lstrip("+-").isdigit() for text in texts)
    return off[0] if off and (whole or 2 * len(off) >= changes) else None


def _allowed_once(text: str, exact: bool) -> float:
    """How far a number may be off for which there is no series."""
    size = abs(_value(text))
    if not size or not math.isfinite(size):
        return 0.0
    if exact and _digits(text) >= _FEW_DIGITS:
        return _EXACT * size
    mantissa, _, exponent = text.lower().partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return max(_NEAR * size, 1.001 * unit if size >= _FEW_UNITS * unit else 0.0)


def _digits(text: str) -> int:
    """The significant ones: few may agree by chance, as of a time in seconds."""
    return len(re.sub(r"[eE].*|\D", "", text).lstrip("0"))


def _step_of_counter(texts: Sequence[str], values: Sequence[float]) -> float:
    """By what a number of steps, epochs or samples grows; 0 for other series."""
    if not all(text.lstrip("+-").isdigit() for text in texts):
        return 0.0
    changes = Counter(b - a for a, b in pairwise(values))
    [(change, count)] = changes.most_common(1)
    return abs(change) if count >= _COUNTING * (len(values) - 1) else 0.0


def _value(text: str) -> float:
    """NaN for an address, a date and a time of day, which are as good as equal."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _apart(one: float, other: float) -> float:
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    distance = abs(one - other)
    return math.inf if math.isnan(distance) else distance
