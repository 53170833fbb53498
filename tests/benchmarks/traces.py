"""Reading traces: speed and memory, beside a bare json.loads and Holistic Trace Analysis.

    python -m tests.benchmarks.traces --hta-python /path/to/python --files TRACE...

Each measurement is a process of its own, and the readers take turns. launchscope reads the
file and makes the Profile with its verdict; json.loads only loads (garbage collection on, as
people call it); HTA loads the trace and computes its launch statistics. Times begin after the
imports, except of whole commands (`launchscope report`). `--hta-python` is an interpreter with
HolisticTraceAnalysis; without it HTA is left out. `--files` are real traces; gzipped ones are
decompressed before they are measured. A synthetic trace is measured in every layout of
`synthetic.LAYOUTS`, at `LAYOUT_MB`, and its memory at `LARGE_MB`; and as many launches as
`THREAD_LAUNCHES` on few and on many threads.
Ranks are whole commands: `launchscope report` on each of `RANKS` files, one after the other, and
on all of them together, which reads them in as many processes as there are cores.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.bench import Spread, child_environment, finish, parser, run, table
from tests.benchmarks.synthetic import LAUNCHES, LAYOUTS, Answers, us, write

GOAL = (
    "for each file: at least 10x faster than HTA, and faster than json.loads from 20 MB on; at 54 "
    "MB at most 0.3 s of work, and 0.5 s for the whole command; peak memory under half the file's "
    "size at 1 GB in every layout; time linear in the size and in the number of threads"
)
SIZES_MB = (10, 50, 200, 1000, 2000)
LAYOUT_MB, LARGE_MB = 54, 1000
THREAD_LAUNCHES, THREADS = 20_000, (1, 2_000, 20_000)
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
_FIGURES = ("wall_s", "cpu_s", "peak_mib")
_READERS = {
    "launchscope": (
        "from launchscope.workflows.load_input import ReadOptions, profile_of\n"
        "from pathlib import Path\n"
        "import launchscope.analysis, launchscope.parser.sources as s, launchscope.rules\n"
        "import numpy.ma\n"  # which NumPy loads on its first `unique`, pandas always
        "s.sources(), launchscope.rules.all_rules()",
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


def measured(reader: str, path: Path, python: str) -> dict[str, Any] | None:
    """One run in a fresh process; None where HTA cannot read the file."""
    imports, work = _READERS[reader]
    code = _MEASURED.format(imports=imports, work=work)
    result = subprocess.run(
        [python, "-c", code, str(path)], capture_output=True, text=True, env=child_environment(),
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if result.returncode != 0 and reader == "HTA":
        print(f"HTA cannot read {path.name}: {result.stderr[-300:]}", file=sys.stderr)
        return None
    if result.returncode != 0:
        sys.exit(f"{reader} on {path.name} ended with {result.returncode}:\n{result.stderr}")
    found: dict[str, Any] = json.loads(result.stderr.strip().splitlines()[-1])
    return found


def checked(found: list[float], answers: Answers) -> None:
    """A fast reader that finds something else has not read the trace."""
    wanted = [LAUNCHES, answers.step_busy_ns / 1e6]
    if found != wanted:
        sys.exit(f"launchscope found {found} in a trace of {wanted}")


def rows_of(
    name: str, path: Path, answers: Answers | None, runs: int, hta: str | None
) -> list[dict[str, Any]]:
    """A row for each reader; the readers take turns."""
    megabytes = path.stat().st_size / 1e6
    readers = {"launchscope": sys.executable}
    if megabytes <= 1.1 * JSON_UP_TO and path.suffix == ".json":
        readers["json.loads"] = sys.executable
    if hta is not None and megabytes <= 1.1 * HTA_UP_TO:
        readers["HTA"] = hta
    taken: dict[str, list[dict[str, Any]]] = {reader: [] for reader in readers}
    commands = []
    for _ in range(runs):
        for reader, python in readers.items():
            if (found := measured(reader, path, python)) is not None:
                taken[reader].append(found)
        begun = time.perf_counter()
        run(["-m", "launchscope", "report", "-q", str(path)])
        commands.append(time.perf_counter() - begun)
    for each in taken["launchscope"]:
        if answers is not None:
            checked(each["found"], answers)
    rows: list[dict[str, Any]] = [
        {"reader": reader}
        | {figure: Spread.of([each[figure] for each in made]) for figure in _FIGURES}
        for reader, made in taken.items()
        if made
    ]
    rows.append({"reader": "launchscope report", "wall_s": Spread.of(commands)})
    own = rows[0]["wall_s"].median
    for row in rows:
        row |= {"trace": name, "file_mb": round(megabytes, 1)}
        row["times_launchscope"] = round(row["wall_s"].median / own, 2)
    print(f"{name}: done", file=sys.stderr)
    return rows


def write_threads(path: Path, threads: int) -> None:
    """A trace of `THREAD_LAUNCHES` launches that these threads make in turn."""
    events: list[dict[str, Any]] = []
    for number in range(1, THREAD_LAUNCHES + 1):
        own = {"ph": "X", "pid": 1, "tid": 1 + number % threads}
        at = number * 10_000
        call = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 3}
        events.append({**own, **call, "ts": float(us(at)), "args": {"correlation": number}})
        kernel = {"ph": "X", "cat": "kernel", "name": f"kernel{number % 20}", "pid": 0, "tid": 7}
        arguments = {"correlation": number, "device": 0, "stream": 7}
        events.append({**kernel, "ts": float(us(at + 4_000)), "dur": 5, "args": arguments})
    path.write_text(json.dumps({"traceEvents": events}))


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
            "trace": f"{RANKS} ranks",
            "file_mb": RANK_MB * RANKS,
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
    options.add_argument("--layouts", nargs="*", choices=LAYOUTS, default=list(LAYOUTS))
    options.add_argument("--files", type=Path, nargs="*", default=[], help="real traces")
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--no-ranks", action="store_true")
    given = options.parse_args()
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)

        def add(name: str, path: Path, answers: Answers | None, hta: str | None) -> None:
            results.extend(rows_of(name, path, answers, given.runs, hta))
            path.unlink()

        for file in given.files:
            plain = place / f"{file.name.removesuffix('.gz').removesuffix('.json')}.json"
            opened = gzip.open if file.suffix == ".gz" else open
            with opened(file, "rb") as source, plain.open("wb") as target:
                shutil.copyfileobj(source, target)
            add(file.name, plain, None, given.hta_python)
        for layout in given.layouts:
            for size in (LAYOUT_MB, LARGE_MB):
                path = place / f"{size}.json"
                answers = write(path, size, layout=layout)
                add(f"synthetic, {layout}", path, answers, given.hta_python)
        for threads in THREADS:
            path = place / f"{threads}.json"
            write_threads(path, threads)
            add(f"{THREAD_LAUNCHES:,} launches, {threads:,} threads", path, None, None)
        for size in given.sizes:
            for suffix in (".json", ".json.gz") if size == 200 else (".json",):
                path = place / f"{size}{suffix}"
                add(f"synthetic, {size} MB{suffix}", path, write(path, size), given.hta_python)
        if not given.no_ranks:
            results += rank_rows(place, given.runs)
    table(
        ["trace", "MB", "reader", "wall s", "x launchscope", "CPU s", "peak MiB"],
        [
            [
                row["trace"],
                f"{row['file_mb']:.0f}",
                row["reader"],
                row["wall_s"].text(2),
                str(row.get("times_launchscope", "")),
                row["cpu_s"].text(2) if "cpu_s" in row else "",
                row["peak_mib"].text(0) if "peak_mib" in row else "",
            ]
            for row in results
        ],
    )
    finish("traces", GOAL, results, given.output)


if __name__ == "__main__":
    main()
