"""check --against: which runs are made, which count, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from launchscope.cli import main
from launchscope.errors import InputError, LaunchscopeError, MeasureError, ScriptError
from launchscope.model import CheckResult, Metric, Profile
from launchscope.runner.protocol.events import FilesLoaded
from launchscope.workflows import check as workflow
from launchscope.workflows.check import CheckPlan, CheckRun, plan_check
from launchscope.workflows.profile import ScriptRun
from launchscope.workflows.progress import Progress
from tests.gate.profiles import gpu, item, rehearsal
from tests.workflows.repositories import commit, git, repository, write

pytestmark = pytest.mark.child  # git

SCRIPT = "import torch\n"


@pytest.fixture(autouse=True)
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The repository, in whose folder everything runs."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    made = repository(tmp_path / "project", {"train.py": SCRIPT, "sub/keep": ""})
    monkeypatch.chdir(made)
    return made


def timed(iteration_ms: float, **facts: Any) -> Profile:
    made = gpu({"iteration_ms": Metric(iteration_ms, "ms")})
    return replace(made, facts=replace(made.facts, **facts))


@dataclass
class FakeRunner:
    """Stands for ScriptRunner: `base` and `current` make the run with that number."""

    base: Callable[[int], Profile | LaunchscopeError]
    current: Callable[[int], Profile | LaunchscopeError]
    loads: Mapping[str, Sequence[str]] = field(default_factory=dict)
    after: Callable[[], None] = lambda: None
    came: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, *given: object) -> FakeRunner:
        return self

    def __enter__(self) -> FakeRunner:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def run(self, target: object, **options: Any) -> ScriptRun:
        side = "base" if options["tree"].instead else "current"
        number = self.came.count(side)
        self.came.append(side)
        self.calls.append({"target": target, **options})
        made = (self.base if side == "base" else self.current)(number)
        self.after()
        files = FilesLoaded(tuple(self.loads.get(side, ())), tuple(self.loads.get("installed", ())))
        if isinstance(made, LaunchscopeError):
            return ScriptRun(None, None, made)
        return ScriptRun(None, made, None, loaded=(files,))


def plan(*words: str, **flags: Any) -> CheckPlan:
    return plan_check(words or ("train.py",), {"against": "main", **flags})


def raised(run: CheckRun) -> CheckResult:
    if run.problem is not None:
        raise run.problem
    return run.result


def checked(
    runner: FakeRunner, monkeypatch: pytest.MonkeyPatch, progress: Progress | None = None,
    **flags: Any,
) -> CheckResult:  # fmt: skip
    monkeypatch.setattr(workflow, "ScriptRunner", runner)
    try:
        return raised(workflow.check(plan(**flags), progress or Progress()))
    finally:
        assert git(Path(), "worktree", "list").count("\n") == 0
        assert list(Path("../tmp").iterdir()) == []


def steady(iteration_ms: float, **facts: Any) -> Callable[[int], Profile]:
    return lambda number: timed(iteration_ms * (1 + number % 3 / 1000), **facts)


# --------------------------------------------------------------------------- which runs


def test_pairs_follow_a_run_of_each_version_that_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Shown(Progress):
        def __init__(self) -> None:
            self.texts: list[str] = []

        def message(self, text: str) -> None:
            self.texts.append(text)

    def warm(number: int) -> Profile:
        return timed(99.0) if number == 0 else timed(10.0 + number / 1000)

    runner = FakeRunner(warm, steady(11.2))
    shown = Shown()
    result = checked(runner, monkeypatch, shown)
    assert (result.outcome, result.paired and result.paired.pairs) == ("failed", 10)
    assert "iteration_ms changed by +12" in result.headline
    assert len(runner.came) == 22
    pairs = [tuple(runner.came[i : i + 2]) for i in range(2, 22, 2)]
    assert all(len(set(pair)) == 2 for pair in pairs)
    assert any("10 pairs of runs follow, in about 0 s" in text for text in shown.texts)
    assert checked(FakeRunner(steady(10), steady(10)), monkeypatch).outcome == "passed"
    assert checked(FakeRunner(steady(10), steady(10)), monkeypatch, pairs=3).outcome == (
        "inconclusive"
    )
    strict = checked(FakeRunner(steady(10), steady(10)), monkeypatch, pairs=3, strict=True)
    assert strict.outcome == "failed"
    allowed = checked(FakeRunner(steady(10), steady(11)), monkeypatch, tolerance="20%")
    assert allowed.outcome == "passed"


def test_the_order_of_a_pair_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = iter([0.1, 0.9] * 5)
    monkeypatch.setattr("random.random", lambda: next(draws))
    runner = FakeRunner(steady(10), steady(10))
    checked(runner, monkeypatch)
    assert runner.came[2:6] == ["current", "base", "base", "current"]


def test_disturbed_pairs_are_measured_again_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def hot(number: int) -> Profile:
        return timed(10, throttled=("hw_thermal_slowdown",) if number in (2, 5) else ())

    result = checked(FakeRunner(steady(10), hot), monkeypatch)
    assert result.paired is not None
    assert (result.paired.pairs, result.paired.disturbed) == (10, ("throttled", "throttled"))
    other = FakeRunner(steady(10, sm_clock_mhz=1200.0), steady(10, sm_clock_mhz=1980.0))
    found = checked(other, monkeypatch)
    assert len(other.came) == 2 + 2 * 15
    reasons = {limit.metric: (limit.outcome, limit.reason) for limit in found.limits}
    assert reasons["iteration_ms"] == ("inconclusive", "every pair of runs was disturbed")
    assert reasons["launches_per_step"][0] == "passed"


def test_the_time_limit_bounds_all_runs_together(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("launchscope.workflows.against.time.monotonic", lambda: now[0])

    def run(timeout: float) -> tuple[CheckResult, FakeRunner]:
        now[0] = 0.0
        runner = FakeRunner(steady(10), steady(10))
        runner.after = lambda: now.__setitem__(0, now[0] + 5.0)
        return checked(runner, monkeypatch, timeout=timeout), runner

    result, runner = run(101.0)  # of 110
    assert (result.outcome, len(runner.came)) == ("passed", 20)
    assert result.paired is not None
    assert (result.paired.pairs, result.paired.planned) == (9, 10)
    assert [call["timeout_s"] for call in runner.calls[:3]] == [101.0, 96.0, 91.0]
    for timeout in (4.0, 9.0, 15.0):
        with pytest.raises(MeasureError) as caught:
            run(timeout)
        assert "the time limit was reached before a pair" in str(caught.value)
    assert "a pair takes about 10 s" in (caught.value.hint or "")


def test_without_a_gpu_one_pair_decides_unless_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    same = FakeRunner(lambda _: rehearsal(), lambda _: rehearsal())
    result = checked(same, monkeypatch)
    assert (result.outcome, same.came) == ("passed", ["current", "base"])
    assert "iteration_ms" not in {limit.metric for limit in result.limits}
    worse = FakeRunner(lambda _: rehearsal(), lambda _: rehearsal(blockers=[item()]))
    assert checked(worse, monkeypatch).outcome == "failed"
    assert len(worse.came) == 6
    flaky = FakeRunner(
        lambda _: rehearsal(), lambda n: rehearsal(blockers=[item()] if n == 0 else [])
    )
    assert checked(flaky, monkeypatch).outcome != "failed"


def test_a_failure_is_confirmed_by_other_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow_at_first(number: int) -> Profile:
        return timed(12 if number <= 10 else 10)

    runner = FakeRunner(steady(10), slow_at_first)
    assert checked(runner, monkeypatch, confirm=True).outcome == "inconclusive"
    assert len(runner.came) == 42


# ----------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (ScriptError("the script ended with exit code 1", exit_code=1), "with exit code 1"),
        (ScriptError("the script ended with exit code 2", exit_code=2), "do not know"),
        (MeasureError("no step was found"), "no step was found"),
    ],
)
def test_a_base_version_that_cannot_be_measured_is_named(
    problem: LaunchscopeError, text: str, top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MeasureError) as caught:
        checked(FakeRunner(lambda _: problem, steady(10)), monkeypatch)
    assert f"the version at main ({git(top, 'rev-parse', 'HEAD')[:12]})" in str(caught.value)
    assert text in str(caught.value)
    assert caught.value.exit_code == 3
    with pytest.raises(MeasureError) as own:
        checked(FakeRunner(steady(10), lambda _: problem), monkeypatch)
    assert (str(own.value), own.value.exit_code) == (str(problem), 3)


def test_code_of_the_current_version_in_the_base_version_is_an_error(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = {"base": [str(top / "net.py")]}
    with pytest.raises(MeasureError, match=r"loaded net\.py of the current files"):
        checked(FakeRunner(steady(10), steady(10), same), monkeypatch)
    write(top, {"net.py": ""})
    assert checked(FakeRunner(steady(10), steady(10), same), monkeypatch, link=["net.py"]).paired
    elsewhere = {"installed": ["net"]}
    result = checked(FakeRunner(steady(10), steady(10), elsewhere), monkeypatch)
    assert any("both versions load net from an installation" in text for text in result.warnings)


def test_files_that_change_between_runs_are_an_error(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = {"current": [str(top / "train.py")]}

    def edits(number: int) -> Profile:
        if number == 4:
            os.utime(top / "train.py", (1, 1))
        return timed(10)

    with pytest.raises(MeasureError, match=r"train\.py changed between two runs"):
        checked(FakeRunner(steady(10), edits, loads), monkeypatch)


def test_an_extension_that_only_the_current_tree_has_is_named(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(top, {"fast.so": "ELF"})
    loads = {"current": [str(top / "fast.so")]}
    with pytest.raises(InputError, match=r"fast\.so was built in the tree") as caught:
        checked(FakeRunner(steady(10), steady(10), loads), monkeypatch)
    assert "--link PATH" in (caught.value.hint or "")
    linked = checked(FakeRunner(steady(10), steady(10), loads), monkeypatch, link=["fast.so"])
    assert linked.outcome == "passed"


def test_whatever_interrupts_leaves_no_worktree(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(number: int) -> Profile:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checked(FakeRunner(interrupt, steady(10)), monkeypatch)


def test_the_script_is_found_in_the_other_tree(
    top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def calls(folder: Path, *words: str, **options: Any) -> dict[str, Any]:
        monkeypatch.chdir(folder)
        runner = FakeRunner(lambda _: rehearsal(), lambda _: rehearsal())
        monkeypatch.setattr(workflow, "ScriptRunner", runner)
        run = workflow.check(plan_check(words, {"against": "main"}, **options), Progress())
        result = raised(run)
        assert result.paired is not None
        return runner.calls[1]

    def root(call: dict[str, Any]) -> str:
        return cast("str", call["tree"].instead)

    here = calls(top, "train.py", "--lr", "1")
    assert (here["target"].name, here["target"].args) == ("train.py", ("--lr", "1"))
    assert here["folder"] == root(here)
    below = calls(top / "sub", "../train.py")
    assert below["target"].name == "../train.py"
    assert below["folder"] == f"{root(below)}/sub"
    absolute = calls(top, str(top / "train.py"))
    assert absolute["target"].name == f"{root(absolute)}/train.py"
    outside = calls(tmp_path, "project/train.py")
    assert outside["target"].name == f"{root(outside)}/train.py"
    assert outside["folder"] is None
    (tmp_path / "shortcut").symlink_to(top)
    linked = calls(tmp_path / "shortcut", "train.py")
    assert linked["target"].name == "train.py"
    monkeypatch.setenv("PYTHONPATH", f"{top}/sub:/elsewhere:{top}/gone")
    module = calls(top, "pkg.train", module=True)
    assert module["environ"]["PYTHONPATH"] == f"{root(module)}/sub:/elsewhere:{top}/gone"


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--against", "gone", "train.py"), 2, "git knows no revision 'gone'"),
        (("--against", "main", "new.py"), 3, "main ({commit}) has no new.py"),
        (("--against", "main", "-"), 2, "needs a script in a file"),
        (("--against", "main", "../outside.py"), 2, "not a git repository"),
        (("--against", "main", "--baseline", "b.json", "train.py"), 2, "exclude each other"),
        (("--against", "main", "--update-baseline", "train.py"), 2, "writes no baseline"),
        (("--against", "main", "--link", "gone", "train.py"), 2, "--link gone: no such file"),
        (("--against", "main", "--link", "..", "train.py"), 2, "lies outside of"),
        (("--link", "sub", "--limit", "launches_per_step=9", "train.py"), 2, "needs --against"),
        (("--against", "main", "--pairs", "0", "train.py"), 2, "--pairs: expected"),
        (("--against", "main", "--tolerance", "-1", "train.py"), 2, "--tolerance: expected"),
        (("--against", "", "train.py"), 2, "--against"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: tuple[str, ...],
    code: int,
    text: str,
    top: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(top, {"new.py": SCRIPT, "../outside.py": SCRIPT})
    assert main(["check", "-q", *arguments]) == code
    error = capsys.readouterr().err
    assert text.format(commit=git(top, "rev-parse", "HEAD")[:12]) in error
    assert "Traceback" not in error
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_settings_file_can_name_the_base_version(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(top, {"pyproject.toml": "[tool.launchscope.check]\nagainst = 'main'\nlink = ['sub']\n"})
    runner = FakeRunner(lambda _: rehearsal(), lambda _: rehearsal())
    monkeypatch.setattr(workflow, "ScriptRunner", runner)
    found = plan_check(["train.py"], {})
    assert found.base is not None
    assert found.base.links == (top / "sub",)
    assert raised(workflow.check(found, Progress())).paired is not None
    # What is typed counts more.
    assert plan_check(["train.py"], {"baseline": "b.json"}).base is None


# ---------------------------------------------------------------------------- for real

NET = "import torch\ndef make(): return torch.nn.Linear(4, 2)\n"
TRAIN = """
import sys
import torch
sys.path.insert(0, {src!r})  # as an editable installation does
import net
model = net.make()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.full((8, 4), float(open("data/x").read()))
for _ in range(40):
    opt.zero_grad()
    model(data).sum().backward()
    opt.step()
"""


def test_both_versions_run_their_own_code(
    top: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    commit(top, {"real.py": TRAIN.format(src=str(top / "src")), "src/net.py": NET})
    wider = NET.replace("Linear(4, 2)", "Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU())")
    write(top, {"data/x": "1", "src/net.py": wider})
    arguments = ["check", "-q", "--against", "main", "--link", "data", "--repeats", "1", "real.py"]
    assert main(arguments) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "device_ops_per_step rose from 6 to 8" in out
    assert "aten.relu" in out
    assert "compared with main" in out
    assert "installation" not in out
    changed = git(top, "status", "--short", "--", "src/*.py", "data", ".git")
    assert changed == "M src/net.py\n?? data/"
    assert git(top, "worktree", "list").count("\n") == 0
