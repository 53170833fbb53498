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

GOAL = "under 5 s from the first step to the verdict, for a step of 10 ms"


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--step-ms", type=float, default=10.0)
    args = parser.parse_args()

    layers, step_ms = bench.layers_for(args.step_ms)
    to_verdict, whole = [], []
    with tempfile.TemporaryDirectory() as directory:
        profile, result = Path(directory, "profile.json"), Path(directory, "steps.json")
        workload = [str(bench.WORKLOAD), "--layers", str(layers), "--result", str(result)]
        for _ in range(args.repeats):
            begin = time.time()
            bench.run(["-m", "launchscope", "profile", "-o", str(profile), *workload])
            end = time.time()
            to_verdict.append(end - json.loads(result.read_text())["began"])
            whole.append(end - begin)
        found = json.loads(profile.read_text())

    verdict = found["verdict"]["recommendation"]
    bench.table(
        ["step", "first step to verdict, s", "whole command, s", "mode", "verdict"],
        [
            [
                f"{step_ms:.1f} ms",
                bench.Spread.of(to_verdict).text(2),
                bench.Spread.of(whole).text(2),
                found["mode"],
                verdict,
            ]
        ],
    )
    result_row = {
        "step_ms": step_ms,
        "layers": layers,
        "mode": found["mode"],
        "verdict": verdict,
        "first_step_to_verdict_s": bench.Spread.of(to_verdict),
        "whole_command_s": bench.Spread.of(whole),
    }
    bench.finish("first_verdict", GOAL, [result_row], args.output)


if __name__ == "__main__":
    main()
