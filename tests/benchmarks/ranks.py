"""`launchscope report FOLDER` on the summaries of 8 to 1,024 ranks, of which one is late.

    python -m tests.benchmarks.ranks [--steps N] [--output FILE.json]

A summary holds the 8 ranks of a machine. The ranks are generated: clocks of their own, recordings
that begin at different collectives. Times are those of whole commands.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from launchscope.analysis.comparison.ranks import ranks_of, summary
from launchscope.model.ranks import RankRow
from launchscope.report import render
from tests.builders import many_ranks

SIZES = (8, 32, 128, 512, 1024)
PER_MACHINE = 8
REPEATS = 3


def write(folder: Path, ranks: int, steps: int) -> tuple[int, int]:
    """Summaries, the bytes that they take together, and the late rank."""
    collectives, late = many_ranks(ranks, steps)
    size = 0
    for first in range(0, ranks, PER_MACHINE):
        mine = range(first, min(first + PER_MACHINE, ranks))
        rows = [
            RankRow(f"rank{rank}.json", rank, 7.0, 6.5, 2.0 - (rank == late), 2.0 - (rank == late),
                    5.0 + (rank == late), world_size=ranks)
            for rank in mine
        ]  # fmt: skip
        own = {f"rank{rank}.json": collectives[rank] for rank in mine}
        content = render(summary(ranks_of(rows, is_one_run=True), own), "json")
        assert isinstance(content, bytes)
        (folder / f"machine{first // PER_MACHINE}.json").write_bytes(content)
        size += len(content)
    return size, late


def merged(folder: Path, late: int) -> dict[str, float]:
    start = time.perf_counter()
    command = [sys.executable, "-m", "launchscope", "report", str(folder), "--format", "json"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    seconds = time.perf_counter() - start
    # The late rank's recording may lack the first ones.
    wrong = [a for a in found["arrivals"][3:] if a["last"] != f"rank{late}.json"]
    if wrong or found["slowest"] != f"rank{late}.json":
        sys.exit(f"{len(wrong)} of {len(found['arrivals'])} collectives have another last rank")
    return {"seconds": seconds, "collectives": len(found["arrivals"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000, help="collectives of a rank")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    rows = []
    for ranks in SIZES:
        with tempfile.TemporaryDirectory() as name:
            size, late = write(Path(name), ranks, arguments.steps)
            runs = sorted(merged(Path(name), late)["seconds"] for _ in range(REPEATS))
        rows.append({"ranks": ranks, "bytes": size, "seconds": runs})
        spread = f"{runs[0]:.2f} to {runs[2]:.2f}"
        print(f"{ranks:5} ranks, {size / 2**20:6.1f} MiB: {runs[1]:.2f} s ({spread})")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"at most {peak:.0f} MiB of memory, {os.cpu_count()} cores")
    if arguments.output:
        result = {
            "collectives": arguments.steps,
            "peak_mib": peak,
            "cores": os.cpu_count(),
            "rows": rows,
        }
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
