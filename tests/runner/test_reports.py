"""Public reports about captures get their answer from a rehearsal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from launchscope.analysis import build_profile
from launchscope.rules import advise
from tests.runner.children import recorded
from tests.runner.reports import REPORTS

pytestmark = pytest.mark.child

CODES = ("LS011", "LS030", "LS033", "LS035")


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_names_the_lines_and_what_to_do(name: str, tmp_path: Path) -> None:
    script, says = REPORTS[name]
    ran = recorded(tmp_path, script)
    assert ran.outcome.problem is None, ran.outcome.problem
    profile = advise(build_profile(ran.recording))
    assert profile.verdict is not None
    found = {
        (finding.code, finding.where.line)
        for finding in profile.findings
        if finding.code in CODES and finding.where is not None
    }
    lines = enumerate(ran.source.splitlines(), 1)
    marks = ((n, line.partition("# ")[2]) for n, line in lines)
    assert found == {(code, n) for n, mark in marks for code in re.findall(r"LS\d+", mark)}
    texts = [text for each in profile.findings for text in (each.code, each.title, each.advice)]
    texts += [profile.verdict.headline, *profile.verdict.instructions, *profile.notes]
    assert profile.step is not None
    said = " ".join([*texts, *profile.step.names])
    for text in says:
        assert text in said, said
