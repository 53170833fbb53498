"""What the pytest plugin makes of a trace: launches by the project's one definition of them."""

from __future__ import annotations

from pathlib import Path

from launchscope.pytest_plugin import _launches_in
from tests.builders import trace


def test_kernel_launches_are_counted_and_copies_sets_and_graphs_are_not(tmp_path: Path) -> None:
    built = trace().launch(name="add").launch(name="add").launch(name="mul", api="cuLaunchKernelEx")
    built = built.memcpy().memset().graph([("inside", 2), ("inside", 2)]).orphan().sync()
    count = _launches_in(built.write(tmp_path / "trace.json"))
    assert (count, repr(count)) == (3, "3 kernel launches")
    assert count.rows == {("add", None): 2, ("mul", None): 1}
    assert count.lines()[0].split() == ["2", "add"]


def test_a_block_that_launches_nothing_counts_nothing(tmp_path: Path) -> None:
    assert _launches_in(trace().work(5).write(tmp_path / "trace.json")) == 0
