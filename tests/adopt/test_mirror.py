"""A run in a copy of a project changes nothing in the project."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from launchscope.adopt.child.writes import WriteGuard
from launchscope.adopt.mirror import Mirror, Project
from launchscope.errors import UsageError
from launchscope.model import Target

pytestmark = pytest.mark.child


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


def test_what_is_no_file_stays_out_of_the_copy(project: Path) -> None:
    (project / "circle").symlink_to("circle")
    (project / "nothing").symlink_to("missing")
    os.mkfifo(project / "pipe")
    (project / os.fsdecode(b"\n\x1b[2J\xe9")).touch()
    (project / ("x" * 255)).touch()
    names = {path.name for path in project.iterdir()} - {"circle", "nothing", "pipe"}
    assert {path.name for path in mirror_of(project).root.iterdir()} == names


def test_arguments_that_name_the_project_name_the_copy(project: Path) -> None:
    mirror = mirror_of(project)
    moved = mirror.target(Target("script", "train.py", (f"--out={project}/out", "x", "/etc")))
    assert moved.args == (f"--out={mirror.root}/out", "x", "/etc")
    assert mirror.original(mirror.path_of(project / "train.py")) == project / "train.py"


def test_a_copy_has_around_it_what_is_around_the_project(tmp_path: Path) -> None:
    """Data beside the repository, which a script finds from where it runs."""
    project = tmp_path / "code" / "run"
    project.mkdir(parents=True)
    (project / "train.py").write_text("pass\n")
    for path in ("code/data/x", "data/y"):
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text(path)
    mirror = Mirror(Project.of(Target("script", "train.py"), project), tmp_path / "temporary" / "1")
    assert (mirror.folder / "../data/x").read_text() == "code/data/x"
    assert (mirror.folder / "../../data/y").read_text() == "data/y"
    mirror.remove()
    assert not mirror.folder.exists()
    assert (tmp_path / "code" / "data" / "x").read_text() == "code/data/x"


def test_the_whole_file_system_is_no_project() -> None:
    with pytest.raises(UsageError, match="would be all of"):
        Project.of(Target("script", "train.py"), Path("/"))


def test_the_project_is_the_repository(project: Path) -> None:
    subprocess.run(["git", "init", "-q", project], check=True)
    inside = project / "data"
    assert Project.of(Target("script", "../train.py"), inside) == Project(project, inside)


def test_a_repository_whose_files_are_elsewhere_is_no_project(project: Path) -> None:
    elsewhere = project.parent / "elsewhere"
    elsewhere.mkdir()
    subprocess.run(["git", "init", "-q", project], check=True)
    subprocess.run(["git", "-C", project, "config", "core.worktree", elsewhere], check=True)
    mirror = Mirror(Project.of(Target("module", "train"), project), project.parent / "copy")
    assert (mirror.folder / "train.py").samefile(mirror.root / "train.py")
    assert not (mirror.folder / "train.py").samefile(project / "train.py")


def test_a_patched_file_of_a_linked_folder_leaves_the_persons_one(project: Path) -> None:
    (project / "lib" / "inner").mkdir(parents=True)
    for name in ("step.py", "other.py"):
        (project / "lib" / "inner" / name).write_text("x = 1\n")
    (project / "src").symlink_to("lib")
    mirror = mirror_of(project)
    mirror.write(project / "src" / "inner" / "step.py", b"x = 2\n")
    assert (project / "lib" / "inner" / "step.py").read_text() == "x = 1\n"
    assert (mirror.root / "src" / "inner" / "step.py").read_text() == "x = 2\n"
    assert (mirror.root / "src" / "inner" / "other.py").read_text() == "x = 1\n"


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


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_what_torch_writes_without_python_is_checked(project: Path) -> None:
    refused: list[str] = []
    guard = WriteGuard(str(mirror_of(project).root.parent), str(project), refused.append)
    scripted: Any = torch.jit.script(torch.nn.Linear(2, 2))
    save = guard._checking_file("f", type(scripted).save)
    map_file = guard._checking_file("filename", torch.from_file)
    large = project / "data" / "large.bin"
    before = large.read_bytes()
    with pytest.raises(PermissionError):
        save(scripted, project / "model.pt")
    with pytest.raises(PermissionError):
        map_file(str(large), shared=True, size=4)
    assert refused == [str(project / "model.pt"), str(large)]
    map_file(str(large), size=4).fill_(1.0)
    assert large.read_bytes() == before


def test_of_the_home_only_the_folders_of_programs_may_be_written(
    project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    guard = WriteGuard(str(mirror_of(project).root.parent), str(project), lambda path: None)
    guard.check(home / ".cache" / "torch" / "kernels")
    for place in (".my_runs/last.pt", ".cached", "results.pt"):
        with pytest.raises(PermissionError):
            guard.check(home / place)


def test_a_link_to_the_persons_file_is_replaced_before_it_is_written(project: Path) -> None:
    mirror = mirror_of(project)
    guard = WriteGuard(str(mirror.root.parent), str(project), lambda path: None)
    linked = mirror.root / "data" / "large.bin"
    guard.check(str(linked))
    assert not linked.is_symlink()
    assert linked.stat().st_size == 2 << 20


@pytest.mark.parametrize("way", ["descriptor", "working directory", "linked folder", "sqlite"])
def test_no_other_way_to_a_linked_file_leads_to_the_persons(
    project: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    (project.parent / "real").mkdir()
    (project.parent / "other").symlink_to("real")
    target = Target("script", "train.py", ())
    mirror = Mirror(Project.of(target, project), project.parent / "other" / "copy")
    refused: list[str] = []
    guard = WriteGuard(str(mirror.root.parent), str(project), refused.append)
    monkeypatch.chdir(mirror.root)
    linked = mirror.root / "data" / "large.bin"
    if way == "descriptor":
        with linked.open("rb") as file, pytest.raises(PermissionError):
            guard.check(f"/proc/self/fd/{file.fileno()}")
        assert refused == [str(project / "data" / "large.bin")]
        return
    if way == "sqlite":
        guard._on_event("sqlite3.connect", ("file:data/large.bin?mode=rw",))
    else:
        paths = {"working directory": "/proc/self/cwd/data/large.bin", "linked folder": linked}
        guard.check(str(paths[way]))
    assert not linked.is_symlink()


REMOVING = """\
import os, shutil, sys
from launchscope.adopt.child.writes import WriteGuard

scratch, results, refused = sys.argv[1], sys.argv[2], []
WriteGuard(scratch, "/no/project", refused.append).install()
shutil.rmtree(results, ignore_errors=True)
try:
    os.link(os.path.join(results, "best.pt"), os.path.join(scratch, "best.pt"))
except PermissionError:
    print(refused[0])
"""


def test_results_elsewhere_are_neither_removed_as_a_folder_nor_linked(tmp_path: Path) -> None:
    results, scratch = tmp_path / "results", tmp_path / "scratch"
    for folder in (results / "run", scratch):
        folder.mkdir(parents=True)
    (results / "best.pt").write_bytes(b"mine")
    (results / "run" / "log").write_bytes(b"mine")
    words = [sys.executable, "-c", REMOVING, str(scratch), str(results)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    assert Path(done.stdout.strip()).is_relative_to(results)
    assert (results / "best.pt").read_bytes() == b"mine"
    assert (results / "run" / "log").read_bytes() == b"mine"
    assert not list(scratch.iterdir())
