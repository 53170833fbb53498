"""The bucket plan for the variable-length sample against a twin that is padded to it by hand.

Goal: the predicted time of an iteration within 15 % of what the twin takes, and so the gain. The
plan, the twin with the plan's lengths, and the eager twin take turns; medians are compared.

Run from the top of the checkout: python -m tests.benchmarks.buckets [--output PATH]
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks import bench

GOAL = "iteration with the planned buckets within 15 % of what the hand-bucketed twin takes"
SCRIPT = bench.ROOT / "sample_workloads" / "variable_lengths.py"
HEADER = ["max graphs", "padded to", "eager, ms", "planned, ms", "twin eager, ms", "twin, ms",
          "plan is off by", "gain planned", "gain measured"]  # fmt: skip


def planned(directory: Path, max_graphs: int) -> dict[str, Any]:
    """The bucket plan that `launchscope compare --buckets` makes."""
    path = directory / "plan.json"
    options = ["-q", "--verify", "0", "--max-graphs", str(max_graphs), "-o", str(path)]
    bench.run(["-m", "launchscope", "compare", *options, str(SCRIPT)])
    plans = json.loads(path.read_text())["buckets"]
    if not plans or plans[0]["planned_ms"] is None:
        sys.exit("no bucket plan was made")
    return plans[0]  # type: ignore[no-any-return]


def twin(directory: Path, lengths: str) -> float:
    """Milliseconds per iteration of the twin, measured by itself."""
    path = directory / "twin.json"
    module = "tests.benchmarks.twins.variable_lengths"
    bench.run(["-m", module, "--lengths", lengths, "--result", str(path)])
    return float(json.loads(path.read_text())["iteration_ms"])


def compared(max_graphs: int, repeats: int) -> dict[str, Any]:
    plans, bucketed, eager = [], [], []
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(repeats):
            plans.append(planned(Path(directory), max_graphs))
            # The same lengths every time: those of the first plan.
            lengths = ",".join(str(bucket["high"]) for bucket in plans[0]["buckets"])
            bucketed.append(twin(Path(directory), lengths))
            eager.append(twin(Path(directory), "none"))
    ms = median(plan["planned_ms"] for plan in plans)
    before = median(plan["eager_ms"] for plan in plans)
    return {
        "max_graphs": max_graphs,
        "lengths": lengths,
        "plan_eager_ms": bench.Spread.of([plan["eager_ms"] for plan in plans]),
        "planned_ms": bench.Spread.of([plan["planned_ms"] for plan in plans]),
        "twin_eager_ms": bench.Spread.of(eager),
        "twin_ms": bench.Spread.of(bucketed),
        "off_pct": 100 * (ms / median(bucketed) - 1),
        "gain_planned_pct": 100 * (1 - ms / before),
        "gain_measured_pct": 100 * (1 - median(bucketed) / median(eager)),
        "plan": plans[0],
    }


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--max-graphs", type=int, nargs="+", default=[8])
    args = parser.parse_args()
    if not bench.cuda_available():
        sys.exit("needs a CUDA device: without one there is nothing to replay")
    results = [compared(graphs, args.repeats) for graphs in args.max_graphs]
    rows = [
        [
            str(result["max_graphs"]),
            result["lengths"],
            result["plan_eager_ms"].text(2),
            result["planned_ms"].text(3),
            result["twin_eager_ms"].text(2),
            result["twin_ms"].text(3),
            f"{result['off_pct']:+.1f} %",
            f"{result['gain_planned_pct']:.1f} %",
            f"{result['gain_measured_pct']:.1f} %",
        ]
        for result in results
    ]
    bench.table(HEADER, rows)
    bench.finish("buckets", GOAL, results, args.output)


if __name__ == "__main__":
    main()
