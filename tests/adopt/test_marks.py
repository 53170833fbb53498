"""Copies of a script that say where an iteration begins."""

from __future__ import annotations

from pathlib import Path

from launchscope.adopt.marks import Marked, marked_at, marked_patched
from launchscope.adopt.patch import Patch
from launchscope.adopt.record import ITERATION


def original(text: str, line: int, beside: str = "") -> Marked | None:
    return marked_at(text.encode(), line, beside.encode())


LOOP = "for a in b:\n    for c in d:\n        if c:\n            step()\n    x = 1\n"


def test_the_innermost_block_around_the_step_is_marked_in_a_line_of_its_own() -> None:
    found = original(LOOP, 4)
    assert found is not None
    assert found.content.decode().splitlines()[3] == f"            {ITERATION}()"
    assert found.lines == {5: 4}


def test_a_branch_that_begins_the_step_is_no_block_around_it() -> None:
    found = original("for a in b:\n    if a: clear()\n    step()\n", 2)
    assert found is not None
    assert found.content.decode().splitlines()[1] == f"    {ITERATION}()"


def test_changes_beside_the_step_move_its_lines() -> None:
    found = original(LOOP, 4, f"import e\ne.check(False)\n{LOOP.replace('step()', 'step(x=1)')}")
    assert found is not None
    assert found.content.decode().splitlines()[5] == f"            {ITERATION}()"
    assert found.lines == {7: 4}


def test_a_function_without_a_loop_is_marked_behind_its_docstring() -> None:
    found = original('def f():\n    """Text."""\n    step()\n', 3)
    assert found is not None
    assert found.content.decode() == f'def f():\n    """Text."""\n    {ITERATION}()\n    step()\n'


def test_a_loop_of_one_line_keeps_its_lines() -> None:
    found = original("for a in b: step(); c()\n", 1)
    assert found is not None
    assert found.content.decode() == f"for a in b: {ITERATION}(); step(); c()\n"
    assert found.lines == {1: 1}


def test_a_changed_script_is_marked_around_the_call() -> None:
    after = "@graphed\ndef f(x):\n    step(x)\n\nfor x in y:\n    z = f(x)\n"
    found = marked_patched(Patch(Path("a.py"), b"", after.encode(), "f", 1, 1, "step"))
    assert found is not None
    assert f"for x in y:\n    {ITERATION}()\n    z = f(x)\n" in found.content.decode()


def test_a_step_outside_of_loops_and_functions_has_no_iteration() -> None:
    assert original("step()\n", 1) is None
