"""The files of a commit beside the person's: as they were committed, and gone afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from launchscope.errors import InputError, LaunchscopeError, UsageError
from launchscope.git import commit_of
from launchscope.workflows.base_tree import BaseTree
from tests.workflows.repositories import (
    commit,
    fetched,
    git,
    make_hostile,
    pointer,
    repository,
    write,
)

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
def top(tmp_path: Path) -> Path:
    return repository(
        tmp_path / "project",
        {"train.py": "old\n", "bin/run": "#!/bin/sh\n", ".gitattributes": "*.py filter=evil\n"},
    )


def tree(top: Path, *links: Path, reference: str = "main") -> BaseTree:
    return BaseTree(top, commit_of(reference, "--against", top), reference, links)


def worktrees(top: Path) -> int:
    return git(top, "worktree", "list").count("\n") + 1


def refused(top: Path, *links: Path) -> LaunchscopeError:
    with pytest.raises(LaunchscopeError) as caught:
        tree(top, *links)
    assert worktrees(top) == 1
    return caught.value


def test_the_files_are_those_of_the_commit_and_nothing_of_the_repository_runs(
    top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (top / "link.py").symlink_to("train.py")
    (top / "bin/run").chmod(0o755)
    commit(top, {"sub/ä b\n.txt": "odd name\r\n"})
    marks = make_hostile(top)
    write(top, {"train.py": "new\n", "untracked.txt": "mine\n"})
    before = {path: path.read_bytes() for path in top.rglob("*") if path.is_file()}
    # As in a hook of another repository.
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(top / ".git/index"))
    made = tree(top)
    try:
        found = {str(p.relative_to(made.path)) for p in made.path.rglob("*") if not p.is_dir()}
        assert made.path.name == "project"
        assert found == {
            ".git", ".gitattributes", "bin/run", "link.py", "sub/ä b\n.txt", "train.py"
        }  # fmt: skip
        assert (made.path / "link.py").read_text() == "old\n"
        assert os.readlink(made.path / "link.py") == "train.py"
        assert (made.path / "sub/ä b\n.txt").read_bytes() == b"odd name\r\n"
        assert os.access(made.path / "bin/run", os.X_OK)
        assert not os.access(made.path / "train.py", os.X_OK)
        assert not marks.exists(), marks.read_text()
        monkeypatch.delenv("GIT_DIR")
        monkeypatch.delenv("GIT_INDEX_FILE")
        assert git(made.path, "rev-parse", "HEAD") == git(top, "rev-parse", "main")
        assert git(made.path, "ls-files", "--deleted") == ""
    finally:
        made.remove()
    after = {path: path.read_bytes() for path in top.rglob("*") if path.is_file()}
    assert after == before
    assert worktrees(top) == 1


def test_a_killed_runs_worktree_is_forgotten_and_other_peoples_stay(
    top: Path, tmp_path: Path
) -> None:
    killed = tree(top)
    shutil.rmtree(killed.path.parent)  # as the next TemporaryFolder does
    git(top, "worktree", "add", "-q", "--detach", str(tmp_path / "theirs"))
    shutil.rmtree(tmp_path / "theirs")  # on a disk that is away
    assert worktrees(top) == 3
    tree(top).remove()
    assert "theirs" in git(top, "worktree", "list")
    assert worktrees(top) == 2


def test_links_bring_what_the_commit_lacks(top: Path) -> None:
    commit(top, {"data/README": "old"})
    new = {"data/README": "new", "data/a/1.bin": "1", "cache/x": "x", "data/__pycache__/y": "y"}
    write(top, new)
    made = tree(top, top / "data", top / "cache")
    try:
        assert (made.path / "data/README").read_text() == "old"
        assert (made.path / "data/a/1.bin").read_text() == "1"
        assert (made.path / "cache").is_symlink()
        assert not (made.path / "data/__pycache__").exists()
    finally:
        made.remove()
    assert (top / "cache/x").read_text() == "x"
    everything = tree(top, top)
    assert (everything.path / ".git").is_file()
    assert (everything.path / "data/a/1.bin").read_text() == "1"
    everything.remove()
    assert (top / "data/a/1.bin").exists()


def test_large_files_come_from_what_lfs_has_fetched(top: Path) -> None:
    commit(top, {"a.bin": pointer("aaaa"), "b.bin": pointer("bbbb"), "c.bin": pointer("cccc")})
    write(top, {"a.bin": "aaaa", "c.bin": "changed"})  # b.bin is not fetched here either
    fetched(top, "aaaa")
    error = refused(top)
    assert isinstance(error, InputError)
    assert "Git LFS has not fetched these files of main: c.bin" in str(error)
    made = tree(top, top / "c.bin")
    contents = [(made.path / name).read_text() for name in ("a.bin", "b.bin", "c.bin")]
    made.remove()
    assert contents == ["aaaa", pointer("bbbb"), "changed"]
    commit(top, {"d.bin": pointer("x").replace("sha256:", "sha256:../../../")})
    write(top, {"d.bin": "d"})
    assert "d.bin" in str(refused(top, top / "c.bin"))


def test_a_submodule_has_the_commit_of_then_even_if_it_is_dirty(top: Path, tmp_path: Path) -> None:
    library = repository(tmp_path / "library", {"lib.py": "one\n"})
    git(top, "submodule", "--quiet", "add", str(library), "lib")
    git(top, "commit", "-qm", "with a submodule")
    write(top, {"lib/lib.py": "dirty\n", "lib/new.py": "untracked\n"})
    made = tree(top)
    assert (made.path / "lib/lib.py").read_text() == "one\n"
    assert not (made.path / "lib/new.py").exists()
    made.remove()
    git(top, "submodule", "deinit", "-f", "lib")
    made = tree(top)  # the current version does without it, too
    assert list((made.path / "lib").iterdir()) == []
    made.remove()
    (top / "lib").rmdir()
    error = refused(top)
    assert "the commits of these submodules at main are not on this machine: lib" in str(error)


def mktree(top: Path, *rows: str) -> str:
    return subprocess.run(
        ["git", "mktree", "--missing"], cwd=top, input="".join(f"{row}\n" for row in rows),
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip


def test_a_hostile_tree_is_refused(top: Path) -> None:
    blob = git(top, "rev-parse", "main:train.py")
    for name in ("..", ".GIT"):
        inner = mktree(top, f"100644 blob {blob}\tconfig")
        evil = git(top, "commit-tree", "-m", "evil", mktree(top, f"040000 tree {inner}\t{name}"))
        git(top, "branch", "-f", "evil", evil)
        with pytest.raises(InputError, match="has a path that git refuses"):
            tree(top, reference="evil")
    # Both a link out of the tree and a folder.
    inner = mktree(top, f"100644 blob {blob}\tx")
    link = subprocess.run(
        ["git", "hash-object", "-w", "--stdin"], cwd=top, input=f"{top.parent}",
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    double = mktree(top, f"120000 blob {link}\ta", f"040000 tree {inner}\ta")
    git(top, "branch", "-f", "evil", git(top, "commit-tree", "-m", "evil", double))
    with pytest.raises(LaunchscopeError):
        tree(top, reference="evil")
    assert not (top.parent / "x").exists()
    assert worktrees(top) == 1


def test_a_revision_that_cannot_be_had_is_an_error_with_a_hint(top: Path, tmp_path: Path) -> None:
    unknown = (
        *("gone", "--output=x", "", "main:train.py", "a\0b", "main\nmain", "$(id)"),
        *("^main", "main^!", "main@{0", "main..main", "^{/a commit"),
    )
    for reference in unknown:
        with pytest.raises(UsageError, match="--against: git knows no revision"):
            commit_of(reference, "--against", top)
    assert not (top / "x").exists()
    for known in ("main~0", "@", ":/a commit"):
        assert commit_of(known, "--against", top) == git(top, "rev-parse", "main")
    commit(top, {"train.py": "newer\n"})
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{top}", str(shallow))
    with pytest.raises(UsageError) as caught:
        commit_of("HEAD~1", "--against", shallow)
    assert "this clone is shallow" in (caught.value.hint or "")
    full = tmp_path / "full"
    git(tmp_path, "clone", "-q", str(top), str(full))
    git(full, "checkout", "-q", "--detach")
    git(full, "branch", "-D", "main")
    with pytest.raises(UsageError) as caught:
        commit_of("main", "--against", full)
    assert caught.value.hint == "did you mean origin/main?"
    with pytest.raises(UsageError, match="not a git repository"):
        commit_of("main", "--against", tmp_path)
    # The commit is there, and its files are not.
    partial = tmp_path / "partial"
    git(top, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--no-checkout", "--filter=blob:none", f"file://{top}",
        str(partial))  # fmt: skip
    assert "git does not have" in str(refused(partial))
    (top / ".git/worktrees").touch()  # so that git can make none
    with pytest.raises(InputError, match="git cannot make a worktree of main"):
        tree(top)


def test_a_link_is_not_made_through_a_link_of_the_commit(top: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (top / "data").symlink_to(outside)
    (top / "inner").symlink_to("bin")
    commit(top, {})
    (top / "data").unlink()
    (top / "inner").unlink()
    write(top, {"data/weights.bin": "1", "inner/x": "2"})
    error = refused(top, top / "data/weights.bin")
    assert isinstance(error, InputError)
    assert "--link: data/weights.bin would lie outside the files of main" in str(error)
    assert list(outside.iterdir()) == []
    outside.rmdir()  # the link leads nowhere
    assert isinstance(refused(top, top / "data/weights.bin"), InputError)
    assert not outside.exists()
    made = tree(top, top / "inner/x")
    assert (made.path / "bin/x").read_text() == "2"
    made.remove()


def test_no_file_is_written_through_a_link_of_a_submodule(top: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    library = repository(tmp_path / "library", {"lib.py": "one\n"})
    second = git(library, "rev-parse", "HEAD")
    git(top, "submodule", "--quiet", "add", str(library), "a")
    (top / "a/link").symlink_to(outside)
    first = commit(top / "a", {})
    # What `git add` never makes: another submodule below a link of the first one.
    (top / "a/link").unlink()
    git(tmp_path, "clone", "-q", str(library), str(top / "a/link/sub"))
    tree_of_link = mktree(top, f"160000 commit {second}\tsub")
    tree_of_a = mktree(top, f"040000 tree {tree_of_link}\tlink")
    evil = mktree(top, f"160000 commit {first}\ta", f"040000 tree {tree_of_a}\ta")
    git(top, "branch", "-f", "evil", git(top, "commit-tree", "-m", "evil", evil))
    with pytest.raises(LaunchscopeError):
        tree(top, reference="evil")
    assert list(outside.iterdir()) == []
