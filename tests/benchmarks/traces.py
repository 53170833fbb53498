"""Reading traces: speed and memory, beside a bare json.loads and Holistic Trace Analysis.

    python -m tests.benchmarks.traces --folder FOLDER --hta-python /path/to/python --output OUT.json

Each measurement is a process of its own, and the readers take turns, `--rounds` times. launchscope
reads the file and makes the Profile with its verdict; json.loads only loads (garbage collection on,
as people call it); HTA loads the trace and computes its launch statistics. Times begin after the
imports, except of whole commands (`launchscope report`). `--hta-python` is an interpreter with
HolisticTraceAnalysis; without it HTA is left out. FOLDER is where `tests.benchmarks.foreign.obtain`
put the real traces, of which those in `FILES` are decompressed and measured. A synthetic trace is
measured in every layout of `synthetic.LAYOUTS`, at `LAYOUT_MB`, and its memory at `LARGE_MB`, once;
and as many launches as `THREAD_LAUNCHES` on few and on many threads. On synthetic traces HTA runs
once.
Ranks are whole commands: `launchscope report` on each of `RANKS` files, one after the other, and
on all of them together.

OUT.json is written after each case. If a run is interrupted, the same command with `--missing`
measures what is not there yet. `--only TEXT` measures the cases with TEXT in their names again.
With either, the other cases stay; `--show` only prints. At the end come the figures of the claims.
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
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.bench import Spread, child_environment, finish, parser, run, table
from tests.benchmarks.synthetic import LAUNCHES, LAYOUTS, Answers, us, write

GOAL = (
    "for each file: at least 10x faster than HTA, and faster than json.loads from 20 MB on; at 54 "
    "MB at most 0.3 s of work, and 0.5 s for the whole command; peak memory under half the file's "
    "size at 1 GB in every layout; time linear in the size and in the number of threads"
)
_LENS = "AMD-AGI+TraceLens/tests/traces"
_HTA = "facebookresearch+HolisticTraceAnalysis/tests/data"
FILES = (
    f"{_LENS}/inference/xdit_flux.1_aiter_sage/profile_trace_rank_0.json.gz",
    f"{_LENS}/inference/xdit_flux.1/capture_traces/capture_trace_rank_0.json.gz",
    f"{_LENS}/mi300/google_owlv2-large-patch14-ensemble__1016001.json.gz",
    f"{_LENS}/h100/google_owlv2-large-patch14-ensemble__1016001.json.gz",
    f"{_LENS}/b200/eager_trace.json.gz",
    f"{_HTA}/df_index_resolver/df_index_resolver.json.gz",
    f"{_HTA}/trace_diff/control/control.json.gz",
    f"{_HTA}/negative_queue_length_values_check/rank0.json.gz",
)
SIZES_MB = (10, 50, 200)
LAYOUT_MB, LARGE_MB = 54, 1000
THREAD_LAUNCHES, THREADS = 20_000, (1, 2_000, 20_000)
RANKS, RANK_MB = 4, 200
OWN, LOADS, HTA, COMMAND = "launchscope", "json.loads", "HTA", "launchscope report"

_MEASURED = """
import json, sys, time
path = sys.argv[1]
{imports}
wall, cpu = time.perf_counter(), time.process_time()
{work}
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
# Of this program alone: ru_maxrss begins with what the process that started it has.
peak = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024
print(json.dumps(dict(wall_s=wall, cpu_s=cpu, peak_mib=peak, found=found)), file=sys.stderr)
"""
_FIGURES = ("wall_s", "cpu_s", "peak_mib")
_READERS = {
    OWN: (
        "from launchscope.workflows.load_input import ReadOptions, profile_of\n"
        "from pathlib import Path\n"
        "import launchscope.analysis, launchscope.parser.sources as s, launchscope.rules\n"
        "s.sources(), launchscope.rules.all_rules()",
        "profile = profile_of(Path(path), ReadOptions(15.0, None))\n"
        "found = [profile.value('launches_per_step'), profile.value('gpu_busy_ms')]",
    ),
    LOADS: (
        "",
        "document = json.loads(open(path).read())\nfound = len(document['traceEvents'])",
    ),
    HTA: (
        "import os, tempfile\nfrom hta.trace_analysis import TraceAnalysis",
        "analysis = TraceAnalysis(trace_files={0: path}, trace_dir=os.path.dirname(path))\n"
        "statistics = analysis.get_cuda_kernel_launch_stats(visualize=False)\n"
        "found = len(statistics[0])",
    ),
}


@dataclass(frozen=True)
class Case:
    """A file that some readers take turns to read, as often as `rounds`; `once`: these in the
    first round only. `make` writes it, and gives its answers if they are known."""

    name: str
    make: Callable[[Path], Answers | None]
    rounds: int
    readers: tuple[str, ...]
    once: tuple[str, ...] = ()
    suffix: str = ".json"

    def rows(self, folder: Path, hta: str | None) -> list[dict[str, Any]]:
        path = folder / f"{THREAD_LAUNCHES}{self.suffix}"
        answers = self.make(path)
        taken: dict[str, list[dict[str, Any]]] = {reader: [] for reader in self.readers}
        for number in range(self.rounds):
            for reader, made in taken.items():
                if not number or reader not in self.once:
                    made += measured(reader, path, hta)
        for each in taken[OWN]:
            if answers is not None:
                checked(each["found"], answers)
        megabytes = round(path.stat().st_size / 1e6, 1)
        path.unlink()
        own = median(each["wall_s"] for each in taken[OWN])
        rows: list[dict[str, Any]] = []
        for reader, made in taken.items():
            figures = {
                figure: Spread.of([each[figure] for each in made])
                for figure in _FIGURES
                if made and figure in made[0]
            }
            row = {"trace": self.name, "file_mb": megabytes, "reader": reader, **figures}
            if made:
                row["times_launchscope"] = round(figures["wall_s"].median / own, 2)
                rows.append(row)
        return rows


def measured(reader: str, path: Path, hta: str | None) -> list[dict[str, Any]]:
    """One run in a fresh process; none without HTA, or where it cannot read the file."""
    if reader == COMMAND:
        begun = time.perf_counter()
        run(["-m", "launchscope", "report", "-q", str(path)])
        return [{"wall_s": time.perf_counter() - begun}]
    if reader == HTA and hta is None:
        return []
    imports, work = _READERS[reader]
    code = _MEASURED.format(imports=imports, work=work)
    result = subprocess.run(
        [hta if reader == HTA and hta else sys.executable, "-c", code, str(path)],
        capture_output=True, text=True, env=child_environment(), stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if result.returncode != 0 and reader == HTA:
        print(f"HTA cannot read it: {result.stderr[-300:]}", file=sys.stderr)
        return []
    if result.returncode != 0:
        sys.exit(f"{reader} on {path.name} ended with {result.returncode}:\n{result.stderr}")
    found: dict[str, Any] = json.loads(result.stderr.strip().splitlines()[-1])
    return [found]


def checked(found: list[float], answers: Answers) -> None:
    """A fast reader that finds something else has not read the trace."""
    wanted = [LAUNCHES, answers.step_busy_ns / 1e6]
    if found != wanted:
        sys.exit(f"launchscope found {found} in a trace of {wanted}")


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


def unpack(source: Path, path: Path) -> None:
    with gzip.open(source, "rb") as packed, path.open("wb") as target:
        shutil.copyfileobj(packed, target)


def _short(path: str | Path) -> str:
    return "/".join(Path(path).parts[-2:])


def cases(folder: Path | None, rounds: int) -> list[Case]:
    found = []
    both = (OWN, LOADS, COMMAND)
    for source in [folder / name for name in FILES] if folder is not None else ():
        make: Any = partial(unpack, source)
        found.append(Case(_short(source), make, rounds, (*both, HTA)))
    for layout in LAYOUTS:
        make = partial(write, megabytes=LAYOUT_MB, layout=layout)
        name = f"synthetic, {layout}"
        found.append(Case(f"{name}, {LAYOUT_MB} MB", make, rounds, (*both, HTA), once=(HTA,)))
        make = partial(write, megabytes=LARGE_MB, layout=layout)
        found.append(Case(f"{name}, {LARGE_MB} MB", make, 1, (OWN,)))
    for threads in THREADS:
        make = partial(write_threads, threads=threads)
        name = f"{THREAD_LAUNCHES:,} launches, {threads:,} threads"
        found.append(Case(name, make, rounds, both))
    for size in SIZES_MB:
        make = partial(write, megabytes=size)
        large = size == max(SIZES_MB)
        readers = (*both, HTA) if large else both
        found.append(Case(f"synthetic, {size} MB.json", make, rounds, readers, once=(HTA,)))
        if large:
            name = f"synthetic, {size} MB.json.gz"
            found.append(Case(name, make, rounds, (OWN, COMMAND), suffix=".json.gz"))
    return found


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


def claims(rows: list[dict[str, Any]]) -> list[str]:
    """The figures of the goals and of docs/traces.md, as far as they were measured."""
    real = tuple(map(_short, FILES))

    def span(names: str | tuple[str, ...], reader: str, figure: str) -> str:
        found = [
            row[figure]["median"] if isinstance(row[figure], dict) else row[figure]
            for row in rows
            if row["trace"].endswith(names) and row["reader"] == reader and figure in row
        ]
        return f"{min(found):.2f} to {max(found):.2f}" if found else "not measured"

    lines = []
    for title, names in (("real files", real), (f"{LAYOUT_MB} MB", f", {LAYOUT_MB} MB")):
        lines += [f"{title}: {each} {span(names, each, 'wall_s')} s" for each in (OWN, COMMAND)]
        times = [f"{each} {span(names, each, 'times_launchscope')}" for each in (LOADS, HTA)]
        lines.append(f"{title}, times launchscope: {', '.join(times)}")
    middle = f"{max(SIZES_MB)} MB.json"
    single = [(middle, OWN), (middle, LOADS), (middle, HTA), (f", {LARGE_MB} MB", OWN)]
    single += [(f" {threads:,} threads", OWN) for threads in THREADS]
    single += [(f"{RANKS} ranks", way) for way in ("ranks, one by one", "ranks, together")]
    for names, each in single:
        lines.append(f"{names.strip(', ')}: {each} {span(names, each, 'wall_s')} s")
        lines[-1] += f", {span(names, each, 'peak_mib')} MiB"
    return lines


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--folder", type=Path, help="with the traces of foreign.obtain")
    options.add_argument("--hta-python", help="an interpreter that has HolisticTraceAnalysis")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--only", nargs="*", help="cases with one of these in their names")
    options.add_argument("--missing", action="store_true", help="cases that --output lacks")
    options.add_argument("--show", action="store_true", help="measure nothing")
    given = options.parse_args()
    rows: list[dict[str, Any]] = []
    keeps = given.only is not None or given.missing or given.show
    if keeps and given.output is not None and given.output.is_file():
        rows = json.loads(given.output.read_text())["results"]
    known = {row["trace"] for row in rows} if given.missing else set()
    with tempfile.TemporaryDirectory() as place:
        work: list[tuple[str, Callable[[], list[dict[str, Any]]]]] = [
            (case.name, partial(case.rows, Path(place), given.hta_python))
            for case in cases(given.folder, given.rounds)
        ]
        work.append((f"{RANKS} ranks", partial(rank_rows, Path(place), given.rounds)))
        for name, measure in work if not given.show else ():
            wanted = given.only is None or any(text in name for text in given.only)
            if not wanted or name in known:
                continue
            begun = time.perf_counter()
            made = [
                {k: asdict(v) if isinstance(v, Spread) else v for k, v in row.items()}
                for row in measure()
            ]
            rows = [row for row in rows if row["trace"] != name] + made
            print(f"{name}: {time.perf_counter() - begun:.0f} s", file=sys.stderr)
            finish("traces", GOAL, rows, given.output)

    def text(row: dict[str, Any], figure: str, decimals: int) -> str:
        spread = row.get(figure)
        return "" if spread is None else Spread(**spread).text(decimals)

    table(
        ["trace", "MB", "reader", "wall s", "x launchscope", "CPU s", "peak MiB"],
        [
            [
                row["trace"],
                f"{row['file_mb']:.0f}",
                row["reader"],
                text(row, "wall_s", 2),
                str(row.get("times_launchscope", "")),
                text(row, "cpu_s", 2),
                text(row, "peak_mib", 0),
            ]
            for row in rows
        ],
    )
    print("", *claims(rows), sep="\n")


if __name__ == "__main__":
    main()
