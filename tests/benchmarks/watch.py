"""What `launchscope watch` costs: iterations per second of three scripts, with it and without.

    python -m tests.benchmarks.watch FILE [--seconds N] [--rounds N] [--every N]

FILE gets one JSON object, written after each script. Each round runs a script both ways, in an
order that changes. Iterations count from the first one that is 3 s after the first optimizer step.
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

SAMPLES = Path(__file__).parents[2] / "sample_workloads"
SCRIPT = """
import json, runpy, sys, time
from torch.optim.optimizer import register_optimizer_step_post_hook

rate, seconds, script = sys.argv[1:]
begin, first, count = None, None, 0

def stepped(*_):
    global begin, first, count
    now = time.perf_counter()
    begin = begin or now
    if now - begin >= 3:
        first, count = first or now, count + 1
        if now - first >= float(seconds):
            with open(rate, "w") as file:
                json.dump((count - 1) / (now - first), file)
            sys.exit(0)

register_optimizer_step_post_hook(stepped)
sys.argv[:] = [script, "--steps", "1000000000"]
runpy.run_path(script, run_name="__main__")
"""


def per_second(folder: Path, name: str, seconds: float, *before: str) -> float:
    script, rate = folder / "timed.py", folder / "rate.json"
    script.write_text(SCRIPT)
    words = [*before, str(script), str(rate), str(seconds), str(SAMPLES / f"{name}.py")]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{name}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    return float(json.loads(rate.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--every", type=float, default=10)
    args = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        folder, saved = Path(directory), Path(directory, "watch.json")
        watch = ("-m", "launchscope", "watch", "--every", str(args.every), "-o", str(saved))
        for number in range(args.rounds):
            for name in ("small_gpt", "convnet", "small_mlp"):
                found = results.setdefault(name, {"plain": [], "watched": []})
                for way in ("plain", "watched")[:: 1 if number % 2 else -1]:
                    before = watch if way == "watched" else ()
                    found[way].append(per_second(folder, name, args.seconds, *before))
                found["cost_pct"] = 100 * (1 - median(found["watched"]) / median(found["plain"]))
                found["watch"] = json.loads(saved.read_text())
                args.file.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
