"""Verdicts and findings follow from values: no message, error text or source text decides."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from launchscope import reason_text
from launchscope.analysis import build_profile
from launchscope.model import Profile, Reason, Recording, Replay
from launchscope.parser import read_recording
from launchscope.rules import advise
from launchscope.rules.findings import blockers
from tests.rules.cases import all_cases
from tests.rules.profiles import blocked, predicted
from tests.rules.test_sentences_at_their_edges import bases

RECORDINGS = sorted((Path(__file__).parents[1] / "sample_workloads/recordings").iterdir())
TEXTS = {"notes", "advice", "code"}  # "code" is source text here
MEANINGLESS = "zzz"
# For the sentences of all reasons.
NUMBERS = (
    "variants", "steps", "mib", "compared", "wanted", "count", "exit_code", "line", "pct", "unit",
    "seconds", "difference", "allowed", "before_ms", "after_ms",
)  # fmt: skip
NAMES = (
    "kind", "error", "op", "file", "what", "now", "before", "module", "names", "name", "why",
    "path",
)  # fmt: skip
DETAILS: dict[str, str | int | float] = {
    **dict.fromkeys(NUMBERS, 2),
    **dict.fromkeys(NAMES, "a name"),
    "where": "a.py:1",
}
# What makes a sentence of a code, for whoever imports it.
SENTENCES = (
    reason_text.reason_text,
    reason_text.cause_text,
    reason_text.failure_text,
    reason_text.as_written,
    reason_text.step_summary,
)

Value = TypeVar("Value")


def without_meaning(value: Value) -> Value:
    """The value with a meaningless string for every text that a person reads."""
    made: Any = value
    if isinstance(made, Reason):
        made = Reason(made.code, {name: _scrambled(d) for name, d in made.details.items()})
    elif hasattr(type(made), "__match_args__") and not isinstance(made, type):
        changes = {
            name: _scrambled(own) if name in TEXTS else without_meaning(own)
            for name in type(made).__match_args__
            for own in [getattr(made, name)]
        }
        made = type(made)(**changes)
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


@pytest.fixture
def no_sentences(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes every sentence of a code meaningless, in all modules, when it is called."""

    def replace_them() -> None:
        modules = [m for name, m in sys.modules.items() if name.startswith("launchscope")]
        for module in modules:
            for name, value in list(vars(module).items()):
                if any(value is function for function in SENTENCES):
                    monkeypatch.setattr(module, name, lambda *_: MEANINGLESS)

    return replace_them


def built() -> Iterator[Any]:
    """What the tests of the rules build, and a step without a replay for every reason."""
    for reason in reason_text.TEXTS:
        replay = Replay("skipped", Reason(reason, DETAILS))
        yield pytest.param(predicted(replay=replay), id=reason)
    for name, base in bases().items():
        yield pytest.param(base, id=name)
    for rule, case in all_cases():
        yield pytest.param(case.silent, id=f"{rule.code} silent: {case.says}")


@pytest.mark.parametrize("profile", list(built()))
def test_texts_do_not_decide_on_a_profile(
    profile: Profile, no_sentences: Callable[[], None]
) -> None:
    expected = decided(profile)
    no_sentences()
    assert decided(without_meaning(profile)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("folder", RECORDINGS, ids=lambda folder: folder.name)
def test_texts_do_not_decide_on_a_recording(folder: Path, no_sentences: Callable[[], None]) -> None:
    recording: Recording = read_recording(folder)
    expected = decided(build_profile(recording))
    no_sentences()
    assert decided(without_meaning(build_profile(without_meaning(recording)))) == expected


def test_a_text_of_every_kind_is_replaced(no_sentences: Callable[[], None]) -> None:
    no_sentences()
    assert vars(blockers)["reason_text"](Reason("hung")) == MEANINGLESS
    made = without_meaning(replace(bases()["failed"], blockers=blocked().blockers))
    assert isinstance(made.replay.reason, Reason)
    assert set(made.replay.reason.details.values()) == {MEANINGLESS}
    assert {blocker.code for blocker in made.blockers} <= {MEANINGLESS, None}
    assert set(made.notes) <= {MEANINGLESS}
