"""Wall time from a script's first step to the verdict, for a step of about 10 ms.

Goal: under 5 s. The workload notes the time right before its first step; the end is when
`launchscope profile` has printed its report and ended.

Run from the top of the checkout: python -m tests.benchmarks.first_verdict [--output PATH]
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from tests.benchmarks import bench

WORKLOAD = Path(__file__).with_name("workloads") / "timed_steps.py"
GOAL = "under 5 s from the first step to the verdict, for a step of 10 ms"


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--layers", type=int, default=49, help="of the workload: about 10 ms")
    args = parser.parse_args()

    to_verdict, whole = [], []
    with tempfile.TemporaryDirectory() as directory:
        profile, began = Path(directory, "profile.json"), Path(directory, "began")
        workload = [str(WORKLOAD), "--layers", str(args.layers), "--began", str(began)]
        for _ in range(args.repeats):
            begin = time.time()
            bench.run(["-m", "launchscope", "profile", "-o", str(profile), *workload])
            end = time.time()
            to_verdict.append(end - float(began.read_text()))
            whole.append(end - begin)
        found = json.loads(profile.read_text())

    row = {
        "step_ms": found["metrics"].get("iteration_ms", {}).get("value"),
        "layers": args.layers,
        "mode": found["mode"],
        "verdict": found["verdict"]["recommendation"],
        "first_step_to_verdict_s": bench.Spread.of(to_verdict),
        "whole_command_s": bench.Spread.of(whole),
    }
    bench.show([row])
    bench.finish("first_verdict", GOAL, [row], args.output)


if __name__ == "__main__":
    main()
