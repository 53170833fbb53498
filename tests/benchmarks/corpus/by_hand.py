"""The truth of a script: its loop as it is, and with its step captured by hand, timed in turns.

Both run at the same time, from the same seed, each in a process of its own (`edits.py`). First each
keeps the losses of some iterations, and so do a second eager run and the edited script with its
step left eager. Then one waits while the other runs a window, in alternation. A window's time per
iteration is a sample; the share removed is that of the medians, with the interval of the median
over the pairs of windows.

The losses agree if those of the graph are no further from those of the same step run eagerly than
ten times the distance of two eager runs, or than 0.1 % of a typical loss; and if those of that step
are as near to the script's own, or within 10 %: capturable optimizers round differently.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.benchmarks import bench
from tests.benchmarks.corpus.edits import ByHand, Edit, apply
from tests.benchmarks.corpus.scripts import Script, environment, prepare

DONE, GO, END = (
    b"d",
    b"g",
    b"e",
)  # as in stopwatch.py, which a process without a script can't import
STOPWATCH = "LAUNCHSCOPE_STOPWATCH"
TIMES_APART, APART, EDIT_APART = 10, 1e-3, 0.1
LAST_LINES = 12


class Plan(NamedTuple):
    """`windows` of each loop are timed: the most, and the fewest if `timed_s` seconds are over."""

    compared: int = 40
    windows: tuple[int, int] = (6, 16)
    timed_s: float = 4.0
    limit_s: float = 90.0


class Loop:
    """One edited script in a process of its own."""

    def __init__(
        self, name: str, script: Script, prepared: Path, edits: Sequence[Edit], folder: Path
    ) -> None:
        self.name, self.script, self.edits = name, script, edits
        self.output, self.log = folder / f"{name}.json", folder / f"{name}.log"
        shutil.copytree(prepared, folder / name)
        self.inside = folder / name / script.folder
        apply(edits, self.inside)
        self.turn = self.done = -1
        self.child: subprocess.Popen[bytes] | None = None

    def start(self, by_hand: ByHand, plan: Plan, place: Mapping[str, str], *, timed: bool) -> None:
        theirs: list[int] = []
        if timed:
            turn, self.turn = os.pipe()
            self.done, done = os.pipe()
            theirs = [turn, done]
        turns: Sequence[int | None] = theirs or [None, None]
        settings = [str(self.output), plan.compared, by_hand.block, by_hand.lead, *turns]
        variables = environment(self.inside, self.script) | dict(place)
        variables |= {STOPWATCH: json.dumps(settings), "PYTHONUNBUFFERED": "1"}
        with self.log.open("wb") as log:
            self.child = subprocess.Popen(
                [sys.executable, *self.script.arguments(gpu=True)],
                cwd=self.inside, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, pass_fds=theirs,
            )  # fmt: skip
        for each in theirs:
            os.close(each)

    def wait_done(self, deadline: float) -> None:
        """Until it is ready for a window. Raises RuntimeError if it ended or the time is over."""
        assert self.child is not None
        while not select.select([self.done], [], [], 0.2)[0]:
            if self.child.poll() is not None or time.monotonic() > deadline:
                raise self.failure()
        if os.read(self.done, 1) != DONE:
            raise self.failure()

    def window(self, deadline: float) -> None:
        os.write(self.turn, GO)
        self.wait_done(deadline)

    def result(self, deadline: float) -> dict[str, Any]:
        """Let it end, and return what the stopwatch wrote."""
        assert self.child is not None
        if self.turn >= 0:
            with contextlib.suppress(BrokenPipeError):
                os.write(self.turn, END)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(max(0.0, deadline - time.monotonic()))
        if not self.output.exists():
            raise self.failure()
        found: dict[str, Any] = json.loads(self.output.read_text())
        return found

    def failure(self) -> RuntimeError:
        assert self.child is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(2)  # its pipe closes before it has ended
        ended = self.child.returncode
        how = "was too slow" if ended is None else f"ended with status {ended}"
        lines = self.log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        return RuntimeError("\n".join([f"the {self.name} script {how}:", *lines]))

    def close(self) -> None:
        if self.child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()
        for each in (self.turn, self.done):
            if each >= 0:
                os.close(each)


@contextlib.contextmanager
def loops(script: Script, by_hand: ByHand, folder: Path) -> Iterator[dict[str, Loop]]:
    """The loops of a script in fresh copies; their processes end with the block."""
    changed = [*by_hand.both, *by_hand.captured]
    edits = {"eager": by_hand.both, "captured": changed}
    edits |= {"again": by_hand.both, "uncaptured": changed}
    with tempfile.TemporaryDirectory() as name:
        prepare(script, folder, Path(name, "source"))
        prepared = Path(name, "source", "repository")
        found = {how: Loop(how, script, prepared, each, Path(name)) for how, each in edits.items()}
        try:
            yield found
        finally:
            for loop in found.values():
                loop.close()


def truth(
    script: Script,
    by_hand: ByHand,
    folder: Path,
    plan: Plan,
    place: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Times both loops in turns. Raises EditError or RuntimeError if that is not possible."""
    began = time.monotonic()
    deadline = began + plan.limit_s
    with loops(script, by_hand, folder) as found:
        for how, loop in found.items():
            loop.start(by_hand, plan, place, timed=how in ("eager", "captured"))
        again, uncaptured = (found[how].result(deadline) for how in ("again", "uncaptured"))
        pair = [found["eager"], found["captured"]]
        for loop in pair:
            loop.wait_done(deadline)
        timed = time.monotonic()
        fewest, most = plan.windows
        for number in range(most):
            if number >= fewest and time.monotonic() - timed > plan.timed_s:
                break
            for loop in pair if number % 2 else reversed(pair):
                loop.window(deadline)
        eager, captured = (loop.result(deadline) for loop in pair)
    return compared(eager, captured, again, uncaptured) | {
        "kind": by_hand.kind,
        "note": by_hand.note,
        "seconds": round(time.monotonic() - began, 1),
    }


