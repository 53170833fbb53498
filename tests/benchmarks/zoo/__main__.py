"""The zoo: verdicts against the truth on seventy steps. Needs a CUDA device; without one
only the structure of each step is looked at, at `--batch 2` or so.

Goals: measured verdict right on all steps, predicted one on at least 95 %; prediction error on
steps whose replay runs the same work 3 % in the median and 8 % at the 90th percentile.

Run from the top of the checkout: python -m tests.benchmarks.zoo [--results DIR] [--budget S]

The steps of a library share a process, until one fails: after a failed capture no CUDA call is
safe. Each step is a file, DIR/NAME.json. A step that has a result is not measured again unless it
failed, so the same command goes on where the budget of the last one ended. The table holds the
steps that have a result.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from tests.benchmarks import bench
from tests.benchmarks.zoo import table
from tests.benchmarks.zoo.catalog import FAMILIES, chosen, find

GOAL = "measured right on all, predicted on 95 %, prediction error 3 % median and 8 % at p90"


def measured(names: list[str], given: argparse.Namespace) -> None:
    """The steps one after the other in this process, which ends at the first that fails."""
    import torch

    from launchscope.model import Schedule
    from tests.benchmarks.zoo.measure import row_of

    warnings.simplefilter("ignore")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        torch.set_num_threads(2)
    end_at = time.monotonic() + given.budget
    for name in names:
        if time.monotonic() > end_at:
            return
        workload, keep = find(name), given.keep and given.keep / name
        row: dict[str, Any] = {"name": name, "kind": workload.kind, "batch": workload.batch}
        try:
            batch = given.batch or workload.batch
            row |= row_of(workload, device, batch, Schedule(verify=given.verify), keep)
        except Exception as error:
            row["failed"] = f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}"
            row["traceback"] = traceback.format_exc()
        path_of(name, given.results).write_text(json.dumps(row, indent=1) + "\n")
        print(line(row), file=sys.stderr, flush=True)
        if "failed" in row or row["measured"]["replay_status"] == "failed":
            os._exit(3)  # destructors may abort now: what there is, is on disk
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()


def path_of(name: str, results: Path) -> Path:
    return results / f"{name}.json"


def line(row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"{row['name']}: {row['failed']}"
    removed = f"{row['truth']['removed_pct']:.0f} % removed, " if "truth" in row else ""
    verdicts = (f"{how} {row[how]['recommendation']}" for how in ("measured", "predicted"))
    return f"{row['name']}: {removed}{', '.join(verdicts)} ({row['seconds']:.1f} s)"


def run(names: list[str], given: argparse.Namespace, end_at: float) -> None:
    """Measure these steps in as many processes as it takes."""
    left = [name for name in names if not is_done(name, given.results)]
    for name in left:
        path_of(name, given.results).unlink(missing_ok=True)
    while left and time.monotonic() < end_at:
        reason = process(left, given, end_at)
        left = [name for name in left if not path_of(name, given.results).exists()]
        if left and reason is not None:
            row = {"name": left[0], "failed": reason}
            path_of(left.pop(0), given.results).write_text(json.dumps(row))
            print(line(row), file=sys.stderr, flush=True)


def is_done(name: str, results: Path) -> bool:
    path = path_of(name, results)
    return path.exists() and "failed" not in json.loads(path.read_text())


def process(names: list[str], given: argparse.Namespace, end_at: float) -> str | None:
    """One process for these; why it gave no result for the first that lacks one, if it has failed
    there. The limit is for one step; the first of a process also imports the library in it."""
    command = [sys.executable, "-m", "tests.benchmarks.zoo", "--results", str(given.results)]
    command += ["--verify", str(given.verify), "--here", *names]
    if math.isfinite(end_at):
        command += ["--budget", str(end_at - time.monotonic())]
    command += ["--batch", str(given.batch)] if given.batch else []
    command += ["--keep", str(given.keep)] if given.keep else []
    environment = bench.child_environment()
    child = subprocess.Popen(command, env=environment, cwd=bench.ROOT, stdin=subprocess.DEVNULL)
    done, deadline = 0, time.monotonic() + given.limit
    try:
        while child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
            found = sum(path_of(name, given.results).exists() for name in names)
            if found > done:
                done, deadline = found, time.monotonic() + given.limit
    finally:
        child.kill()
        code = child.wait()
    if code == 0 or done:
        return None
    timed_out = time.monotonic() >= deadline
    return (
        f"no result within {given.limit:.0f} s" if timed_out else f"its process ended with {code}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="FAMILY|NAME")
    parser.add_argument("--list", action="store_true", help="the families and their steps")
    parser.add_argument("--results", type=Path, default=Path("zoo-results"), metavar="DIR")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one step")
    parser.add_argument(
        "--budget", type=float, default=math.inf, metavar="S", help="begin no step after that"
    )
    parser.add_argument("--verify", type=int, default=0, help="batches of the correctness check")
    parser.add_argument("--batch", type=int, help="this batch size for every step")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="the recording of each step")
    parser.add_argument("--here", nargs="+", help="steps to measure in this process")
    given = parser.parse_args()
    if given.here:
        measured(given.here, given)
        return
    if given.list:
        for family in FAMILIES:
            print(f"{family.name} ({family.package or 'torch alone'})")
            print("\n".join(f"  {workload.name}" for workload in family.workloads))
        return
    try:
        groups = chosen(given.only)
    except ValueError as error:
        parser.error(str(error))
    given.results = given.results.resolve()
    given.results.mkdir(parents=True, exist_ok=True)
    given.keep = given.keep and given.keep.resolve()
    end_at = time.monotonic() + given.budget
    names = [[workload.name for workload in workloads] for _, workloads in groups]
    for group in names:
        run(group, given, end_at)
    paths = [path_of(name, given.results) for group in names for name in group]
    rows = [json.loads(path.read_text()) for path in paths if path.exists()]
    page = table.markdown(rows)
    print(page)
    (given.results / "zoo.md").write_text(page)
    bench.finish("zoo", GOAL, rows, given.results / "zoo.json")


if __name__ == "__main__":
    main()
