"""Slowdown of the steps of the timing pass against the plain script.

Goal: under 1 % for steps of 2 ms and more. Both sides run the same workload, which times
itself the same way in both: wall time from the start of its step 12 to the start of its
step 38, synchronised at both ends. Under launchscope these steps lie inside the timing
pass, which is checked on the recording. Runs go in pairs, the order changing from pair to
pair, and the slowdown is the median over pairs.

Run from the top of the checkout: python -m tests.benchmarks.slowdown [--output PATH]
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks import bench

GOAL = "steps of the timing pass under 1 % slower than in the plain script, from 2 ms on"


def profiled_run(layers: int, directory: Path) -> dict[str, float]:
    """One run under launchscope: what the workload measured of itself, in the timing pass."""
    from launchscope.model import Schedule, Target
    from launchscope.runner.session import RunOptions, record

    result = directory / "profiled.json"
    arguments = ("--layers", str(layers), "--result", str(result))
    outcome = record(
        Target("script", str(bench.WORKLOAD), arguments),
        Schedule(trace=0, inspect=0, replay=0, verify=0),
        RunOptions(max_runs=1),
        Path(tempfile.mkdtemp(dir=directory)),
        lambda event: None,
    )
    outcome.settle()
    if outcome.problem is not None:
        sys.exit(f"launchscope could not measure: {outcome.problem}")
    measured: dict[str, float] = json.loads(result.read_text())
    timing = json.loads((outcome.directory / "recording.json").read_text())["timing"]
    inside = (
        timing is not None
        and timing["host_open_ns"] <= measured["begin_ns"]
        and measured["end_ns"] <= timing["host_close_ns"]
    )
    if not inside:
        sys.exit("the steps compared did not all lie in the timing pass")
    return measured


def pairs(layers: int, count: int) -> tuple[list[float], list[float]]:
    """Step times in ms, plain and profiled, index by index from the same pair."""
    sides: list[Callable[[int, Path], dict[str, float]]] = [bench.plain_run, profiled_run]
    times: dict[str, list[float]] = {"plain_run": [], "profiled_run": []}
    with tempfile.TemporaryDirectory() as directory:
        for pair in range(count):
            for side in sides if pair % 2 == 0 else reversed(sides):
                times[side.__name__].append(side(layers, Path(directory))["step_ms"])
    return times["plain_run"], times["profiled_run"]


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--step-ms", type=float, nargs="+", default=[2.0, 5.0, 10.0])
    args = parser.parse_args()
    if not bench.cuda_available():
        sys.exit("needs a CUDA device: without one there is no timing pass")

    results: list[dict[str, Any]] = []
    rows = []
    for target_ms in args.step_ms:
        layers, _ = bench.layers_for(target_ms)
        plain, profiled = pairs(layers, args.pairs)
        slowdown = bench.Spread.of([100 * (b / a - 1) for a, b in zip(plain, profiled)])
        result = {
            "target_ms": target_ms,
            "layers": layers,
            "plain_ms": bench.Spread.of(plain),
            "profiled_ms": bench.Spread.of(profiled),
            "slowdown_pct": slowdown,
        }
        results.append(result)
        rows.append(
            [
                f"{target_ms:g} ms",
                result["plain_ms"].text(3),
                result["profiled_ms"].text(3),
                slowdown.text(2),
            ]
        )
    bench.table(["step", "plain, ms", "in the timing pass, ms", "slowdown, % (quartiles)"], rows)
    bench.finish("slowdown", GOAL, results, args.output)


if __name__ == "__main__":
    main()
