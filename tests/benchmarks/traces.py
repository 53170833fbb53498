"""Reading traces: speed and memory, beside a bare json.loads and Holistic Trace Analysis.

    python -m tests.benchmarks.traces --hta-python /path/to/python

Each measurement is a process of its own, and the readers take turns. launchscope reads the
file and makes the Profile with its verdict; json.loads only loads (garbage collection on, as
people call it); HTA loads the trace and computes its launch statistics. Times begin after the
imports. `--hta-python` is an interpreter with HolisticTraceAnalysis; without it HTA is left out.
Ranks are whole commands: `launchscope report` on each of `RANKS` files, one after the other, and
on all of them together, which reads them in as many processes as there are cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.bench import Spread, child_environment, finish, parser, run, table
from tests.benchmarks.synthetic import LAUNCHES, Answers, write

GOAL = (
    "at least 10x faster than HTA and faster than json.loads at 200 MB; peak memory under half the "
    "file's size at 1 GB; time linear in the size"
)
SIZES_MB = (10, 50, 200, 1000, 2000)
# json.loads needs about five times the file's size in memory, HTA more.
JSON_UP_TO, HTA_UP_TO = 1000, 200
RANKS, RANK_MB = 4, 200

_MEASURED = """
import json, resource, sys, time
path = sys.argv[1]
{imports}
wall, cpu = time.perf_counter(), time.process_time()
{work}
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps(dict(wall_s=wall, cpu_s=cpu, peak_mib=peak, found=found)), file=sys.stderr)
"""
_READERS = {
    "launchscope": (
        "from launchscope.workflows.load_input import ReadOptions, profile_of\n"
        "from pathlib import Path\n"
        "import launchscope.analysis, launchscope.parser.sources as s, launchscope.rules\n"
        "s.sources()",
        "profile = profile_of(Path(path), ReadOptions(15.0, None))\n"
        "found = [profile.value('launches_per_step'), profile.value('gpu_busy_ms')]",
    ),
    "json.loads": (
        "",
        "document = json.loads(open(path).read())\nfound = len(document['traceEvents'])",
    ),
    "HTA": (
        "import os, tempfile\nfrom hta.trace_analysis import TraceAnalysis",
        "analysis = TraceAnalysis(trace_files={0: path}, trace_dir=os.path.dirname(path))\n"
        "statistics = analysis.get_cuda_kernel_launch_stats(visualize=False)\n"
        "found = len(statistics[0])",
    ),
}


def measured(reader: str, path: Path, python: str) -> dict[str, Any]:
    """One run in a fresh process."""
    imports, work = _READERS[reader]
    code = _MEASURED.format(imports=imports, work=work)
    result = subprocess.run(
        [python, "-c", code, str(path)], capture_output=True, text=True, env=child_environment(),
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if result.returncode != 0:
        sys.exit(f"{reader} on {path.name} ended with {result.returncode}:\n{result.stderr}")
    found: dict[str, Any] = json.loads(result.stderr.strip().splitlines()[-1])
    return found


def checked(found: list[float], answers: Answers) -> None:
    """A fast reader that finds something else has not read the trace."""
    wanted = [LAUNCHES, answers.step_busy_ns / 1e6]
    if found != wanted:
        sys.exit(f"launchscope found {found} in a trace of {wanted}")


def rows_of(size_mb: int, path: Path, answers: Answers, runs: int, hta: str | None) -> list[Any]:
    megabytes = path.stat().st_size / 1e6
    readers = {"launchscope": sys.executable}
    if size_mb <= JSON_UP_TO and path.suffix == ".json":
        readers["json.loads"] = sys.executable
    if hta is not None and size_mb <= HTA_UP_TO:
        readers["HTA"] = hta
    taken: dict[str, list[dict[str, Any]]] = {reader: [] for reader in readers}
    for _ in range(runs):
        for reader, python in readers.items():
            taken[reader].append(measured(reader, path, python))
    for each in taken["launchscope"]:
        checked(each["found"], answers)
    return [
        {
            "file_mb": round(megabytes, 1),
            "json_mb": size_mb,
            "packed": path.suffix == ".gz",
            "reader": reader,
            "wall_s": Spread.of([each["wall_s"] for each in made]),
            "cpu_s": Spread.of([each["cpu_s"] for each in made]),
            "peak_mib": Spread.of([each["peak_mib"] for each in made]),
        }
        for reader, made in taken.items()
    ]


def rank_rows(folder: Path, runs: int) -> list[dict[str, Any]]:
    """Wall time of whole commands over several ranks, by themselves and together."""
    paths = [folder / f"rank{rank}.json" for rank in range(RANKS)]
    for path in paths:
        write(path, RANK_MB)
    ways = {"ranks, one by one": [[path] for path in paths], "ranks, together": [paths]}
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(runs):
        for way, commands in ways.items():
            begun = time.perf_counter()
            for files in commands:
                run(["-m", "launchscope", "report", "-q", *map(str, files)])
            taken[way].append(time.perf_counter() - begun)
    return [
        {
            "json_mb": RANK_MB * RANKS,
            "files": RANKS,
            "reader": way,
            "cores": os.cpu_count(),
            "wall_s": Spread.of(seconds),
        }
        for way, seconds in taken.items()
    ]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--hta-python", help="an interpreter that has HolisticTraceAnalysis")
    options.add_argument("--sizes", type=int, nargs="*", default=SIZES_MB, help="in MB")
    options.add_argument("--runs", type=int, default=3)
    given = options.parse_args()
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for size in given.sizes:
            names = [f"{size}.json", f"{size}.json.gz"] if size == 200 else [f"{size}.json"]
            for name in names:
                path = Path(folder) / name
                answers = write(path, size)
                results += rows_of(size, path, answers, given.runs, given.hta_python)
                path.unlink()
                print(f"{name}: done", file=sys.stderr)
        results += rank_rows(Path(folder), given.runs)
    table(
        ["trace", "reader", "wall s", "CPU s", "peak MiB"],
        [
            [
                f"{row['json_mb']} MB{' (gzip)' if row.get('packed') else ''}",
                row["reader"],
                row["wall_s"].text(2),
                row["cpu_s"].text(2) if "cpu_s" in row else "",
                row["peak_mib"].text(0) if "peak_mib" in row else "",
            ]
            for row in results
        ],
    )
    finish("traces", GOAL, results, given.output)


if __name__ == "__main__":
    main()
