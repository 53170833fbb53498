"""The campaign of tests/against_campaign.py: its cases can run, and its summary can fail."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from tests.against_campaign import Case, cases, half_widths, summary, verdict


def result(code: int, *failed: str, half: float = 1.0) -> dict[str, Any]:
    change = {"base": 2.0, "low": -half, "high": half}
    return {"exit_code": code, "failed": list(failed), "iteration": change, "seconds": 1.0,
            "headline": "", "at_once": 1}  # fmt: skip


def test_every_case_is_a_script_of_its_own() -> None:
    found = cases()
    assert len(found) == len({case.name for case in found}) == 85
    assert sum(case.unchanged for case in found) == 65
    for case in found:
        ast.parse(case.source(2.0))
        changed = case.source(2.0) != Case("", case.script).source(2.0)
        assert changed == (not case.unchanged)
    slower = next(case for case in found if case.name == "slower-10-plain")
    assert "until = time.perf_counter() + 0.000200000\n" in slower.source(2.0)


@pytest.mark.parametrize(
    ("case", "found", "half", "expected"),
    [
        (Case("a", "plain"), result(0), None, "fine"),
        (Case("a", "plain"), result(1), None, "wrong"),
        (Case("a", "plain"), result(3), None, "wrong"),
        (Case("a", "plain", exact=True), result(0), None, "wrong"),
        (Case("a", "plain", exact=True), result(1, "iteration_ms"), None, "wrong"),
        (Case("a", "plain", exact=True), result(1, "syncs_per_step"), None, "fine"),
        (Case("a", "plain", slower_pct=10), result(0), 4.9, "wrong"),
        (Case("a", "plain", slower_pct=10), result(0), 5.1, "open"),
        (Case("a", "plain", slower_pct=10), result(1, "iteration_ms"), 5.1, "fine"),
        (Case("a", "plain", slower_pct=5), result(0), 0.5, "open"),
    ],
)
def test_a_case_is_judged_by_its_goal(
    case: Case, found: dict[str, Any], half: float | None, expected: str
) -> None:
    assert verdict(case, found, half) == expected


def test_the_summary_reads_what_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def save(name: str, found: dict[str, Any]) -> None:
        (tmp_path / f"{name}.json").write_text(json.dumps(found))

    save("unchanged-plain-timed", result(0, half=1.0))
    save("unchanged-plain-quiet-1", result(0, half=3.0))
    save("unchanged-plain-busy-0", result(0, half=40.0))
    assert summary(tmp_path)
    assert "3 of 85 cases: 3 fine, 0 open, 0 wrong" in capsys.readouterr().out
    assert half_widths({"unchanged-plain-timed": result(0, half=2.5)}) == {"plain": 2.5}
    assert not half_widths({"unchanged-plain-quiet-0": result(0)})
    with pytest.raises(AssertionError):
        half_widths({"unchanged-plain-timed": result(0) | {"at_once": 14}})
    save("slower-10-plain", result(0))
    assert not summary(tmp_path)
