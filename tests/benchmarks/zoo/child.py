"""Measures workloads one after the other in one process; ends at the first that fails.

After a failed capture no CUDA call is safe, so the parent starts another process for the rest.
Says `begin NAME` and `end NAME` on stdout; the results are files, NAME.json.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import sys
import time
import traceback
import warnings
from pathlib import Path

import torch

from launchscope.model import Schedule
from tests.benchmarks.zoo.catalog import find
from tests.benchmarks.zoo.measure import row_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--verify", type=int, required=True)
    parser.add_argument("--batch", type=int, default=None)
    parser.add_argument("--keep", type=Path, default=None)
    parser.add_argument("--budget", type=float, default=math.inf)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        torch.set_num_threads(2)
    schedule = Schedule(verify=args.verify)
    end_at = time.monotonic() + args.budget
    for name in args.names:
        if time.monotonic() > end_at:
            break
        print(f"begin {name}", flush=True)
        workload = find(name)
        try:
            keep = args.keep and args.keep / name
            row = row_of(workload, device, args.batch or workload.batch, schedule, keep)
        except Exception as error:
            row = {
                "name": name,
                "kind": workload.kind,
                "batch": workload.batch,
                "failed": f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}",
                "traceback": traceback.format_exc(),
            }
        (args.results / f"{name}.json").write_text(json.dumps(row, indent=1) + "\n")
        print(f"end {name}", flush=True)
        if "failed" in row or row["measured"]["replay_status"] == "failed":
            # Destructors may abort after a failed capture: what there is, is on disk.
            sys.stdout.flush()
            os._exit(3)
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
