"""docs/contributing.md: its examples, put into a copy of the package, do what the page says."""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.processes import WITHOUT_GPU, launchscope, python

pytestmark = pytest.mark.child

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
EXAMPLES = {part.partition("\n")[0]: part for part in PAGE.split("\n## A ")[1:]}
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
    rest = words if words[0] == "-m" else words[1:]
    start = launchscope if words[0] == "launchscope" else python
    environ = {**WITHOUT_GPU, "PYTHONPATH": str(folder), "COLUMNS": "200"}
    done = start(folder, *rest, environ=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_each_example_is_one_file_and_does_what_the_page_says(tmp_path: Path) -> None:
    assert list(EXAMPLES) == ["rule", "pass", "format"]
    for name in ("launchscope", "tests", "sample_workloads"):
        ignored = shutil.ignore_patterns("__pycache__", "golden", "results")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    tests = []
    for text in EXAMPLES.values():
        files = {found["path"]: found["source"] for found in _FILE.finditer(text)}
        assert [name.split("/")[0] for name in files] == ["launchscope", "tests"]
        for name, source in files.items():
            assert not (tmp_path / name).exists()
            (tmp_path / name).write_text(source)
        tests += [name for name in files if name.startswith("tests/")]
        for row in _ROW.finditer(text):
            table = tmp_path / row["path"]
            table.write_text(table.read_text() + row["source"])
    run(("-m", "pytest", "-q", "-p", "no:cacheprovider", *tests), tmp_path)
    for text in EXAMPLES.values():
        assert commands(text)
        for command in commands(text):
            printed = run(command.words, tmp_path)
            for line in command.expected:
                assert line in printed
