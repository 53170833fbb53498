"""Runs small scripts under the runner, in real child processes that see no GPU."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launchscope.model import Recording, Schedule, SourceLine, Target
from launchscope.parser import read_recording
from launchscope.runner.parent.child_watch import ProgressEvent
from launchscope.runner.parent.session import Outcome, RunOptions, record
from tests import processes

ENVIRONMENT = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONUNBUFFERED": "1"}
# The head of a script that trains: a step is `step()`.
SMALL_STEP = """
import os, sys, time, torch
net = torch.nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    opt.zero_grad()
    net(torch.randn(8, 4)).sum().backward()
    opt.step()
"""


@dataclass(frozen=True)
class PointResult:
    """What `record` made of a script."""

    outcome: Outcome
    recording: Recording
    events: tuple[ProgressEvent, ...]
    source: str

    def line(self, where: SourceLine | None) -> str:
        """The source text of the line."""
        assert where is not None
        return self.source.splitlines()[where.line - 1].strip()


def recorded(
    folder: Path,
    source: str,
    *args: str,
    schedule: Schedule | None = None,
    options: RunOptions | None = None,
) -> PointResult:
    """Record `source` as the script of a person, whose file lies in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    source = textwrap.dedent(source)
    script = folder / "script.py"
    script.write_text(source)
    events: list[ProgressEvent] = []
    outcome = record(
        Target("script", str(script), args),
        schedule or Schedule(),
        options or RunOptions(),
        folder / "results",
        events.append,
    )
    return PointResult(outcome, read_recording(outcome.directory), tuple(events), source)


@dataclass(frozen=True)
class Said:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str


def python(folder: Path, *arguments: str, code: int | None = None) -> Said:
    """Run the interpreter in `folder`."""
    done = processes.python(folder, *arguments, environ=ENVIRONMENT, timeout=120)
    if code is not None:
        assert done.returncode == code, done.stderr
    return Said(done.returncode, done.stdout, done.stderr)


def launchscope(folder: Path, source: str, *options: str) -> Said:
    """`launchscope profile OPTIONS script.py` in `folder`, as a person types it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "script.py").write_text(textwrap.dedent(source))
    return python(folder, "-m", "launchscope", "profile", *options, "script.py")


class Batch(dict[str, Any]):
    """Runs what it is given; `[name]` runs that one when it is first asked for."""

    def __init__(self, work: Mapping[str, Callable[[], Any]]):
        super().__init__()
        self._work = work

    def __missing__(self, name: str) -> Any:
        self[name] = result = self._work[name]()
        return result
