"""Whose line is named: the person's own, or the library's below a call of its loop."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
import torch  # noqa: F401  # its folder is asked for

from launchscope.model import SourceLine
from launchscope.runner.child import source_lines as userlines
from launchscope.runner.child.source_lines import (
    CodePlace,
    code_place,
    note_library_loop,
    user_line,
)


@pytest.fixture
def called(
    tmp_path: Path, libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> list[SourceLine | None]:
    """What user_line says in a library that a person's line 1 calls, asked again each run."""
    monkeypatch.setattr(userlines, "_library_loops", set())
    library = libraries / "trainer.py"
    found: list[SourceLine | None] = []
    space = {"ask": lambda: found.append(user_line(sys._getframe(1)))}
    exec(compile("def fit():\n    ask()\n", str(library), "exec"), space)
    script = compile("fit()\n", str(tmp_path / "train.py"), "exec")
    for again in range(2):
        exec(script, space)
        if not again:
            assert found[0] is not None
            note_library_loop(found[0])
    return found


def test_the_persons_own_line_is_named(called: list[SourceLine | None]) -> None:
    assert str(called[0]).endswith("train.py:1")


def test_the_librarys_line_is_named_below_its_loop(called: list[SourceLine | None]) -> None:
    assert str(called[1]).endswith("trainer.py:2")


def test_a_library_loop_is_new_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(userlines, "_library_loops", set())
    assert note_library_loop(SourceLine("train.py", 9))
    assert not note_library_loop(SourceLine("train.py", 9))


def test_a_file_of_the_repository_has_the_same_name_in_every_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = tmp_path / "checkout" / "experiments"
    start.mkdir(parents=True)
    monkeypatch.setattr(userlines, "_START", str(start))
    alone = userlines._root.__wrapped__()
    (start.parent / ".git").mkdir()
    monkeypatch.setattr(userlines, "_root", userlines._root.__wrapped__)
    shorten = userlines.short_path.__wrapped__
    assert alone == str(start)
    assert shorten(f"{start}/../train.py") == "../train.py"
    assert shorten(f"{start.parent}/lib/net.py") == "../lib/net.py"
    assert shorten(f"{start}/train.py") == "train.py"
    assert shorten(f"{tmp_path}/elsewhere/net.py") == f"{tmp_path}/elsewhere/net.py"


def test_generated_code_is_nobodys_line(tmp_path: Path, libraries: Path) -> None:
    library = libraries / "model.py"
    script = tmp_path / "train.py"
    found: list[CodePlace] = []
    space = {"ask": lambda: found.append(code_place(sys._getframe(1)))}
    # As beartype, attrs, torch.fx and others name what they generate.
    exec(
        compile("def wrapped():\n    ask()\n", "<@beartype(model.forward) at 0x7f>", "exec"), space
    )
    exec(compile("\ndef forward():\n    wrapped()\n", str(library), "exec"), space)
    exec(compile("forward()\n", str(script), "exec"), space)
    assert found == [CodePlace(SourceLine(str(script), 1), SourceLine(str(library), 3))]


def test_a_thread_of_the_backward_has_the_line_that_called_it(libraries: Path) -> None:
    library = libraries / "function.py"
    found: list[CodePlace] = []
    called_at = SourceLine("train.py", 9)
    space = {"ask": lambda: found.append(code_place(sys._getframe(1), called_at))}
    thread = threading.Thread(target=exec, args=(compile("ask()", str(library), "exec"), space))
    thread.start()
    thread.join()
    assert found == [CodePlace(called_at, SourceLine(str(library), 1))]
