"""The action for pull requests: its steps, run by bash as GitHub runs them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.workflows.repositories import commit, git

ROOT = Path(__file__).parents[1]
ACTION = ROOT / ".github" / "actions" / "launchscope" / "action.yml"
MARKER = "<!-- launchscope -->"
SCRIPT = """
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(60):
    optimizer.zero_grad()
    loss = model(torch.ones(2, 4)).sum()
    loss.backward()
    optimizer.step()
"""

Step = Callable[..., int]


def script_of(step: str) -> str:
    text = ACTION.read_text(encoding="utf-8")
    (body,) = re.findall(
        rf"- name: {step}\n(?:      .*\n)*?      run: (.*\n(?:        .*\n|\n)*)", text
    )
    return textwrap.dedent(body.removeprefix("|\n"))


def program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def step(tmp_path: Path) -> Step:
    """Runs a step in a clone of `tmp_path/origin`; its exit code."""
    program(tmp_path / "bin" / "launchscope", f'exec "{sys.executable}" -m launchscope "$@"')
    (tmp_path / "clone").mkdir()
    environ = {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
    }

    def run(name: str, **values: str) -> int:
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script_of(name)]
        return subprocess.run(
            words, cwd=tmp_path / "clone", env=environ | values, timeout=120
        ).returncode

    return run


@pytest.mark.child
def test_a_labelled_pull_request_gets_a_baseline_and_a_later_one_fails_by_it(
    tmp_path: Path, step: Step
) -> None:
    clone, origin = tmp_path / "clone", tmp_path / "origin"
    git(tmp_path, "init", "--quiet", "--bare", str(origin))
    git(clone, "init", "--quiet", "-b", "topic")
    git(clone, "remote", "add", "origin", str(origin))
    commit(clone, {"train it.py": SCRIPT})
    git(clone, "push", "-q", "origin", "topic")
    commit(clone, {"train it.py": f"{SCRIPT}\n"})  # the checkout is not the branch

    check = {"COMMAND": "'train it.py'", "BASELINE": "baselines/", "AGAINST": ""}
    assert step("Check", **check, UPDATE="true") == 0
    outputs = (tmp_path / "output").read_text()
    assert "code=0\n" in outputs
    push = {"BASELINE": "baselines/", "BRANCH": "topic"}
    assert step("New baseline", **push, HEAD_REPOSITORY="fork/r") == 0
    assert "not be pushed (the branch is in fork/r)" in (tmp_path / "summary").read_text()
    assert git(origin, "ls-tree", "-r", "--name-only", "topic") == "train it.py"
    assert step("New baseline", **push, HEAD_REPOSITORY="o/r") == 0
    first, *rest = git(origin, "ls-tree", "-r", "--name-only", "topic").splitlines()
    assert first.startswith("baselines/")
    assert rest == ["train it.py"]
    assert git(origin, "show", "topic:train it.py") == SCRIPT.strip()

    (clone / "train it.py").write_text(SCRIPT.replace(".sum()", ".sum() * 2"))
    assert step("Check", **check, UPDATE="false") == 0
    outputs = (tmp_path / "output").read_text().removeprefix(outputs)
    named = dict(line.split("=") for line in outputs.splitlines())
    assert "FAILED" in Path(named["report"]).read_text()
    assert json.loads(Path(named["sarif"]).read_text())["runs"][0]["results"]
    assert step("Result", CODE=named["code"]) == 1


@pytest.mark.child
def test_a_job_that_has_not_installed_launchscope_says_so(
    step: Step, capfd: pytest.CaptureFixture[str]
) -> None:
    assert step("Check", PATH="/usr/bin:/bin") == 1
    assert capfd.readouterr().out.startswith("::error::launchscope is not installed: ")


@pytest.mark.child
@pytest.mark.parametrize(
    ("known", "fails", "place"),
    [
        ("", "none", "POST repos/o/r/issues/5/comments"),
        ("17\n23\n", "none", "PATCH repos/o/r/issues/comments/17"),
        ("", "paginate", None),
        ("", "POST", None),
    ],
)
def test_the_comment_is_made_once_then_replaced_or_left_to_the_summary(
    tmp_path: Path, step: Step, known: str, fails: str, place: str | None
) -> None:
    (tmp_path / "known").write_text(known)
    program(
        tmp_path / "bin" / "gh",
        f'cd "{tmp_path}"; echo "$@" >> calls\n'
        f'case "$*" in *{fails}*) echo HTTP 403 >&2; exit 1;; *--paginate*) cat known;; esac',
    )
    (tmp_path / "c.md").write_text("# FAILED: `train.py`\n")
    assert step("Comment", MARKER=MARKER, NUMBER="5", REPORT=str(tmp_path / "c.md")) == 0
    if place is None:
        assert (tmp_path / "summary").read_text().endswith("of the pull request: HTTP 403\n")
        return
    assert not (tmp_path / "summary").exists()
    _, written, *rest = (tmp_path / "calls").read_text().splitlines()
    assert written == f"api --silent --method {place} -f body={MARKER}"
    assert rest == ["", "# FAILED: `train.py`"]


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not on this machine")
@pytest.mark.child
def test_only_comments_of_the_action_are_replaced() -> None:
    (query,) = re.findall(r"^ours='(.*)'$", script_of("Comment"), re.M)
    comments = [
        {"id": 1, "user": {"login": "me"}, "body": f"{MARKER}\nmine"},
        {"id": 2, "user": {"login": "github-actions[bot]"}, "body": f"see {MARKER}"},
        {"id": 3, "user": {"login": "github-actions[bot]"}, "body": f"{MARKER}\n\n### FAILED"},
    ]
    environ = os.environ | {"MARKER": MARKER}
    found = subprocess.run(
        ["jq", query], input=json.dumps(comments), capture_output=True, text=True, check=True,
        env=environ,
    )  # fmt: skip
    assert found.stdout == "3\n"
