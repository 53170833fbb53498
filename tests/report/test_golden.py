"""Every format against its golden file.

After a change that is meant, delete the file and run the test twice: the first run writes it,
and fails so that somebody looks at it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.model import Check, Profile
from launchscope.report import all_reporters, render
from launchscope.rules import advise
from tests.gate.profiles import failed_on_gpu, failed_rehearsal, not_compared, passed_and_stale
from tests.rules.profiles import blocked, gpu_bound, profile, rehearsal

GOLDEN = Path(__file__).parent / "golden"
PROFILES = {
    "adopt": profile,
    "blocked": blocked,
    "gpu_bound": gpu_bound,
    "rehearsal": rehearsal,
}
CHECKS = {
    "check_rehearsal": failed_rehearsal,
    "check_gpu": failed_on_gpu,
    "check_stale": passed_and_stale,
    "check_not_compared": not_compared,
}
NEXT = ("launchscope rules LS001",)
CASES = [
    ("adopt", "terminal", "adopt.80.txt", {"width": 80, "next_commands": NEXT}),
    ("adopt", "terminal", "adopt.120.txt", {"width": 120, "next_commands": NEXT}),
    ("adopt", "terminal", "adopt.color.txt", {"width": 80, "color": True}),
    ("adopt", "terminal", "adopt.ascii.txt", {"width": 80, "unicode": False}),
    ("blocked", "terminal", "blocked.80.txt", {"width": 80}),
    ("gpu_bound", "terminal", "gpu_bound.80.txt", {"width": 80}),
    ("rehearsal", "terminal", "rehearsal.80.txt", {"width": 80}),
    ("adopt", "markdown", "adopt.markdown.txt", {"next_commands": NEXT}),
    ("rehearsal", "markdown", "rehearsal.markdown.txt", {}),
    ("adopt", "html", "adopt.html", {}),
    ("blocked", "html", "blocked.html", {}),
    ("adopt", "json", "adopt.json", {}),
    ("adopt", "csv", "adopt.csv", {}),
    ("blocked", "junit", "blocked.xml", {}),
    ("blocked", "sarif", "blocked.sarif", {}),
    ("check_rehearsal", "terminal", "check_rehearsal.80.txt", {"width": 80}),
    ("check_gpu", "terminal", "check_gpu.80.txt", {"width": 80}),
    ("check_gpu", "terminal", "check_gpu.120.txt", {"width": 120, "next_commands": NEXT}),
    ("check_stale", "terminal", "check_stale.ascii.txt", {"width": 80, "unicode": False}),
    ("check_not_compared", "terminal", "check_not_compared.80.txt", {"width": 80}),
    ("check_gpu", "markdown", "check_gpu.markdown.txt", {}),
    ("check_rehearsal", "github", "check_rehearsal.github.txt", {}),
    ("check_gpu", "github", "check_gpu.github.txt", {}),
    ("check_not_compared", "github", "check_not_compared.github.txt", {}),
    ("check_gpu", "junit", "check_gpu.xml", {}),
    ("check_gpu", "sarif", "check_gpu.sarif", {}),
    ("check_rehearsal", "csv", "check_rehearsal.csv", {}),
    ("check_rehearsal", "json", "check_rehearsal.json", {}),
]


def value(name: str) -> Profile | Check:
    return CHECKS[name]() if name in CHECKS else advise(PROFILES[name]())


@pytest.mark.parametrize(
    ("name", "format_name", "file", "options"), CASES, ids=[c[2] for c in CASES]
)
def test_report_equals_its_golden_file(
    name: str, format_name: str, file: str, options: dict[str, object]
) -> None:
    rendered = render(value(name), format_name, **options)
    data = rendered.encode() if isinstance(rendered, str) else rendered
    golden = GOLDEN / file
    if not golden.exists():
        golden.write_bytes(data)
        pytest.fail(f"{file} did not exist and was written: look at it, then run again")
    assert data.decode() == golden.read_text(encoding="utf-8")


def test_every_format_has_a_golden_file() -> None:
    assert {reporter.name for reporter in all_reporters()} == {case[1] for case in CASES}
