"""What `launchscope adopt` cannot take: one sentence, nothing changed, nothing lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from launchscope.cli import main
from tests.adopt.test_adopt_command import SCRIPT, script

pytestmark = pytest.mark.child
__all__ = ["script"]


def errors_of(capfd: pytest.CaptureFixture[str]) -> list[str]:
    """Without the progress, and without what the script prints."""
    lines = capfd.readouterr().err.splitlines()
    return [line for line in lines if line.startswith(("error: ", "hint: "))]


@pytest.fixture
def pipe() -> Iterator[int]:
    """The end that reads a pipe with one line, which is also standard input."""
    reader, writer = os.pipe()
    os.write(writer, b"answer\n")
    before = os.dup(0)
    os.dup2(reader, 0)
    yield reader
    os.dup2(before, 0)
    for number in (reader, writer, before):
        os.close(number)


def test_a_script_that_reads_a_pipe_is_told_to_read_a_file(
    script: Path, pipe: int, capfd: pytest.CaptureFixture[str]
) -> None:
    script.write_text(f"name = input()\n{SCRIPT}")
    assert main(["adopt", "-q", "train.py"]) == 1
    error, hint = errors_of(capfd)
    assert error.endswith("failed in a copy of its folder: EOFError: EOF when reading a line")
    assert "give it as a file" in hint
    assert os.read(pipe, 100) == b"answer\n"


def test_a_script_that_writes_outside_of_its_folder_is_stopped_before_it_does(
    script: Path, tmp_path_factory: pytest.TempPathFactory, capfd: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path_factory.mktemp("results") / "last.pt"
    results.write_text("mine")
    script.write_text(f"{SCRIPT}    torch.save(model.state_dict(), {str(results)!r})\n")
    assert main(["adopt", "-q", "-o", "graph.patch", "train.py"]) == 1
    (error,) = errors_of(capfd)
    assert error.startswith(
        f"error: cannot write graph.patch: there is no patch: the script writes to {results},"
    )
    assert results.read_text() == "mine"


def test_a_script_that_fails_in_its_second_run_gets_no_patch(
    script: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(script.parent.parent / "cache"))
    lock = "os.makedirs(os.environ['XDG_CACHE_HOME'] + '/lock')"
    source = f"import os\n{lock}\n{SCRIPT}"
    script.write_text(source)
    assert main(["adopt", "-q", "train.py"]) == 1
    said = capfd.readouterr().err
    assert said.count("FileExistsError") <= 2  # its own traceback, and the error
    assert "error: " in said
    assert [path.name for path in script.parent.iterdir()] == ["train.py"]
    assert script.read_text() == source
