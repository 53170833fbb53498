"""How well a rehearsal's count of device operations tracks the launches on a GPU.

For every sample workload and every step of the zoo: `device_ops_per_step`, counted here without a
GPU, over the kernel launches per step of the committed measurements on an H200. A step of the zoo
whose library is not installed is left out, and named.

Run from the top of the checkout, on any machine:
    CUDA_VISIBLE_DEVICES= python -m tests.benchmarks.rehearsal_ratio [--zoo] [--output PATH]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from launchscope.analysis import build_profile
from launchscope.parser import read_profile, read_recording
from tests.benchmarks import bench
from tests.benchmarks.zoo.catalog import FAMILIES, find
from tests.benchmarks.zoo.workload import Family

GOAL = "device operations per step over launches per step, H200"
SAMPLES = bench.ROOT / "sample_workloads"
ZOO = Path(__file__).with_name("results") / "zoo.json"
_BATCH = 2  # of the zoo's steps: how many ops there are hardly depends on it
_LIMIT_S = 300


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--zoo", action="store_true", help="the steps of the zoo as well")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        _count_steps(args.child)
        return
    # Counts, not times: what can run side by side does.
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2)) as pool:
        samples = pool.map(_sample, sorted((SAMPLES / "recordings").iterdir()))
        zoo = pool.map(_family, FAMILIES) if args.zoo else ()
        rows = [*samples, *(row for family in zoo for row in family)]
    counted = [row for row in rows if row["ratio"] is not None]
    bench.table(
        ["step", "device ops", "launches", "ratio"],
        [
            [row["name"], str(row["device_ops"]), str(row["launches"]), f"{row['ratio']:.2f}"]
            for row in counted
        ],
    )
    for row in rows:
        if row["ratio"] is None:
            print(f"not counted: {row['name']}: {row['reason']}")
    for kind in dict.fromkeys(row["kind"] for row in counted):
        print(_summary(kind, [row["ratio"] for row in counted if row["kind"] == kind]))
    bench.finish("rehearsal_ratio", GOAL, rows, args.output)


def _summary(kind: str, ratios: list[float]) -> str:
    tenths = quantiles(ratios, n=10, method="inclusive") if len(ratios) > 1 else ratios * 9
    return (
        f"{kind}: {len(ratios)} steps, median {median(ratios):.2f}, "
        f"10th to 90th percentile {tenths[0]:.2f} to {tenths[-1]:.2f}"
    )


def _row(kind: str, name: str, ops: float | None, launches: float | None, reason: str = "") -> Any:
    ratio = ops / launches if ops is not None and launches else None
    why = reason or (None if ratio is not None else "launches were not measured")
    return {"kind": kind, "name": name, "device_ops": ops, "launches": launches,
            "ratio": ratio, "reason": why}  # fmt: skip


def _sample(recording: Path) -> dict[str, Any]:
    launches = build_profile(read_recording(recording)).value("launches_per_step")
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "profile.json"
        bench.run(
            ["-m", "launchscope", "profile", "-q", "--warmup", "5", "--timing", "0", "-o",
             str(saved), str(SAMPLES / f"{recording.name}.py")]
        )  # fmt: skip
        ops = read_profile(saved).value("device_ops_per_step")
    return _row("sample", recording.name, ops, launches)  # type: ignore[no-any-return]


# -------------------------------------------------------------------------------- zoo


def _family(family: Family) -> list[dict[str, Any]]:
    """The measured steps of one family, counted in a process of their own."""
    measured = {row["name"]: row for row in json.loads(ZOO.read_text())["results"]}
    names = [step.name for step in family.workloads if step.name in measured]
    missing = family.package is not None and find_spec(family.package) is None
    counted = {} if missing else _counted(names)
    rows = []
    for name in names:
        found = counted.get(name, {"reason": f"{family.package} is not installed"})
        launches = measured[name].get("measured", {}).get("kernels_per_step")
        rows.append(_row("zoo", name, found.get("ops"), launches, found.get("reason", "")))
    return rows


def _counted(names: list[str]) -> dict[str, dict[str, Any]]:
    """A step that fails says why, and costs no other one."""
    command = [sys.executable, "-m", "tests.benchmarks.rehearsal_ratio", "--child", *names]
    alone = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "2"}
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, timeout=_LIMIT_S, cwd=bench.ROOT,
            env=bench.child_environment() | alone, check=False,
        )  # fmt: skip
        said = done.stdout
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"").decode() if isinstance(late.stdout, bytes) else ""
    rows = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return {name: {"reason": "its process gave no count"} for name in names} | {
        row["name"]: row for row in rows
    }


def _count_steps(names: list[str]) -> None:
    import torch

    from launchscope.runner.child.rehearsal.counting import device_ops

    warnings.simplefilter("ignore")
    for name in names:
        row: dict[str, Any] = {"name": name}
        begun = time.monotonic()
        try:
            step = find(name).build(torch.device("cpu"), _BATCH)
            step.run(*step.inputs)
            with device_ops(torch) as stream:
                step.run(*step.inputs)
            row["ops"] = stream.device_ops
        except Exception as error:
            row["reason"] = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
        print(json.dumps(row), flush=True)
        print(f"{name}: {time.monotonic() - begun:.1f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