def apart(one: Sequence[float], other: Sequence[float]) -> float:
    """The largest distance of two sequences of losses, as a share of a typical one. Raises
    RuntimeError if a loss is infinite or not a number."""
    if not all(map(math.isfinite, (*one, *other))):
        raise RuntimeError("a loss is infinite or not a number, so the losses cannot be compared")
    typical = median(abs(loss) for loss in other)
    return max(abs(a - b) for a, b in zip(one, other)) / max(typical, 1e-12)


def compared(
    eager: dict[str, Any],
    captured: dict[str, Any],
    again: dict[str, Any],
    uncaptured: dict[str, Any],
) -> dict[str, Any]:
    """The result of a script from its runs. Raises RuntimeError if the graph took no part in the
    timed iterations."""
    # A step that alternates with another one is replayed in some of the iterations only.
    replays = sum(captured["replays"])
    if captured["replay_ms"] is None or replays < 0.9 * captured["iterations"]:
        raise RuntimeError(
            f"{replays} replays in {captured['iterations']} iterations of the edited script, "
            f"and {sum(captured['aside'])} steps beside the graph"
        )
    if eager["replays"]:
        raise RuntimeError("the script that should run eagerly has a captured step")
    before, after = median(eager["blocks_ms"]), median(captured["blocks_ms"])
    pairs = zip(eager["blocks_ms"], captured["blocks_ms"], strict=True)
    removed = bench.interval([100 * (1 - b / a) for a, b in pairs])
    noise, edit = (apart(run["losses"], eager["losses"]) for run in (again, uncaptured))
    graph = apart(captured["losses"], uncaptured["losses"])
    near = max(TIMES_APART * noise, APART)
    return {
        "device": captured["device"],
        "torch": captured["torch"],
        "eager_ms": before,
        "captured_ms": after,
        "removed_pct": 100 * (1 - after / before),
        "removed_between_pct": [removed.low, removed.high],
        "windows": len(eager["blocks_ms"]),
        "replay_ms": captured["replay_ms"],
        "losses": {
            "iterations": len(eager["losses"]),
            "graph": graph,
            "edit": edit,
            "eager_again": noise,
            "agree": graph <= near and edit <= max(near, EDIT_APART),
        },
        "blocks_ms": {"eager": eager["blocks_ms"], "captured": captured["blocks_ms"]},
    }
