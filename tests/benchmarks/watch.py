"""What `launchscope watch` costs: iterations per second of three scripts, with it and without.

    python -m tests.benchmarks.watch FILE [--seconds N] [--rounds N]

From the top of the checkout. FILE gets a JSON object after each script. Each round runs each script
both ways, in an order that changes. Iterations count from 0.5 s after the first optimizer step on,
which is before the first window. Two runs differ by chance as well, so each run also has its
typical rate, the median of its seconds: a whole run is slower than that by its windows
(`windows_pct`; `plain_pct` without watch), and the typical rates of both ways differ by the
counting of steps (`counting_pct`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

SCRIPT = """
import json, runpy, sys, time
from statistics import median
from torch.optim.optimizer import register_optimizer_step_post_hook

rate, seconds, script = sys.argv[1:]
times = []

def stepped(*_):
    times.append(time.perf_counter())
    if times[-1] - times[0] < 0.5:
        times[1:] = []
    elif times[-1] - times[1] >= float(seconds):
        slices = [0] * int(float(seconds))
        for at in times[2:]:
            if at - times[1] < len(slices):
                slices[int(at - times[1])] += 1
        whole = (len(times) - 2) / (times[-1] - times[1])
        with open(rate, "w") as file:
            json.dump({"whole": whole, "typical": median(slices)}, file)
        sys.exit()

register_optimizer_step_post_hook(stepped)
sys.argv[:] = [script, "--steps", "1000000000"]
runpy.run_path(script, run_name="__main__")
"""


def per_second(folder: Path, name: str, seconds: float, *before: str) -> dict[str, float]:
    """Iterations per second, of the whole run and in its median second."""
    script, rate = folder / "timed.py", folder / "rate"
    script.write_text(SCRIPT)
    words = [*before, str(script), str(rate), str(seconds), f"sample_workloads/{name}.py"]
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
    return dict(json.loads(rate.read_text()))


def costs(plain: list[dict[str, float]], watched: list[dict[str, float]]) -> dict[str, float]:
    """By how many percent a run is slower: watched than plain; than its own typical second."""

    def rate(runs: list[dict[str, float]], kind: str) -> float:
        return median(run[kind] for run in runs)

    def slower(slow: float, fast: float) -> float:
        return 100 * (1 - slow / fast)

    return {
        "cost_pct": slower(rate(watched, "whole"), rate(plain, "whole")),
        "counting_pct": slower(rate(watched, "typical"), rate(plain, "typical")),
        "windows_pct": slower(rate(watched, "whole"), rate(watched, "typical")),
        "plain_pct": slower(rate(plain, "whole"), rate(plain, "typical")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        folder, saved = Path(directory), Path(directory, "watch.json")
        watch = ("-m", "launchscope", "watch", "--every", "10", "-o", str(saved))
        for number in range(args.rounds):
            for name in ("small_gpt", "convnet", "small_mlp"):
                found = results.setdefault(name, {"plain": [], "watched": []})
                for way in ("plain", "watched")[:: 1 if number % 2 else -1]:
                    before = watch if way == "watched" else ()
                    found[way].append(per_second(folder, name, args.seconds, *before))
                found |= costs(found["plain"], found["watched"])
                found["watch"] = json.loads(saved.read_text())
                args.file.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
