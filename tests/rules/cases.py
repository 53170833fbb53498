"""What the tests say of each rule, in the file named like the rule's own.

`tests/rules/findings/test_gain.py` has CASES for `launchscope/rules/findings/gain.py`. SAME, beside
it, names what both versions of a page's example compute alike.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from msgspec.structs import replace

from launchscope.model import (
    Finding,
    Profile,
    Replay,
    Shapes,
    ShapeSignature,
    Verdict,
)
from launchscope.rules import Rule, advise, all_rules
from tests.rules.profiles import profile
from tests.shapes import tensors


@dataclass(frozen=True)
class Case:
    """A Profile in which a rule has a finding whose title says this, and one in which it has none
    of that kind."""

    says: str
    fires: Profile
    silent: Profile


def tests_of(rule: Rule) -> ModuleType:
    return import_module(f"tests.rules.findings.test_{rule.find.__module__.rpartition('.')[2]}")


def all_cases() -> Iterator[tuple[Rule, Case]]:
    for rule in all_rules():
        for case in tests_of(rule).CASES:
            yield rule, case


def titled(rule: Rule, of: Profile, text: str) -> list[Finding]:
    """The findings of a rule whose title has this text."""
    return [finding for finding in rule.check(of) if text in finding.title]


def verdict(of: Profile) -> Verdict:
    given = advise(of).verdict
    assert given is not None
    return given


def shapes(*inputs: str, steps: int = 1, forwards: tuple[int | None, ...] = ()) -> Shapes:
    """One signature for each; the first is that of as many `steps`."""
    counts = forwards or (None,) * len(inputs)
    seen = [ShapeSignature(1, tensors(text), n) for text, n in zip(inputs, counts)]
    return Shapes(len(inputs) == 1, (replace(seen[0], steps=steps), *seen[1:]))


def replayed(**changes: Any) -> Replay:
    """The replay of `profile()` with these changes."""
    return replace(profile().replay, **changes)


def with_step(base: Profile, **changes: Any) -> Profile:
    assert base.step is not None
    return replace(base, step=dataclasses.replace(base.step, **changes))
