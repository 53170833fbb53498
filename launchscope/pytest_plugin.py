"""Launch counts in ordinary tests.

    def test_step_is_lean(launches):
        assert launches(step, batch) <= 120

    @pytest.mark.launch_budget(120)
    def test_inference(): ...

On a GPU they count kernel launches, without one device operations. Only tests that use them import
torch.
"""

from __future__ import annotations

import contextlib
import inspect
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from launchscope.model import SourceLine

_MARKER = "launch_budget"
_SHOWN = 12
_LAUNCHES, _OPERATIONS = "kernel launches", "device operations"

Rows = Counter[tuple[str, "SourceLine | None"]]

_is_counting = False  # one block at a time: the GPU has one profiler


class LaunchCount(int):
    """How many kernels were launched (without a GPU: device operations run), and which.

    An ordinary int in every other way. `what` says which of the two was counted; `rows` maps
    name and line to counts (kernels have no line).
    """

    what: str
    rows: Rows

    @classmethod
    def of(cls, total: int, what: str, rows: Rows) -> LaunchCount:
        count = cls(total)
        count.what, count.rows = what, rows
        return count

    def __repr__(self) -> str:
        return f"{int(self)} {self.what}"

    def lines(self) -> list[str]:
        """What was counted, the most frequent first."""
        shown = [
            f"{count:>6} {name}{f'  {where}' if where else ''}"
            for (name, where), count in self.rows.most_common(_SHOWN)
        ]
        left = len(self.rows) - _SHOWN
        return [*shown, f"{'':>6} and {left} more"] if left > 0 else shown


@contextlib.contextmanager
def _counting() -> Iterator[list[LaunchCount]]:
    """Counts the block. The list has the count at its end."""
    global _is_counting
    if _is_counting:
        pytest.fail(
            "launches() cannot count inside a test that @pytest.mark.launch_budget counts, "
            "nor inside another launches(): use one of them",
            pytrace=False,
        )
    try:
        import torch
    except ImportError:
        pytest.fail("counting launches needs PyTorch, which is not installed", pytrace=False)
    counts: list[LaunchCount] = []
    _is_counting = True
    try:
        with _on_gpu(torch, counts) if torch.cuda.is_available() else _on_cpu(torch, counts):
            yield counts
    finally:
        _is_counting = False


@contextlib.contextmanager
def _on_cpu(torch: Any, counts: list[LaunchCount]) -> Iterator[None]:
    from launchscope.runner.child.ops.counting import device_ops

    with device_ops(torch) as stream:
        yield
    rows = Counter((record.op, record.where) for record in stream.ops)
    counts.append(LaunchCount.of(stream.device_ops, _OPERATIONS, rows))


@contextlib.contextmanager
def _on_gpu(torch: Any, counts: list[LaunchCount]) -> Iterator[None]:
    from launchscope.runner.child.kineto_session import KinetoSession

    torch.cuda.synchronize()
    session = KinetoSession(torch, user_profiles=False)
    session.start()
    with tempfile.TemporaryDirectory(prefix="launchscope-") as folder:
        path = Path(folder) / "trace.json"
        try:
            yield
        finally:
            session.stop(path)
        counts.append(_launches_in(path))


def _launches_in(path: Path) -> LaunchCount:
    from launchscope.parser import columns as c
    from launchscope.parser import read_trace
    from launchscope.parser.launches import find_launches

    found = find_launches(read_trace(path))
    single = found.calls[found.calls[c.KIND] == c.KERNEL]
    launched = found.activities[
        found.activities[c.LAUNCH].isin(single.index) & (found.activities[c.KIND] == c.KERNEL)
    ]
    rows: Rows = Counter((str(name), None) for name in launched[c.NAME])
    return LaunchCount.of(len(single), _LAUNCHES, rows)


def _require_ran(result: object) -> None:
    """Fails the test if the call has run nothing yet, so that there is nothing to count."""
    if inspect.iscoroutine(result):
        result.close()
        pytest.fail(
            "launches() cannot count an async function: call it inside a step that runs it, "
            "as in launches(lambda: asyncio.run(step()))",
            pytrace=False,
        )
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        pytest.fail(
            "launches() cannot count a generator, which runs when it is iterated: "
            "count launches(lambda: list(step()))",
            pytrace=False,
        )


# ------------------------------------------------------------------ what pytest calls


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


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(n): fail when the test launches more than n kernels "
        "(without a GPU: runs more than n device operations)",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fails a marked test that launched more than its budget."""
    marker = item.get_closest_marker(_MARKER)
    if marker is None:
        return (yield)
    budget = _budget(marker)
    with _counting() as counts:
        result = yield
    (count,) = counts
    if count > budget:
        lines = "\n".join(count.lines())
        pytest.fail(f"{count!r}, and the budget is {budget}:\n{lines}", pytrace=False)
    return result


def _budget(marker: pytest.Mark) -> int:
    values = [*marker.args, *marker.kwargs.values()]
    named = set(marker.kwargs) <= {"n"}
    if len(values) == 1 and named and type(values[0]) is int and values[0] >= 0:
        return values[0]
    pytest.fail(
        f"@pytest.mark.{_MARKER} takes one whole number, as in launch_budget(120)", pytrace=False
    )


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """A comparison with a count shows what was counted."""
    for side in (left, right):
        if isinstance(side, LaunchCount):
            return [f"{left!r} {op} {right!r}", *side.lines()]
    return None
