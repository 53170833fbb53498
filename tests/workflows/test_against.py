"""check --against: which runs are made, which count, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from launchscope.cli import main
from launchscope.errors import LaunchscopeError, MeasureError, ScriptError
from launchscope.model import CheckResult, Profile
from launchscope.runner.protocol.events import FilesLoaded
from launchscope.workflows import check as workflow
from launchscope.workflows.check import CheckPlan, CheckRun, plan_check
from launchscope.workflows.profile import ScriptRun
from launchscope.workflows.progress import Progress
from tests.gate.profiles import item, rehearsal
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


def checked(runner: FakeRunner, monkeypatch: pytest.MonkeyPatch, **flags: Any) -> CheckResult:
    monkeypatch.setattr(workflow, "ScriptRunner", runner)
    try:
        return raised(workflow.check(plan(**flags), Progress()))
    finally:
        assert git(Path(), "worktree", "list").count("\n") == 0
        assert list(Path("../tmp").iterdir()) == []


def same(number: int) -> Profile:
    return rehearsal()


# --------------------------------------------------------------------------- which runs


def test_one_run_of_each_version_decides_unless_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    unchanged = FakeRunner(same, same)
    result = checked(unchanged, monkeypatch)
    assert (result.outcome, unchanged.came) == ("passed", ["current", "base"])
    assert result.baseline is not None
    assert result.baseline.startswith("main (")
    worse = FakeRunner(same, lambda _: rehearsal(blockers=[item()]))
    assert checked(worse, monkeypatch).outcome == "failed"
    assert worse.came == ["current", "base", "current", "current"]
    flaky = FakeRunner(same, lambda n: rehearsal(blockers=[item()] if n == 0 else []))
    assert checked(flaky, monkeypatch).outcome != "failed"
    better = checked(FakeRunner(lambda _: rehearsal(blockers=[item()]), same), monkeypatch)
    assert (better.outcome, better.stale) == ("passed", False)  # there is no file


# ----------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (ScriptError("the script ended with exit code 1", exit_code=1), "with exit code 1"),
        (MeasureError("no step was found"), "no step was found"),
    ],
)
def test_a_base_version_that_cannot_be_measured_is_named(
    problem: LaunchscopeError, text: str, top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MeasureError) as caught:
        checked(FakeRunner(lambda _: problem, same), monkeypatch)
    assert f"the version at main ({git(top, 'rev-parse', 'HEAD')[:12]})" in str(caught.value)
    assert text in str(caught.value)
    assert caught.value.exit_code == 3
    with pytest.raises(MeasureError) as own:
        checked(FakeRunner(same, lambda _: problem), monkeypatch)
    assert (str(own.value), own.value.exit_code) == (str(problem), 3)


def test_code_of_the_current_version_in_the_base_version_is_an_error(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = {"base": [str(top / "net.py")]}
    with pytest.raises(MeasureError, match=r"loaded net\.py of the current files"):
        checked(FakeRunner(same, same, loads), monkeypatch)
    elsewhere = {"installed": ["net"]}
    result = checked(FakeRunner(same, same, elsewhere), monkeypatch)
    assert any("both versions load net from an installation" in text for text in result.warnings)


def test_whatever_interrupts_leaves_no_worktree(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(number: int) -> Profile:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checked(FakeRunner(interrupt, same), monkeypatch)


def test_the_script_is_found_in_the_other_tree(
    top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def calls(folder: Path, *words: str, **options: Any) -> dict[str, Any]:
        monkeypatch.chdir(folder)
        runner = FakeRunner(same, same)
        monkeypatch.setattr(workflow, "ScriptRunner", runner)
        raised(workflow.check(plan_check(words, {"against": "main"}, **options), Progress()))
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
    module = calls(top, "pkg.train", module=True)
    assert (module["target"].name, module["folder"]) == ("pkg.train", root(module))


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--against", "gone", "train.py"), 2, "git knows no revision 'gone'"),
        (("--against", "main", "new.py"), 3, "main ({commit}) has no new.py"),
        (("--against", "main", "../outside.py"), 2, "not a git repository"),
        (("--against", "main", "--baseline", "b.json", "train.py"), 2, "exclude each other"),
        (("--against", "main", "--update-baseline", "train.py"), 2, "exclude each other"),
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
    write(top, {"pyproject.toml": "[tool.launchscope.check]\nagainst = 'main'\n"})
    runner = FakeRunner(same, same)
    monkeypatch.setattr(workflow, "ScriptRunner", runner)
    found = plan_check(["train.py"], {})
    assert found.base is not None
    assert raised(workflow.check(found, Progress())).baseline is not None
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
data = torch.full((8, 4), float(open({src!r} + "/../data/x").read()))
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
    arguments = ["check", "-q", "--against", "main", "--repeats", "1", "real.py"]
    assert main(arguments) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "device operations per step rose from 6 to 8" in out
    assert "aten.relu" in out
    assert "compared with main" in out
    assert "installation" not in out
    changed = git(top, "status", "--short", "--", "src/*.py", "data", ".git")
    assert changed == "M src/net.py\n?? data/"
    assert git(top, "worktree", "list").count("\n") == 0
