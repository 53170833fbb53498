"""Every rule fires where it should, stays silent where it should, and has a page that is right."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from launchscope.model import Facts, Finding, Metric, Shapes, Verdict
from launchscope.rules import Rule, all_rules, find_rule, with_current_codes
from launchscope.rules.rule import FORMER_CODES
from tests.rules.cases import Case, all_cases, titled
from tests.rules.profiles import profile

CASES = [pytest.param(rule, case, id=f"{rule.code} {case.says}") for rule, case in all_cases()]
RULES = [pytest.param(rule, id=rule.code) for rule in all_rules()]


def kind(finding: Finding) -> str:
    """The title without its numbers."""
    return re.sub(r"[\d.,]+", "#", finding.title)


@pytest.mark.parametrize(("rule", "case"), CASES)
def test_a_rule_fires_where_it_should_and_is_silent_where_it_should_be(
    rule: Rule, case: Case
) -> None:
    (found, *_) = titled(rule, case.fires, case.says)
    assert found.code == rule.code
    assert kind(found) not in map(kind, rule.check(case.silent))


def test_every_rule_has_a_case() -> None:
    assert {rule.code for rule, _ in all_cases()} == {rule.code for rule in all_rules()}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_survives_a_profile_in_which_nothing_was_measured(rule: Rule) -> None:
    known = {key: Metric(None, metric.unit) for key, metric in profile().metrics.items()}
    bare = replace(profile(), metrics=known, facts=Facts(), step=None, shapes=Shapes(None))
    for finding in rule.check(bare):
        assert "None" not in finding.title


@pytest.mark.parametrize("rule", RULES)
def test_a_page_has_the_sections_of_all_pages(rule: Rule) -> None:
    assert rule.page.startswith("# ")
    assert [line for line in rule.page.splitlines() if line.startswith("## ")] == [
        f"## {section}"
        for section in (
            *("What it finds", "Why it matters", "Example"),
            *(("Before", "After") if rule.fixable else ()),
            *("When it does not apply", "Reference"),
        )
    ]


@pytest.mark.parametrize("rule", RULES)
def test_a_page_links_to_a_source_and_refers_to_what_exists(rule: Rule) -> None:
    reference = rule.page.partition("## Reference")[2]
    named = {
        name
        for kind in re.findall(r"(?:metric|fact)s?((?:\s*`\w+`,?)+)", reference, re.IGNORECASE)
        for name in re.findall(r"`(\w+)`", kind)
    }
    assert named <= profile().metrics.keys() | {*Facts.__struct_fields__}
    assert re.search(r"\[[^]]+\]\(https://[^)\s]+\)", reference)
    assert set(re.findall(r"LS\d+", rule.page)) <= {known.code for known in all_rules()}


def test_a_former_code_resolves_to_the_rule_that_reports_the_same_today() -> None:
    current = {rule.code for rule in all_rules()}
    assert not current & FORMER_CODES.keys()
    for former, code in FORMER_CODES.items():
        found = find_rule(former.lower())
        assert found is not None
        assert found.code == code


def test_a_saved_profile_gets_the_codes_of_today() -> None:
    verdict = Verdict("adopt", "measured", "Adopt.", because=("LS001", "LS005", "LS003", "XY1"))
    saved = replace(profile(), verdict=verdict, findings=(Finding("LS003", "info", "t", "a"),))
    read = with_current_codes(saved)
    assert read.verdict is not None
    assert read.verdict.because == ("LS001", "LS002", "XY1")
    assert [finding.code for finding in read.findings] == ["LS002"]
