"""git is asked about hostile repositories, in real ones."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from launchscope.git import _ENVIRONMENT, commit_of, describe_head, git
from tests.workflows.repositories import repository

pytestmark = pytest.mark.child

TEXTS = ("file.txt", "equals.txt", "undecodable.txt")


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in which every setting that can name a program names one that leaves a mark."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho $0 $* >> {tmp_path}/marks\ncat 2>/dev/null\n")
    program.chmod(0o755)

    def run(*words: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *identity, *words], check=True, capture_output=True)

    run("init", "-q", "-b", "main")
    (tmp_path / ".gitattributes").write_text("*.txt filter=evil diff=evil\n")
    for name in ("file", "equals", "undecodable"):
        (tmp_path / f"{name}.txt").write_text("first\n")
    with (tmp_path / ".gitattributes").open("ab") as attributes:
        attributes.write(b"equals.txt filter=a=b\nundecodable.txt filter=\xe9\n")
    run("init", "-q", "-b", "main", "part")
    (tmp_path / "part" / "file.txt").write_text("first\n")
    (tmp_path / "part" / ".gitattributes").write_text("*.txt filter=inside\n")
    run("-C", "part", "add", ".")
    run("-C", "part", "commit", "-qm", "one")
    run("-c", "advice.addEmbeddedRepo=false", "add", "part", ".gitattributes", *TEXTS)
    run("commit", "-qm", "one")
    run("-C", "part", "config", "filter.inside.clean", str(program))
    settings = (
        "core.fsmonitor", "core.pager", "pager.describe", "pager.cat-file", "core.sshCommand",
        "core.askPass", "core.editor", "credential.helper", "diff.external", "diff.evil.command",
        "diff.evil.textconv", "filter.evil.clean", "filter.evil.smudge", "filter.evil.process",
        "gpg.program", "core.alternateRefsCommand", "uploadpack.packObjectsHook",
    )  # fmt: skip
    for setting in settings:
        run("config", setting, str(program))
    hooks = tmp_path / ".git" / "hooks"
    for hook in (
        "post-index-change",
        "post-checkout",
        "fsmonitor-watchman",
        "reference-transaction",
    ):
        (hooks / hook).write_text(program.read_text())
        (hooks / hook).chmod(0o755)
    with (tmp_path / ".git" / "config").open("ab") as config:
        for driver in (b"a=b", b"\xe9"):
            config.write(b'[filter "%b"]\n\tclean = %b\n' % (driver, os.fsencode(program)))
    for text in (*TEXTS, "part/file.txt"):
        (tmp_path / text).write_text("other\n")  # as long: git has to look into it
    (tmp_path / "marks").unlink(missing_ok=True)
    return tmp_path


@pytest.mark.parametrize("variables", [{}, {"GIT_CONFIG": os.devnull}], ids=["plain", "GIT_CONFIG"])
def test_a_repositorys_configuration_runs_no_program(
    hostile: Path, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert (describe_head() or "").endswith("-dirty")
    assert git("cat-file", "blob", "HEAD:file.txt").stdout == b"first\n"
    commit_of("main", "--against")
    marks = hostile / "marks"
    assert not marks.exists(), marks.read_text()


def test_the_programs_of_the_hostile_repository_do_run_under_plain_git(hostile: Path) -> None:
    """Otherwise the test above could not fail."""
    marks = hostile / "marks"
    for inside in (hostile, hostile / "part"):
        subprocess.run(["git", "status"], capture_output=True, check=False, cwd=inside)
        assert "program" in marks.read_text()
        marks.unlink()


def test_nothing_is_fetched_that_a_partial_clone_lacks(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = git("rev-parse", "HEAD:file.txt").stdout.decode().strip()
    (hostile / ".git" / "objects" / found[:2] / found[2:]).unlink()
    with (hostile / ".git" / "config").open("a") as config:
        config.write(
            "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = far\n"
            f'[remote "far"]\n\turl = ext::touch {hostile}/marks\n\tpromisor = true\n'
            '[protocol "ext"]\n\tallow = always\n'
        )
    wanted = ("cat-file", "blob", "HEAD:file.txt")
    # As in the versions of git that know no such variable.
    monkeypatch.setitem(_ENVIRONMENT, "GIT_NO_LAZY_FETCH", "0")
    assert git(*wanted).returncode != 0
    assert not (hostile / "marks").exists()
    subprocess.run(["git", *wanted], capture_output=True, check=False)
    assert (hostile / "marks").exists()  # or else this test could not fail


def test_a_change_inside_a_submodule_is_seen_once_it_is_committed(
    hostile: Path,
) -> None:
    for text in TEXTS:
        (hostile / text).write_text("first\n")
    assert not (describe_head() or "-dirty").endswith("-dirty")
    words = ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "2", "--allow-empty")
    subprocess.run(["git", "-C", "part", *words], check=True, capture_output=True)
    assert (describe_head() or "").endswith("-dirty")


def test_without_a_repository_there_is_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert describe_head() is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert describe_head() is None


HOOKS = ("plain", "a=b", "with.dots", "\u00e9 \udce9")
ASKS = """#!/bin/sh
case "$*" in *" config "*) ;; *) for name in %s; do
  %s config --type=bool --get "hook.$name.enabled" || echo on
done >> %s ;; esac
exec %s "$@"
"""


@pytest.mark.parametrize(
    "words",
    [
        ("worktree", "add", "--quiet", "--no-checkout", "--detach", "../base"),
        ("worktree", "list"),
        ("read-tree", "HEAD"),
        ("status", "--porcelain"),
    ],
)
def test_every_hook_of_the_configuration_is_off_for_a_command_that_may_run_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """Versions of git before 2.54 know no such hooks; what a newer one reads is looked at."""
    top = repository(tmp_path / "project", {"train.py": "one\n"})
    with (top / ".git" / "config").open("ab") as config:
        for name in HOOKS:
            for event in (b"reference-transaction", b"post-index-change"):
                setting = (os.fsencode(name), os.fsencode(tmp_path / "marks"), event)
                config.write(b'[hook "%b"]\n\tcommand = touch %b\n\tevent = %b\n' % setting)
                config.write(b"\tenabled = true\n")
    (tmp_path / "asks" / "git").parent.mkdir()
    program, real = tmp_path / "asks" / "git", shutil.which("git")
    names = " ".join(f"'{name}'" for name in HOOKS)
    text = ASKS % (names, real, tmp_path / "seen", real)
    program.write_bytes(os.fsencode(text))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(top)
    for folder in (None, top):
        assert git(*words, folder=folder).returncode == 0
        assert (tmp_path / "seen").read_text().split() == ["false"] * len(HOOKS)
        (tmp_path / "seen").unlink()
        shutil.rmtree(tmp_path / "base", ignore_errors=True)
        subprocess.run([str(real), "worktree", "prune"], check=True)
    assert not (tmp_path / "marks").exists()
