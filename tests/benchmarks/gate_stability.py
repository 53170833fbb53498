"""How often `launchscope check` fails on code that has not changed, and on code that got worse.

A/A: the same script is checked again and again, each time in fresh processes, against a baseline
made once. Goal: not one failure. A/B: each regression of tests/regressions.py against the baseline
of the script without it. Goal: all of them fail, with what is to blame named.

Run from the top of the checkout, with a GPU or without one:
    python -m tests.benchmarks.gate_stability --checks 200 [--output PATH]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.benchmarks import bench
from tests.regressions import BETWEEN, REGRESSIONS, SCRIPT, UNCHANGED

GOAL = "no failure on unchanged code, every regression caught and named"
# Without seeds, with shapes that change, with a blocker, with AMP: not the easy ones alone.
WORKLOADS = (
    "train.py",
    "small_mlp.py",
    "item_in_step.py",
    "variable_lengths.py",
    "data_dependent.py",
    "amp_gradscaler.py",
    "transformer_inference.py",
    "gan.py",
    # A script named logging.py would hide the library of that name from its neighbors.
    *(f"with_{name}.py" for name in UNCHANGED),
)
REGRESSED = REGRESSIONS | BETWEEN
# A GPU check needs no more steps than these: the counts are exact.
QUICK = ("--warmup", "5", "--timing", "20", "--trace", "3", "--inspect", "2")


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--checks", type=int, default=200, help="A/A checks in all")
    parser.add_argument("--workloads", nargs="*", default=list(WORKLOADS), metavar="SCRIPT")
    parser.add_argument("--no-regressions", action="store_true", help="A/A alone")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _lay_out(folder)
        results = _unchanged(folder, args.workloads, args.checks)
        if not args.no_regressions:
            results += [_regression(folder, name) for name in REGRESSED]
    _told(results)
    bench.finish("gate_stability", GOAL, results, args.output)
    if any(row["wrong"] for row in results):
        sys.exit(1)


def _lay_out(folder: Path) -> None:
    for sample in (bench.ROOT / "sample_workloads").glob("*.py"):
        (folder / sample.name).write_text(sample.read_text())
    (folder / "train.py").write_text(SCRIPT)
    for name, source in UNCHANGED.items():
        (folder / f"with_{name}.py").write_text(source)
    regressed = folder / "regressed"
    for name, regression in REGRESSED.items():
        place = regressed / name.replace(" ", "-")
        place.mkdir(parents=True)
        (place / "train.py").write_text(regression.script)


def _unchanged(folder: Path, scripts: list[str], checks: int) -> list[dict[str, Any]]:
    rows = []
    for index, script in enumerate(scripts):
        baselines = folder / "baselines"
        made = _check(folder, "--baseline", str(baselines), "--update-baseline", script)
        if made.returncode != 0:
            sys.exit(f"no baseline of {script}:\n{made.stdout}{made.stderr}")
        share = checks // len(scripts) + (index < checks % len(scripts))
        outcomes: Counter[str] = Counter()
        seconds, wrong = [], []
        for _ in range(share):
            begin = time.perf_counter()
            done = _check(folder, "--baseline", str(baselines), script)
            seconds.append(time.perf_counter() - begin)
            outcome = _outcome(folder)
            outcomes[outcome] += 1
            if done.returncode != 0:
                wrong.append(f"exit {done.returncode}\n{done.stdout}{done.stderr}")
        rows.append(
            {
                "workload": script,
                "kind": "A/A",
                "checks": share,
                "outcomes": dict(outcomes),
                "seconds": bench.Spread.of(seconds or [0.0]),
                "wrong": wrong,
            }
        )
        print(f"{script}: {dict(outcomes)}, {len(wrong)} wrong", file=sys.stderr, flush=True)
    return rows


def _regression(folder: Path, name: str) -> dict[str, Any]:
    regression = REGRESSED[name]
    baselines = folder / "baselines"
    if not list(baselines.glob("train.*.json")):
        _check(folder, "--baseline", str(baselines), "--update-baseline", "train.py")
    place = folder / "regressed" / name.replace(" ", "-")
    begin = time.perf_counter()
    done = _check(place, "--baseline", str(baselines), "train.py")
    seconds = time.perf_counter() - begin
    outcome = _outcome(place)
    report = json.loads((place / "check.json").read_text())
    named = [change["name"] for change in report["changes"]]
    on_gpu = report["mode"] == "gpu"
    # What blocks between steps has another name where torch itself warns of it.
    names = () if on_gpu and name in BETWEEN else regression.names
    wanted = names + (regression.gpu_names if on_gpu else ())
    wrong = [f"not named: {want}" for want in wanted if not any(want in name for name in named)]
    if done.returncode != 1:
        wrong.append(f"exit {done.returncode}\n{done.stdout}{done.stderr}")
    line = {"file": "train.py", "line": regression.line_number}
    if not any(line in change["where"] for change in report["changes"]):
        wrong.append(f"the line {line} is not named")
    return {
        "workload": name,
        "kind": "A/B",
        "checks": 1,
        "outcomes": {outcome: 1},
        "failed_limits": [d["metric"] for d in report["limits"] if d["outcome"] == "failed"],
        "seconds": bench.Spread.of([seconds]),
        "wrong": wrong,
    }


def _check(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "launchscope", "check", *QUICK, "-o", "check.json", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=bench.child_environment(),
        stdin=subprocess.DEVNULL,
        check=False,
    )


def _outcome(folder: Path) -> str:
    return str(json.loads((folder / "check.json").read_text())["outcome"])


def _told(results: list[dict[str, Any]]) -> None:
    bench.table(
        ["workload", "kind", "checks", "outcomes", "seconds", "wrong"],
        [
            [
                row["workload"],
                row["kind"],
                str(row["checks"]),
                ", ".join(f"{count} {outcome}" for outcome, count in row["outcomes"].items()),
                row["seconds"].text(1),
                str(len(row["wrong"])),
            ]
            for row in results
        ],
    )
    for row in results:
        for wrong in row["wrong"]:
            print(f"\n{row['workload']}: {wrong}")


if __name__ == "__main__":
    main()
