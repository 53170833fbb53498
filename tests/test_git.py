"""What git says of a repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.git import commit_of, describe_head, git
from tests.workflows.repositories import repository

pytestmark = pytest.mark.child


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    top = repository(tmp_path / "project", {"train.py": "one\n"})
    monkeypatch.chdir(top)
    return top


def test_a_commit_has_a_mark_where_files_differ_from_it(project: Path) -> None:
    head = describe_head()
    assert head is not None
    assert commit_of("HEAD", "--against").startswith(head)
    (project / "train.py").write_text("two\n")
    assert describe_head() == f"{head}-dirty"


def test_no_hook_of_the_repository_runs(project: Path) -> None:
    hook = project / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {project}/mark\n")
    hook.chmod(0o755)
    assert git("worktree", "add", "--quiet", "--detach", "../base").returncode == 0
    assert not (project / "mark").exists()


def test_without_a_repository_there_is_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert describe_head() is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert describe_head() is None
