"""What an NVTX tool outside the process sees of a launchscope run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.nvtx import observer

pytestmark = pytest.mark.child

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "sample_workloads" / "small_mlp.py"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return observer.build(tmp_path_factory.mktemp("nvtx"))


def test_the_tool_sees_the_ranges_of_a_plain_process(library: Path, tmp_path: Path) -> None:
    script = tmp_path / "ranges.py"
    script.write_text(
        "import nvtx\n"
        "with nvtx.annotate('outer', domain='here'):\n"
        "    with nvtx.annotate('inner', domain='here'):\n"
        "        with nvtx.annotate('elsewhere', domain='other'):\n"
        "            pass\n"
        "nvtx.push_range('left open', domain='here')\n"
    )
    seen = [
        (r.domain, r.path, r.closed) for r in observer.observe([str(script)], library, tmp_path)
    ]
    assert seen == [
        ("here", ("outer",), True),
        ("here", ("outer", "inner"), True),
        ("other", ("elsewhere",), True),
        ("here", ("left open",), False),
    ]


def test_a_profiled_run_names_every_pass_and_step(library: Path, tmp_path: Path) -> None:
    options = ["--warmup", "10", "--inspect", "3"]
    script = [str(SAMPLE), "--steps", "60", "--width", "32", "--layers", "2"]
    command = ["-m", "launchscope", "profile", *options, *script]
    seen = [r for r in observer.observe(command, library, tmp_path) if r.domain == "launchscope"]

    passes = [r.message for r in seen if r.message.startswith("pass:")]
    assert {"pass:warmup", "pass:inspect"} <= set(passes)
    assert len(passes) == len(set(passes)), "a pass opened its range twice"

    names = [r.message for r in seen if r.message.startswith("step#")]
    assert len(names) == len(set(names)), "two steps bear the same name"
    assert {p.removeprefix("pass:") for p in passes} >= {n.split()[1] for n in names}
    per_pass = Counter(name.split()[1] for name in names)
    assert per_pass["inspect"] == 3
    assert all(r.closed for r in seen)


def test_a_plain_run_of_the_script_has_no_launchscope_ranges(library: Path, tmp_path: Path) -> None:
    script = [str(SAMPLE), "--steps", "3", "--width", "32", "--layers", "2"]
    seen = observer.observe(script, library, tmp_path)
    assert not [r for r in seen if r.domain == "launchscope"]
