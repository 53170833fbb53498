"""The zoo: verdicts against the truth on seventy steps. Needs a CUDA device; without one
only the structure of each step is looked at, at `--batch 2` or so.

Goals: measured verdict right on all steps, predicted one on at least 95 %; prediction error on
steps whose replay runs the same work 3 % in the median and 8 % at the 90th percentile.

Run from the top of the checkout: python -m tests.benchmarks.zoo [--results DIR] [--budget S]

A step that has a result in DIR is not measured again unless it failed, so the same command goes on
where the budget of the last one ended. The table holds the steps that have a result.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.benchmarks import bench
from tests.benchmarks.zoo import table
from tests.benchmarks.zoo.catalog import FAMILIES, chosen
from tests.benchmarks.zoo.runner import Options, run
from tests.benchmarks.zoo.score import score

GOAL = "measured right on all, predicted on 95 %, prediction error 3 % median and 8 % at p90"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="FAMILY|NAME")
    parser.add_argument("--list", action="store_true", help="the families and their steps")
    parser.add_argument("--results", type=Path, default=Path("zoo-results"), metavar="DIR")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one step")
    parser.add_argument(
        "--budget", type=float, default=float("inf"), metavar="S", help="begin no step after that"
    )
    parser.add_argument("--verify", type=int, default=0, help="batches of the correctness check")
    parser.add_argument("--batch", type=int, help="this batch size for every step")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="the recording of each step")
    args = parser.parse_args()
    if args.list:
        for family in FAMILIES:
            print(f"{family.name} ({family.package or 'torch alone'})")
            print("\n".join(f"  {workload.name}" for workload in family.workloads))
        return
    try:
        groups = chosen(args.only)
    except ValueError as error:
        parser.error(str(error))
    args.results.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    keep = args.keep and args.keep.resolve()
    end_at = begun + args.budget
    options = Options(args.results.resolve(), args.limit, args.verify, args.batch, keep, end_at)
    rows = run(groups, options, lambda line: print(line, file=sys.stderr, flush=True))
    found = score(rows)
    bench.table(table.HEADER, [table.cells(row, found) for row in rows])
    print("\n".join(["", *table.summary(found)]))
    print(f"{len(rows)} steps in {time.monotonic() - begun:.0f} s")
    (args.results / "zoo.md").write_text(table.markdown(rows, found))
    bench.finish("zoo", GOAL, rows, args.results / "zoo.json")


if __name__ == "__main__":
    main()
