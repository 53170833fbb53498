"""A run in a copy of a project changes nothing in the project."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from launchscope.adopt.mirror import Mirror, Project
from launchscope.errors import UsageError
from launchscope.model import Target
from launchscope.runner.child.observe.writes import WriteGuard


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "data").mkdir(parents=True)
    (root / "train.py").write_text("pass\n")
    (root / "data" / "large.bin").write_bytes(b"\0" * (2 << 20))
    (root / "model.pt").write_bytes(b"\1" * (2 << 20))
    return root


def mirror_of(project: Path, *args: str) -> Mirror:
    target = Target("script", "train.py", args)
    return Mirror(Project.of(target, project), project.parent / "copy")


def test_programs_and_checkpoints_are_copies_and_large_data_is_linked(project: Path) -> None:
    mirror = mirror_of(project)
    assert not (mirror.root / "train.py").is_symlink()
    assert not (mirror.root / "model.pt").is_symlink()
    assert os.path.realpath(mirror.root / "data" / "large.bin") == os.path.realpath(
        project / "data" / "large.bin"
    )


def test_a_folder_of_many_files_is_one_link(project: Path) -> None:
    for number in range(1100):
        (project / "data" / f"{number}.txt").touch()
    assert (mirror_of(project).root / "data").is_symlink()


def test_arguments_that_name_the_project_name_the_copy(project: Path) -> None:
    mirror = mirror_of(project)
    moved = mirror.target(Target("script", "train.py", (f"--out={project}/out", "x", "/etc")))
    assert moved.args == (f"--out={mirror.root}/out", "x", "/etc")
    assert mirror.original(mirror.path_of(project / "train.py")) == project / "train.py"


def test_the_whole_file_system_is_no_project() -> None:
    with pytest.raises(UsageError, match="would be all of"):
        Project.of(Target("script", "train.py"), Path("/"))


def test_the_project_is_the_repository(project: Path) -> None:
    subprocess.run(["git", "init", "-q", project], check=True)
    inside = project / "data"
    assert Project.of(Target("script", "../train.py"), inside) == Project(project, inside)


def test_only_the_copy_and_caches_may_be_written(project: Path) -> None:
    mirror = mirror_of(project)
    refused: list[str] = []
    guard = WriteGuard(str(mirror.root.parent), str(project), refused.append)
    guard.check(str(mirror.root / "out.pt"))
    guard.check("/dev/null")
    guard.check(project / "__pycache__" / "train.pyc")
    for path in (project / "model.pt", project.parent / "elsewhere.pt"):
        with pytest.raises(PermissionError):
            guard.check(str(path))
    assert refused == [str(project / "model.pt"), str(project.parent / "elsewhere.pt")]


def test_a_link_to_the_persons_file_is_replaced_before_it_is_written(project: Path) -> None:
    mirror = mirror_of(project)
    guard = WriteGuard(str(mirror.root.parent), str(project), lambda path: None)
    linked = mirror.root / "data" / "large.bin"
    guard.check(str(linked))
    assert not linked.is_symlink()
    assert linked.stat().st_size == 2 << 20
