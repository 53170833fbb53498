"""The files of a commit beside the person's: as they were committed, and gone afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from launchscope.errors import InputError, LaunchscopeError, UsageError
from launchscope.git import commit_of
from launchscope.workflows.against import base_tree
from tests.workflows.repositories import commit, git, repository, write

pytestmark = pytest.mark.child  # git


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of temporary files: nothing is left in it."""
    path = tmp_path / "tmp"
    path.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    yield path
    assert list(path.iterdir()) == []


@pytest.fixture
def top(tmp_path: Path) -> Iterator[Path]:
    made = repository(
        tmp_path / "project",
        {"train.py": "old\n", "bin/run": "#!/bin/sh\n"},
    )
    yield made
    assert git(made, "worktree", "list").count("\n") == 0


def tree(top: Path, reference: str = "main") -> AbstractContextManager[Path]:
    return base_tree(top, commit_of(reference, "--against", top), reference)


def test_the_files_are_those_of_the_commit(
    top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (top / "link.py").symlink_to("train.py")
    (top / "bin/run").chmod(0o755)
    commit(top, {"sub/ä b\n.txt": "odd name\r\n"})
    write(top, {"train.py": "new\n", "untracked.txt": "mine\n"})
    before = {path: path.read_bytes() for path in top.rglob("*") if path.is_file()}
    # As in a hook of another repository.
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(top / ".git/index"))
    with tree(top) as made:
        found = {str(p.relative_to(made)) for p in made.rglob("*") if not p.is_dir()}
        assert made.name == "project"
        assert found == {
            ".git", "bin/run", "link.py", "sub/ä b\n.txt", "train.py"
        }  # fmt: skip
        assert (made / "link.py").read_text() == "old\n"
        assert (made / "sub/ä b\n.txt").read_bytes() == b"odd name\r\n"
        assert os.access(made / "bin/run", os.X_OK)
        monkeypatch.delenv("GIT_DIR")
        monkeypatch.delenv("GIT_INDEX_FILE")
        assert git(made, "rev-parse", "HEAD") == git(top, "rev-parse", "main")
    after = {path: path.read_bytes() for path in top.rglob("*") if path.is_file()}
    assert after == before


def test_a_tree_that_git_cannot_check_out_is_an_error_with_a_hint(
    top: Path, tmp_path: Path
) -> None:
    # The commit is there, and its files are not.
    partial = tmp_path / "partial"
    git(top, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--no-checkout", "--filter=blob:none", f"file://{top}",
        str(partial))  # fmt: skip
    with pytest.raises(InputError, match="git cannot check out main") as caught, tree(partial):
        pass
    assert "git fetch origin" in (caught.value.hint or "")


def test_temporary_files_in_the_repository_are_refused(
    top: Path, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (top / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(top / "tmp"))
    with pytest.raises(LaunchscopeError, match="would lie in the repository"), tree(top):
        pass
    assert list((top / "tmp").iterdir()) == []


def test_a_revision_that_cannot_be_had_is_an_error_with_a_hint(top: Path, tmp_path: Path) -> None:
    for reference in ("gone", "--output=x", "", "main:train.py", "a\0b", "main..main", "^main"):
        with pytest.raises(UsageError, match="--against: git knows no revision"):
            commit_of(reference, "--against", top)
    assert not (top / "x").exists()
    for known in ("main~0", "@"):
        assert commit_of(known, "--against", top) == git(top, "rev-parse", "main")
    commit(top, {"train.py": "newer\n"})
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{top}", str(shallow))
    with pytest.raises(UsageError) as caught:
        commit_of("HEAD~1", "--against", shallow)
    assert "this clone is shallow" in (caught.value.hint or "")
