"""Checks one sentence of a report: grammar, figures, words, and whether it contradicts itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache

NUMBER = r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?"
# A duration or an amount with its unit, as in "9.39 ms" or "1.02 GiB".
AMOUNT = rf"({NUMBER}) (s|ms|us|MiB|GiB)\b"
NOUNS = (
    "step|launch|kernel|batch|shape|size|graph|byte|operation|synchronization|iteration|replay|"
    "input tensor|warm-up|rank|line|sample|bucket|capture"
)
_UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "MiB": 1.0, "GiB": 1024.0}
# Words that no report uses: British spelling, and phrases that a reader stops at.
UNUSUAL = re.compile(
    r"\b(mend(ed|ing)?|synchronis\w+|behaviour|colour|optimis\w+|recognis\w+|per cent|in such|"
    r"course of ops|as such|of which|(is|are|be) told|(tells?|told) apart|equally often|anew)\b",
    re.IGNORECASE,
)


def amount(number: str, unit: str) -> float:
    return value(number) * _UNITS[unit]


def value(number: str) -> float:
    return float(number.replace(",", ""))


@cache
def complaints(text: str, *, title: bool = False) -> tuple[str, ...]:
    """What is wrong with a text; a title is a sentence without its period."""
    found = [name for name, pattern in _PATTERNS.items() if re.search(pattern, text)]
    found += [name for name, check in _CHECKS.items() if any(not ok for ok in check(text))]
    if title and text.endswith("."):
        found.append("a title ends with a period")
    if not title and not text.endswith("."):
        found.append("a sentence ends without a period")
    if UNUSUAL.search(text):
        found.append("an unusual word")
    return tuple(found)


_PATTERNS = {
    "a value that is missing": r"\b(None|nan|inf)\b",
    "spaces": r"  |^ | $| [.,;:)](?!\w)|\( |\.\.(?!\.)(?<!\.\.\.)|,,|\n",
    "a plural after 1": rf"(?<![\d.,-])1 (?:\w+ )?(?:{NOUNS})(?:e?s)\b(?! per)",
    "a singular after another number": (
        rf"(?<![\w.,(-])(?!1 )(?:{NUMBER}) (?:{NOUNS})\b(?![-s]|es\b)(?! (?:is|time)\b)"
    ),
    "a negative amount": r"-\d[\d.,]* (us|ms|s|MiB|GiB)\b",
    "a negative share that is no bound": r"(?<!between )(?<!and )(?<!< )-\d[\d.,]* %",
    "an exponent": r"\de[+-]?\d",
    "a clause without an end": r"[:;,]$|[:;,]\.",
}


def _digits_beside_spread(text: str) -> Iterator[bool]:
    for shown, spread in re.findall(r"([\d,]+\.?\d*) ± ([\d,]+\.?\d*)", text):
        yield len(shown.partition(".")[2]) == len(spread.partition(".")[2])


def _possible_magnitudes(text: str) -> Iterator[bool]:
    for number in re.findall(rf"(?<!> )({NUMBER}) %", text):
        yield abs(value(number)) <= 1000
    for number in re.findall(rf"(?<!> )\b({NUMBER})x\b", text):
        yield value(number) <= 1000
    for number in re.findall(rf"({NUMBER}) % (?:of|off) (?:the|each|your)", text):
        yield value(number) <= 100


def _parts_of_wholes(text: str) -> Iterator[bool]:
    for only, *part, whole, unit in re.findall(rf"(only )?{AMOUNT} of (?:the )?{AMOUNT}", text):
        share = amount(*part) / amount(whole, unit) if amount(whole, unit) else 0.0
        yield share <= (0.5 if only else 1.0)
    for shown, *part, whole, unit in re.findall(rf"({NUMBER}) % [^(]*\({AMOUNT} of {AMOUNT}", text):
        share = 100 * amount(*part) / (amount(whole, unit) or 1.0)
        yield abs(share - value(shown)) <= 0.6


def _changes(text: str) -> Iterator[bool]:
    shorter = r"shortens|removes|remove|shorten|off the"
    for sentence in re.split(r"(?<=\.) ", text):
        for *before, number, unit, ratio in re.findall(
            rf"from {AMOUNT} to {AMOUNT}(?: \(({NUMBER})x\))?", sentence
        ):
            first, second = amount(*before), amount(number, unit)
            yield first >= second or not re.search(shorter, sentence)
            if ratio and second:
                yield abs(first / second / value(ratio) - 1) < 0.02


def _bounds(text: str) -> Iterator[bool]:
    for low, high in re.findall(rf"between (?:< )?({NUMBER}) % and (?:< )?({NUMBER}) %", text):
        yield value(low) <= value(high)


def _thresholds(text: str) -> Iterator[bool]:
    for sentence in re.split(r"(?<=\.) ", text):
        for share, threshold in re.findall(
            rf"({NUMBER}) %[^.%]*?(?:under|below|less than) your threshold of ({NUMBER}) %",
            sentence,
        ):
            yield value(share) < value(threshold)
        for needed, expected in re.findall(
            rf"after ({NUMBER}) steps?,? and you expect ({NUMBER})", sentence
        ):
            yield value(needed) > value(expected)


_CHECKS: dict[str, Callable[[str], Iterator[bool]]] = {
    "± with other digits": _digits_beside_spread,
    "an absurd magnitude": _possible_magnitudes,
    "a part above its whole": _parts_of_wholes,
    "a change that goes the other way": _changes,
    "bounds in the wrong order": _bounds,
    "a figure on the wrong side of its limit": _thresholds,
}
