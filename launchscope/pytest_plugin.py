"""Launch counts in ordinary tests.

    def test_step_is_lean(launches):
        assert launches(step, batch) <= 120

On a GPU they count kernel launches of all threads, elsewhere device operations of the thread that
runs the test. Other tests import no torch.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from launchscope.model import SourceLine

_SHOWN = 12

Rows = Counter[tuple[str, "SourceLine | None"]]

_is_counting = False  # one block at a time: the GPU has one profiler


class LaunchCount(int):
    """How many kernels were launched (without a GPU: device operations run), and which."""

    what: str  # which of the two was counted: "kernel launch" or "device operation"
    rows: Rows  # counts by name and line; kernels have no line

    @classmethod
    def of(cls, total: int, what: str, rows: Rows) -> LaunchCount:
        count = cls(total)
        count.what, count.rows = what, rows
        return count

    def __repr__(self) -> str:
        from launchscope.wording import plural

        return plural(int(self), self.what)

    def lines(self) -> list[str]:
        """What was counted, the most frequent first, for the terminal that pytest writes to."""
        from launchscope.visible import in_encoding, visible, without_commands

        encoding = getattr(sys.__stdout__, "encoding", None)
        rows = (
            visible(f"{count:>6} {name}{f'  {where}' if where else ''}")
            for (name, where), count in self.rows.most_common(_SHOWN)
        )
        shown = [in_encoding(without_commands(row), encoding) for row in rows]
        left = len(self.rows) - _SHOWN
        return [*shown, f"{'':>6} and {left} more"] if left > 0 else shown


@contextlib.contextmanager
def _counting() -> Iterator[list[LaunchCount]]:
    """Counts the block. The list has the count at its end."""
    global _is_counting
    if _is_counting:
        _fail("launches() cannot count inside another launches()")
    try:
        import torch
    except ImportError:
        _fail("counting launches needs PyTorch, which is not installed")
    counts: list[LaunchCount] = []
    _is_counting = True
    try:
        with _on_gpu(torch, counts) if torch.cuda.is_available() else _on_cpu(torch, counts):
            yield counts
    finally:
        _is_counting = False


@contextlib.contextmanager
def _on_cpu(torch: Any, counts: list[LaunchCount]) -> Iterator[None]:
    from launchscope.runner.child.rehearsal.counting import device_ops

    with device_ops(torch) as stream:
        yield
    rows = Counter((record.op, record.where) for record in stream.ops)
    counts.append(LaunchCount.of(stream.device_ops, "device operation", rows))


@contextlib.contextmanager
def _on_gpu(torch: Any, counts: list[LaunchCount]) -> Iterator[None]:
    from launchscope.runner.child.capture.kineto_session import KinetoSession

    torch.cuda.synchronize()
    session = KinetoSession(torch, user_profiles=False)
    session.start()
    with TemporaryDirectory(prefix="launchscope-") as folder:
        path = Path(folder, "trace.json")
        try:
            yield
        finally:
            session.stop(path)
        counts.append(_launches_in(path))


def _launches_in(path: Path) -> LaunchCount:
    from launchscope.parser import columns as c
    from launchscope.parser import read_trace
    from launchscope.parser.launches import find_launches
    from launchscope.parser.trace import ints

    found = find_launches(read_trace(path))
    is_single = found.calls[c.KIND] == c.KERNEL
    is_kernel = found.activities[c.KIND] == c.KERNEL
    launched = found.activities[is_kernel & (ints(found.activities, c.LAUNCH) >= 0)]
    names = launched[c.NAME][is_single[ints(launched, c.LAUNCH)]]
    rows: Rows = Counter((name, None) for name in names)
    return LaunchCount.of(int(is_single.sum()), "kernel launch", rows)


def _fail(message: str) -> NoReturn:
    pytest.fail(message, pytrace=False)


def _require_ran(result: object) -> None:
    """Fails the test if the call has run nothing yet, so that there is nothing to count."""
    if inspect.iscoroutine(result):
        result.close()
        _fail(
            "launches() cannot count an async function: call it inside a step that runs it, "
            "as in launches(lambda: asyncio.run(step()))"
        )
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        _fail(
            "launches() cannot count a generator, which runs when it is iterated: "
            "count launches(lambda: list(step()))"
        )


@pytest.fixture
def launches() -> Callable[..., LaunchCount]:
    """`launches(step, *args, **kwargs)`: the kernel launches of one call of `step`.

    It calls the step twice and counts the second call, which leaves out what only the first one
    does (creating optimizer state, choosing algorithms). Without a GPU it counts device operations.
    """

    def count(step: Callable[..., object], /, *args: Any, **kwargs: Any) -> LaunchCount:
        __tracebackhide__ = True
        _require_ran(step(*args, **kwargs))
        with _counting() as counts:
            step(*args, **kwargs)
        return counts[0]

    return count


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """A comparison with a count shows what was counted."""
    for side in (left, right):
        if isinstance(side, LaunchCount):
            return [f"{left!r} {op} {right!r}", *side.lines()]
    return None
