"""Runs the children: one process per library, a new one after a failure or a time-out."""

from __future__ import annotations

import json
import math
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.benchmarks import bench
from tests.benchmarks.zoo.workload import Workload

__all__ = ["Options", "run"]


@dataclass(frozen=True)
class Options:
    """`limit_s` is for one workload; the first of a process also imports the library in it."""

    results: Path
    limit_s: float = 120.0
    verify: int = 0
    batch: int | None = None
    keep: Path | None = None  # where the recordings go
    end_at: float = math.inf  # on the monotonic clock: no step begins later

    def left_s(self) -> float:
        return self.end_at - time.monotonic()


def run(
    groups: Sequence[tuple[str | None, list[Workload]]],
    options: Options,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Measures what has no result; one row per workload that has one then, in order."""
    for _, workloads in groups:
        left = [workload.name for workload in workloads if not _is_done(workload.name, options)]
        while left and options.left_s() > 0:
            left = left[len(_process(left, options, say)) :]
    return [
        _row(workload, options)
        for _, workloads in groups
        for workload in workloads
        if (options.results / f"{workload.name}.json").exists()
    ]


def _is_done(name: str, options: Options) -> bool:
    path = options.results / f"{name}.json"
    return path.exists() and "failed" not in json.loads(path.read_text())


def _process(names: list[str], options: Options, say: Callable[[str], None]) -> list[str]:
    """Runs one child over these; which of them are settled, at least the first unless the time
    was over."""
    command = [sys.executable, "-m", "tests.benchmarks.zoo.child", *names]
    command += ["--results", str(options.results), "--verify", str(options.verify)]
    if math.isfinite(options.end_at):
        command += ["--budget", str(options.left_s())]
    if options.batch is not None:
        command += ["--batch", str(options.batch)]
    if options.keep is not None:
        command += ["--keep", str(options.keep)]
    log = (options.results / "children.log").open("a")
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env=bench.child_environment(),
        cwd=bench.ROOT,
    )
    assert child.stdout is not None
    lines: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_read, args=(child.stdout, lines), daemon=True).start()
    settled = 0
    deadline = time.monotonic() + options.limit_s
    try:
        while settled < len(names):
            try:
                line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                _fail(options, names[settled], f"no result within {options.limit_s:.0f} s")
                say(f"{names[settled]}: timed out")
                settled += 1
                break
            if line is None:
                if options.left_s() <= 0:
                    return names  # those that it did not begin are left for the next run
                if not (options.results / f"{names[settled]}.json").exists():
                    _fail(options, names[settled], f"the process ended with {child.wait()}")
                    say(f"{names[settled]}: the process died")
                    settled += 1
                break
            if line.startswith("end "):
                say(_told(options, names[settled]))
                settled += 1
                deadline = time.monotonic() + options.limit_s
    finally:
        child.kill()
        child.wait()
        log.close()
    return names[: max(settled, 1)]


def _read(stream: IO[str], lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line.strip())
    lines.put(None)


def _fail(options: Options, name: str, reason: str) -> None:
    (options.results / f"{name}.json").write_text(json.dumps({"name": name, "failed": reason}))


def _row(workload: Workload, options: Options) -> dict[str, Any]:
    found = json.loads((options.results / f"{workload.name}.json").read_text())
    return {"name": workload.name, "kind": workload.kind, "batch": workload.batch, **found}


def _told(options: Options, name: str) -> str:
    row = json.loads((options.results / f"{name}.json").read_text())
    if "failed" in row:
        return f"{name}: {row['failed']}"
    removed = f"{row['truth']['removed_pct']:.0f} % removed, " if "truth" in row else ""
    measured, predicted = row["measured"], row["predicted"]
    return (
        f"{name}: {removed}measured {measured['recommendation']}, "
        f"predicted {predicted['recommendation']} ({row['seconds']:.1f} s)"
    )
