"""Copies of a script that say where an iteration begins."""

from __future__ import annotations

from pathlib import Path

from launchscope.adopt.marks import Marked, marked_original, marked_patched
from launchscope.adopt.patch import Patch
from launchscope.adopt.record import ITERATION


def original(text: str, line: int) -> Marked | None:
    content = text.encode()
    return marked_original(Patch(Path("a.py"), content, content, "f", line, line, "step"))


def test_the_innermost_loop_around_the_step_is_marked_in_a_line_of_its_own() -> None:
    found = original(
        "for a in b:\n    for c in d:\n        if c:\n            step()\n    x = 1\n", 4
    )
    assert found is not None
    assert found.content.decode().splitlines()[2] == f"        {ITERATION}()"
    assert found.statements == (3, 4)
    assert [found.shifted(line) for line in (2, 3, 4)] == [2, 4, 5]
    assert [found.unshifted(line) for line in (2, 4, 5)] == [2, 3, 4]


def test_a_function_without_a_loop_is_marked_behind_its_docstring() -> None:
    found = original('def f():\n    """Text."""\n    step()\n', 3)
    assert found is not None
    assert found.content.decode() == f'def f():\n    """Text."""\n    {ITERATION}()\n    step()\n'


def test_a_loop_of_one_line_keeps_its_lines() -> None:
    found = original("for a in b: step(); c()\n", 1)
    assert found is not None
    assert found.content.decode() == f"for a in b: {ITERATION}(); step(); c()\n"
    assert found.shifted(1) == 1


def test_a_changed_script_is_marked_around_the_call() -> None:
    after = "@graphed\ndef f(x):\n    step(x)\n\nfor x in y:\n    z = f(x)\n"
    found = marked_patched(Patch(Path("a.py"), b"", after.encode(), "f", 1, 1, "step"))
    assert found is not None
    assert f"for x in y:\n    {ITERATION}()\n    z = f(x)\n" in found.content.decode()


def test_a_step_outside_of_loops_and_functions_has_no_iteration() -> None:
    assert original("step()\n", 1) is None
