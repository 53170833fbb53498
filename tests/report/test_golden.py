"""Every format against its golden file.

After an intended change, delete the file and run the test twice: the first run writes it, and
fails so that somebody looks at it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from launchscope.model import Adoption, CheckResult, Comparison, Difference, Profile, Ranks, Watch
from launchscope.report import RenderOptions, all_reporters, render
from launchscope.report.documents import DOCUMENTS
from launchscope.rules import advise
from tests.gate.profiles import failed_on_gpu, failed_rehearsal, not_compared, passed_and_stale
from tests.report import adoptions, comparisons
from tests.report.others import (
    annotated_trace,
    difference_of_two,
    ranks_of_three,
    traced,
    workloads,
)
from tests.rules.profiles import blocked, gpu_bound, launched, profile, rehearsal

GOLDEN = Path(__file__).parent / "golden"
# The rules that the golden files show. A new rule is not among them, and changes none.
SHOWN = ("LS001", "LS002", "LS009", "LS030", "LS041")


def advised(profile: Profile) -> Profile:
    """With its verdict, and the findings of these rules."""
    whole = advise(profile)
    return replace(whole, findings=tuple(f for f in whole.findings if f.code in SHOWN))


VALUES: dict[
    str, Callable[[], Adoption | Profile | CheckResult | Comparison | Difference | Ranks | Watch]
] = {
    "adopt": lambda: advised(profile()),
    "blocked": lambda: advised(blocked()),
    "gpu_bound": lambda: advised(gpu_bound()),
    "rehearsal": lambda: advised(rehearsal()),
    "launched": lambda: advised(launched()),
    "traced": traced,
    "check_rehearsal": failed_rehearsal,
    "check_gpu": failed_on_gpu,
    "check_stale": passed_and_stale,
    "check_not_compared": not_compared,
    "comparison": comparisons.comparison,
    "comparison.rehearsed": comparisons.rehearsed,
    "comparison.tried": comparisons.strategies,
    "difference": difference_of_two,
    "ranks": ranks_of_three,
    "workloads": workloads,
    "watch": adoptions.watch,
    "adoption": adoptions.verified,
    "adoption.unverified": adoptions.unverified,
    "adoption.refused": adoptions.refused,
    "adoption.failed": adoptions.failed,
    "adoption.not_needed": adoptions.not_needed,
}
# What every page has in common.
_OWN_CODE = re.compile(rb"<(style|script)>.*?</\1>", re.DOTALL)
_POLICY = re.compile(rb"<meta http-equiv=.*\n")
NEXT = ("launchscope rules LS001",)
AT_80 = RenderOptions(width=80)
AT_120 = RenderOptions(width=120)
COLOR = RenderOptions(width=80, color=True)
# Beyond these, each format shows the first value of each kind that it renders.
CASES = [
    ("adopt", "terminal", "adopt.80.txt", RenderOptions(width=80, next_commands=NEXT)),
    ("adopt", "terminal", "adopt.120.txt", RenderOptions(width=120, next_commands=NEXT)),
    ("adopt", "terminal", "adopt.color.txt", COLOR),
    ("blocked", "terminal", "blocked.80.txt", AT_80),
    ("gpu_bound", "terminal", "gpu_bound.80.txt", AT_80),
    ("rehearsal", "terminal", "rehearsal.80.txt", AT_80),
    ("adopt", "markdown", "adopt.markdown.txt", RenderOptions(next_commands=NEXT)),
    ("rehearsal", "markdown", "rehearsal.markdown.txt", AT_80),
    ("blocked", "html", "blocked.html", AT_80),
    ("launched", "terminal", "launched.80.txt", RenderOptions(width=80, top=10_000)),
    ("launched", "markdown", "launched.markdown.txt", AT_80),
    ("traced", "perfetto", "traced.perfetto.json", RenderOptions(trace=annotated_trace())),
    ("blocked", "sarif", "blocked.sarif", AT_80),
    ("check_rehearsal", "terminal", "check_rehearsal.80.txt", AT_80),
    ("check_gpu", "terminal", "check_gpu.80.txt", AT_80),
    ("check_gpu", "terminal", "check_gpu.120.txt", RenderOptions(width=120, next_commands=NEXT)),
    ("check_stale", "terminal", "check_stale.80.txt", AT_80),
    ("check_not_compared", "terminal", "check_not_compared.80.txt", AT_80),
    ("check_gpu", "markdown", "check_gpu.markdown.txt", AT_80),
    ("check_gpu", "html", "check_gpu.html", AT_80),
    ("check_rehearsal", "github", "check_rehearsal.github.txt", AT_80),
    ("check_gpu", "github", "check_gpu.github.txt", AT_80),
    ("check_not_compared", "github", "check_not_compared.github.txt", AT_80),
    ("check_gpu", "junit", "check_gpu.xml", AT_80),
    ("check_gpu", "sarif", "check_gpu.sarif", AT_80),
    ("comparison", "terminal", "comparison.80.txt", AT_80),
    ("comparison", "terminal", "comparison.120.txt", AT_120),
    ("comparison", "terminal", "comparison.color.txt", COLOR),
    ("comparison.rehearsed", "terminal", "comparison.rehearsed.80.txt", AT_80),
    ("comparison.tried", "terminal", "comparison.strategies.80.txt", AT_80),
    ("comparison.tried", "terminal", "comparison.strategies.120.txt", AT_120),
    ("comparison", "markdown", "comparison.markdown.txt", AT_80),
    ("comparison.tried", "markdown", "comparison.strategies.markdown.txt", AT_80),
    ("comparison.tried", "html", "comparison.strategies.html", AT_80),
    ("comparison.tried", "json", "comparison.strategies.json", AT_80),
    ("difference", "terminal", "difference.80.txt", AT_80),
    ("difference", "markdown", "difference.markdown.txt", AT_80),
    ("ranks", "terminal", "ranks.80.txt", AT_80),
    ("ranks", "terminal", "ranks.120.txt", AT_120),
    ("workloads", "terminal", "workloads.80.txt", AT_80),
    ("ranks", "markdown", "ranks.markdown.txt", AT_80),
    ("watch", "terminal", "watch.80.txt", AT_80),
    ("watch", "markdown", "watch.markdown.txt", AT_80),
    ("adoption", "terminal", "adoption.80.txt", AT_80),
    ("adoption", "terminal", "adoption.color.txt", COLOR),
    ("adoption.unverified", "terminal", "adoption.unverified.80.txt", AT_80),
    ("adoption.refused", "terminal", "adoption.refused.80.txt", AT_80),
    ("adoption.failed", "terminal", "adoption.failed.80.txt", AT_80),
    ("adoption.not_needed", "terminal", "adoption.not_needed.80.txt", AT_80),
    ("adoption", "markdown", "adoption.markdown.txt", AT_80),
]
_SHOWN = {(type(VALUES[name]()), format_name) for name, format_name, _, _ in CASES}
_FIRST = {type(make()): name for name, make in reversed(VALUES.items())}
CASES += [
    (_FIRST[kind], reporter.name, f"{_FIRST[kind]}.{reporter.name}", AT_80)
    for reporter in all_reporters()
    for kind in reporter.renders
    if (kind, reporter.name) not in _SHOWN
]
FOR_EVERY_VALUE = ("terminal", "markdown", "html", "json")


@pytest.mark.parametrize(
    ("name", "format_name", "file", "options"), CASES, ids=[c[2] for c in CASES]
)
def test_report_equals_its_golden_file(
    name: str, format_name: str, file: str, options: RenderOptions
) -> None:
    rendered = render(VALUES[name](), format_name, options)
    data = rendered.encode() if isinstance(rendered, str) else rendered
    if format_name == "html":
        data = _OWN_CODE.sub(rb"<\1></\1>", _POLICY.sub(b"", data))
    golden = GOLDEN / file
    if not golden.exists():
        golden.write_bytes(data)
        pytest.fail(f"{file} did not exist and was written: look at it, then run again")
    assert data.decode() == golden.read_text(encoding="utf-8")


def test_every_value_has_a_report_in_text_markdown_html_and_json() -> None:
    formats = {reporter.name: reporter for reporter in all_reporters()}
    for name in FOR_EVERY_VALUE:
        assert set(DOCUMENTS) <= set(formats[name].renders)
    suffixes = {suffix for name in FOR_EVERY_VALUE for suffix in formats[name].suffixes}
    assert suffixes == {".txt", ".md", ".html", ".json"}


@pytest.mark.parametrize("width", [60, 100])
@pytest.mark.parametrize("name", sorted(VALUES))
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    text = render(VALUES[name](), "terminal", RenderOptions(width=width))
    assert isinstance(text, str)
    assert max(map(len, text.splitlines())) <= width
