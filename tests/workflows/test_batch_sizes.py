"""The script at each batch size: which flag it has, and what its arguments become."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.errors import UsageError
from launchscope.model import Target
from launchscope.workflows.batch_sizes import PlannedPoint, planned_points

ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", "-b", type=int)
"""


def points(
    folder: Path,
    source: str,
    sizes: str = "8,32",
    args: tuple[str, ...] = (),
) -> tuple[PlannedPoint, ...]:
    (folder / "train.py").write_text(source)
    target = Target("script", str(folder / "train.py"), args)
    return planned_points(target, sizes.split(","))


@pytest.mark.parametrize(
    ("flags", "chosen"),
    [
        *((flag, flag) for flag in ("--batch-size", "--batch_size", "--bs", "-b")),
        ("-b --batch", "--batch"),
        ("--batch-size --test-batch-size --batch-norm", "--batch-size"),
    ],
)
def test_the_scripts_own_flag_is_found(tmp_path: Path, flags: str, chosen: str) -> None:
    source = "\n".join(f"parser.add_argument('{flag}')" for flag in flags.split())
    assert points(tmp_path, source)[0].target.args == (chosen, "8")


def test_a_module_target_is_read_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "loud_package"
    package.mkdir()
    (package / "__main__.py").write_text(f"{ARGPARSE}\nraise SystemExit(5)")
    (tmp_path / "loud_module.py").write_text(f"{ARGPARSE}\nraise SystemExit(5)")
    monkeypatch.chdir(tmp_path)
    for name in ("loud_package", "loud_package.__main__", "loud_module"):
        (point,) = planned_points(Target("module", name), [8])
        assert point.target.args == ("--batch-size", "8")
    with pytest.raises(UsageError, match="no option that looks like a batch size"):
        planned_points(Target("module", "no_such_module"), [8])


def test_each_size_follows_the_flag(tmp_path: Path) -> None:
    found = points(tmp_path, ARGPARSE, "32,8,8", args=("--epochs", "1"))
    assert [point.target.args for point in found] == [
        ("--epochs", "1", "--batch-size", "8"),
        ("--epochs", "1", "--batch-size", "32"),
    ]
    assert [point.batch_size for point in found] == [8, 32]


def test_a_placeholder_in_the_arguments_is_filled_and_nothing_appended(tmp_path: Path) -> None:
    (point,) = points(tmp_path, "", "8", args=("--cfg", "data.batch={batch_size}", "{other}"))
    assert point.target.args == ("--cfg", "data.batch=8", "{other}")
