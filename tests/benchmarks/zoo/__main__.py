"""The zoo: verdicts against the truth on seventy steps. Needs a CUDA device; without one
only the structure of each step is looked at, at `--batch 2` or so.

Goals: measured verdict right on all steps, predicted one on at least 95 %; prediction error on
steps whose replay runs the same work 3 % in the median and 8 % at the 90th percentile.

Run from the top of the checkout: python -m tests.benchmarks.zoo [--results DIR] [--budget S]

Each step has a process of its own, as no CUDA call is safe after a failed capture, and a file,
DIR/NAME.json. A step that has a result is not measured again unless it failed, so the same command
goes on where the budget of the last one ended. The table holds the steps that have a result.
"""

from __future__ import annotations

import argparse
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


def measured(given: argparse.Namespace) -> None:
    """The step of `--here`, in this process."""
    import torch

    from launchscope.model import Schedule
    from tests.benchmarks.zoo.measure import row_of

    warnings.simplefilter("ignore")
    workload = find(given.here)
    keep = given.keep and given.keep / workload.name
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    row: dict[str, Any] = {"name": workload.name, "kind": workload.kind, "batch": workload.batch}
    try:
        batch = given.batch or workload.batch
        row |= row_of(workload, device, batch, Schedule(verify=given.verify), keep)
    except Exception as error:
        row["failed"] = f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}"
        row["traceback"] = traceback.format_exc()
    path_of(workload.name, given.results).write_text(json.dumps(row, indent=1) + "\n")
    os._exit(0)  # destructors may abort after a failed capture: what there is, is on disk


def path_of(name: str, results: Path) -> Path:
    return results / f"{name}.json"


def line(row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"{row['name']}: {row['failed']}"
    removed = f"{row['truth']['removed_pct']:.0f} % removed, " if "truth" in row else ""
    verdicts = (f"{how} {row[how]['recommendation']}" for how in ("measured", "predicted"))
    return f"{row['name']}: {removed}{', '.join(verdicts)} ({row['seconds']:.1f} s)"


def run(name: str, given: argparse.Namespace) -> None:
    """Measure this step in a process of its own."""
    path = path_of(name, given.results)
    path.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.benchmarks.zoo", "--results", str(given.results)]
    command += ["--verify", str(given.verify), "--here", name]
    command += ["--batch", str(given.batch)] if given.batch else []
    command += ["--keep", str(given.keep)] if given.keep else []
    ended = "no result"
    try:
        code = subprocess.run(
            command, env=bench.child_environment(), cwd=bench.ROOT, stdin=subprocess.DEVNULL,
            timeout=given.limit,
        ).returncode  # fmt: skip
        ended = f"its process ended with {code}"
    except subprocess.TimeoutExpired:
        ended = f"no result within {given.limit:.0f} s"
    if not path.exists():
        path.write_text(json.dumps({"name": name, "failed": ended}))
    print(line(json.loads(path.read_text())), file=sys.stderr, flush=True)


def is_done(name: str, results: Path) -> bool:
    path = path_of(name, results)
    return path.exists() and "failed" not in json.loads(path.read_text())


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
    parser.add_argument("--here", metavar="NAME", help="measure this step in this process")
    given = parser.parse_args()
    if given.here:
        measured(given)
        return
    if given.list:
        for family in FAMILIES:
            print(f"{family.name} ({family.package or 'torch alone'})")
            print("\n".join(f"  {workload.name}" for workload in family.workloads))
        return
    try:
        names = [workload.name for workload in chosen(given.only)]
    except ValueError as error:
        parser.error(str(error))
    given.results = given.results.resolve()
    given.results.mkdir(parents=True, exist_ok=True)
    given.keep = given.keep and given.keep.resolve()
    end_at = time.monotonic() + given.budget
    for name in names:
        if time.monotonic() > end_at:
            break
        if not is_done(name, given.results):
            run(name, given)
    paths = [path_of(name, given.results) for name in names]
    rows = [json.loads(path.read_text()) for path in paths if path.exists()]
    page = table.markdown(rows)
    print(page)
    (given.results / "zoo.md").write_text(page)
    bench.finish("zoo", GOAL, rows, given.results / "zoo.json")


if __name__ == "__main__":
    main()
