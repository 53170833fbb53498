"""The comparison of two trees: either form of a Profile, every difference, no sentence."""

from __future__ import annotations

from typing import Any

from launchscope.rules import advise
from tests.compare_trees import Change, changes, comparable, rule_profiles
from tests.rules.profiles import profile


def case(**changed: Any) -> dict[str, Any]:
    values = comparable(dict(rule_profiles())["profile profile"])
    return {"case": values | changed}


def keys(current: dict[str, Any]) -> list[str]:
    return [change.key for change in changes(case(), current)]


def test_equal_trees_have_no_differences() -> None:
    assert keys(case()) == []


def test_the_last_digit_of_a_metric_counts() -> None:
    step = profile().metrics["step_ms"].value
    assert step is not None
    assert keys(case(**{"metrics.step_ms": step + 1e-15 * step})) == ["metrics.step_ms"]


def test_findings_differ_by_code_severity_and_order() -> None:
    findings = case()["case"]["findings"]
    assert keys(case(findings=findings[1:])) == [f"findings.{findings[0][0]}"]
    assert keys(case(findings=[["LS001", "error"], *findings[1:]])) == ["findings.LS001"]
    assert keys(case(findings=findings[::-1])) == ["findings.order"]


def test_a_case_that_one_tree_lacks_is_a_difference() -> None:
    assert keys({}) == ["case"]


def test_bounds_are_found_in_the_metric_and_in_the_facts() -> None:
    document = dict(rule_profiles())["profile profile"]
    metric = {**document["metrics"]["removable_pct"]}
    beside = {**document, "metrics": {**document["metrics"], "removable_pct": metric}}
    beside["facts"] = {"removable_low_pct": metric.pop("low")}
    beside["facts"]["removable_high_pct"] = metric.pop("high")
    assert comparable(beside) == comparable(document)
    assert comparable(document)["metrics.removable_pct.low"] is not None


def test_an_accepted_difference_is_named_by_code_key_or_case() -> None:
    change = Change("recording lstm", "findings.LS039", "advice", None)
    for pattern in ("LS039", "findings.LS039", "findings.*", "recording lstm:findings.LS039"):
        assert change.accepted([pattern])
    assert not change.accepted(["LS001", "metrics.*"])


def test_no_sentence_is_compared() -> None:
    verdict = advise(profile()).verdict
    assert verdict is not None
    assert verdict.headline not in str(case())
