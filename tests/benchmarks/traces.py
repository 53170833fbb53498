"""Reading traces: speed and memory, beside a bare json.loads and Holistic Trace Analysis.

    python -m tests.benchmarks.traces --folder FOLDER --hta-python /path/to/python --output OUT.json

Each measurement is a process of its own, and the readers take turns, `--rounds` times. launchscope
reads the file and makes the Profile with its verdict; json.loads only loads (garbage collection on,
as people call it); HTA loads the trace and computes its launch statistics. Times begin after the
imports, except of whole commands (`launchscope report`). `--hta-python` is an interpreter with
HolisticTraceAnalysis; without it HTA is left out. FOLDER is where `tests.benchmarks.foreign.obtain`
put the real traces, of which those in `FILES` are decompressed and measured. Synthetic traces have
the sizes `SIZES_MB`, and `LARGE_MB` in every layout of `synthetic.LAYOUTS`; HTA reads them once.

OUT.json is written after each case. With `--only TEXT` the cases with TEXT in their names are
measured, and the others stay.
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.bench import Spread, child_environment, finish, parser, run, show
from tests.benchmarks.synthetic import LAUNCHES, LAYOUTS, Answers, write

GOAL = (
    "for each file: at least 10x faster than HTA, and faster than json.loads from 20 MB on; at 54 "
    "MB at most 0.3 s of work, and 0.5 s for the whole command; peak memory under half the file's "
    "size at 1 GB in every layout"
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
SIZES_MB, LARGE_MB = (54, 200), 1000
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

    def rows(self, folder: Path, hta: str | None) -> list[dict[str, Any]]:
        path = folder / "trace.json"
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


def unpack(source: Path, path: Path) -> None:
    with gzip.open(source, "rb") as packed, path.open("wb") as target:
        shutil.copyfileobj(packed, target)


def _short(path: str | Path) -> str:
    return "/".join(Path(path).parts[-2:])


def cases(folder: Path | None, rounds: int) -> list[Case]:
    every = (OWN, LOADS, COMMAND, HTA)
    real = [folder / name for name in FILES] if folder is not None else []
    found = [Case(_short(path), partial(unpack, path), rounds, every) for path in real]
    for size in SIZES_MB:
        make: Any = partial(write, megabytes=size)
        found.append(Case(f"synthetic, {size} MB", make, rounds, every, once=(HTA,)))
    for layout in LAYOUTS:
        make = partial(write, megabytes=LARGE_MB, layout=layout)
        found.append(Case(f"synthetic, {layout}, {LARGE_MB} MB", make, 1, (OWN,)))
    return found


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--folder", type=Path, help="with the traces of foreign.obtain")
    options.add_argument("--hta-python", help="an interpreter that has HolisticTraceAnalysis")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--only", nargs="*", help="cases with one of these in their names")
    given = options.parse_args()
    rows: list[dict[str, Any]] = []
    if given.only is not None and given.output is not None and given.output.is_file():
        rows = [
            {k: Spread(**v) if isinstance(v, dict) else v for k, v in row.items()}
            for row in json.loads(given.output.read_text())["results"]
        ]
    with tempfile.TemporaryDirectory() as place:
        for case in cases(given.folder, given.rounds):
            if given.only is not None and not any(text in case.name for text in given.only):
                continue
            made = case.rows(Path(place), given.hta_python)
            rows = [row for row in rows if row["trace"] != case.name] + made
            finish("traces", GOAL, rows, given.output)
    show(rows)


if __name__ == "__main__":
    main()
