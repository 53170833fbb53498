"""Verdicts and findings follow from values: no message, error text or source text decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from launchscope.analysis import build_profile
from launchscope.model import Profile, Reason, Recording
from launchscope.parser import read_recording
from launchscope.rules import advise
from tests.rules.findings.test_rules import CASES
from tests.rules.test_sentences_at_their_edges import bases

RECORDINGS = sorted((Path(__file__).parents[1] / "sample_workloads/recordings").iterdir())
TEXTS = {"notes", "advice", "code", "expression", "skips"}  # "code" is source text here
MEANINGLESS = "zzz"

Value = TypeVar("Value")


def without_meaning(value: Value) -> Value:
    """The value with a meaningless string for every text that a person reads."""
    made: Any = value
    if isinstance(made, Reason):
        made = Reason(made.code, {name: _scrambled(d) for name, d in made.details.items()})
    elif is_dataclass(made) and not isinstance(made, type):
        changes = {
            field.name: _scrambled(getattr(made, field.name))
            if field.name in TEXTS
            else without_meaning(getattr(made, field.name))
            for field in fields(made)
            if field.init
        }
        made = replace(made, **changes)
    elif isinstance(made, tuple):
        made = tuple(map(without_meaning, made))
    elif isinstance(made, Mapping):
        made = {key: without_meaning(item) for key, item in made.items()}
    return made  # type: ignore[no-any-return]


def _scrambled(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_scrambled, value))
    return MEANINGLESS if isinstance(value, str) else value


def decided(profile: Profile) -> tuple[Any, ...]:
    advised = advise(profile)
    verdict = advised.verdict
    assert verdict is not None
    return (
        verdict.recommendation,
        verdict.basis,
        verdict.confidence,
        verdict.because,
        [finding.code for finding in advised.findings],
    )


def built() -> Iterator[Any]:
    """What the tests of the rules build."""
    for name, base in bases().items():
        yield pytest.param(base, id=name)
    for code, case in CASES.items():
        yield pytest.param(case.fires, id=f"{code} fires")
        yield pytest.param(case.silent, id=f"{code} silent")


@pytest.mark.parametrize("profile", list(built()))
def test_texts_do_not_decide_on_a_profile(profile: Profile) -> None:
    assert decided(without_meaning(profile)) == decided(profile)


@pytest.mark.parametrize("folder", RECORDINGS, ids=lambda folder: folder.name)
def test_texts_do_not_decide_on_a_recording(folder: Path) -> None:
    recording: Recording = read_recording(folder)
    scrambled = without_meaning(build_profile(without_meaning(recording)))
    assert decided(scrambled) == decided(build_profile(recording))


def test_a_text_of_every_kind_is_replaced() -> None:
    made = without_meaning(bases()["copies"])
    assert isinstance(made.replay.reason, Reason)
    assert set(made.replay.reason.details.values()) == {MEANINGLESS}
    assert {blocker.advice for blocker in made.blockers} == {MEANINGLESS}
    assert {blocker.code for blocker in made.blockers} <= {MEANINGLESS, None}
    assert set(made.notes) <= {MEANINGLESS}
