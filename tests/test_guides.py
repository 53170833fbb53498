"""docs/contributing.md: its examples, put into a copy of the package, do what the page says."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.child

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
GUIDES = {part.partition("\n")[0]: part for part in PAGE.split("\n## A ")[1:]}
_FILE = re.compile(r"^`(?P<path>[\w./]+\.py)`:\n\n```python\n(?P<source>.*?)^```$", re.M | re.S)
_ROW = re.compile(
    r"^At the end of `(?P<path>[\w./]+\.py)`:\n\n```python\n(?P<source>.*?)^```$", re.M | re.S
)
_CONSOLE = re.compile(r"^```console\n(?P<text>.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Command:
    """A command of a guide and the lines that it says the output has."""

    words: tuple[str, ...]
    expected: tuple[str, ...]


def commands(page: str) -> list[Command]:
    found = []
    for block in _CONSOLE.finditer(page):
        for part in re.split(r"^\$ ", block["text"], flags=re.M)[1:]:
            line, *expected = part.strip().splitlines()
            found.append(Command(tuple(shlex.split(line)), tuple(expected)))
    return found


def run(words: tuple[str, ...], folder: Path) -> str:
    programs = {"launchscope": [sys.executable, "-m", "launchscope"], "python": [sys.executable]}
    done = subprocess.run(
        [*programs.get(words[0], [words[0]]), *words[1:]],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("guide", ["rule", "pass", "format"])
def test_the_example_of_a_guide_is_one_file_and_does_what_the_guide_says(
    guide: str, tmp_path: Path
) -> None:
    page = GUIDES[guide]
    for name in ("launchscope", "tests", "sample_workloads", "pyproject.toml"):
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "golden", "results")
            shutil.copytree(source, tmp_path / name, ignore=ignored)
        else:
            shutil.copy(source, tmp_path / name)
    files = {found["path"]: found["source"] for found in _FILE.finditer(page)}
    assert len([name for name in files if name.startswith("launchscope/")]) == 1
    for row in _ROW.finditer(page):
        table = tmp_path / row["path"]
        table.write_text(table.read_text() + row["source"])
    for name, text in files.items():
        assert not (tmp_path / name).exists()
        (tmp_path / name).write_text(text)
        if name.startswith("tests/"):
            run(("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", name), tmp_path)
    assert commands(page)
    for command in commands(page):
        printed = run(command.words, tmp_path)
        for line in command.expected:
            assert line in printed
