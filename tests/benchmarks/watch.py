"""What `launchscope watch` costs three scripts, each compared with itself in one run.

On a shared host two runs of a script differ by more than watching costs, and so do two minutes of
one run. So steps are watched in turns: `BLOCK` of them are, and as many are not. `counting_pct` is
by how much the first take longer: the median over pairs of neighbors, with its 95 % interval.
`window_s` is what blocks with a window take beyond their neighbors. Watch sees half of the steps
here, so how often it opens a window is not as in a whole run.

Run from the top of the checkout: python -m tests.benchmarks.watch [--output PATH]
"""

from __future__ import annotations

import json
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from launchscope.model import Watch
from launchscope.parser import read_saved
from tests.benchmarks import bench

GOAL = "counting steps and the windows behind the first each under 0.5 % of the time"

SCRIPT = """
import gc, json, runpy, sys, time
from torch.optim.optimizer import register_optimizer_step_post_hook

BLOCK = 5
file, seconds, script = sys.argv[1:]
controller, steps, blocks, known = None, 0, [], None
begun = last = time.perf_counter()

def stepped(*_):
    global controller, steps, known, last
    steps += 1
    if steps % BLOCK:
        return
    now = time.perf_counter()
    controller = controller or next(
        it for it in gc.get_objects() if type(it).__name__ == "StepController"
    )
    hooks = controller.hooks
    if hooks.boundary_hooks is not None:
        blocks.append((hooks.active, now - last, hooks.boundary_hooks is not known))
        if controller.runner._pass.name == "watch":
            hooks.active = not hooks.active
            hooks.hook_modules()
        known = hooks.boundary_hooks
    if now - begun > float(seconds):
        with open(file, "w") as opened:
            json.dump(blocks, opened)
        sys.exit()
    last = time.perf_counter()

register_optimizer_step_post_hook(stepped)
sys.argv[:] = [script, "--steps", "1000000000"]
runpy.run_path(script, run_name="__main__")
"""
NEAR = 20  # blocks on each side

Block = tuple[bool, float, bool]  # whether it was watched, seconds, whether a pass began in it


def watched(folder: Path, name: str, seconds: float) -> tuple[list[Block], Watch]:
    script, blocks, saved = folder / "timed.py", folder / "blocks", folder / "watch.json"
    script.write_text(SCRIPT)
    words = ("-m", "launchscope", "watch", "--every", "10", "-o", str(saved), str(script))
    bench.run([*words, str(blocks), str(seconds), f"sample_workloads/{name}.py"], bench.ROOT)
    return json.loads(blocks.read_text()), read_saved(saved, Watch)


def costs(blocks: list[Block], windows: int) -> dict[str, Any]:
    plain = [(on, seconds) for on, seconds, begins in blocks if not begins]
    pairs = [(a, b) if a[0] else (b, a) for a, b in pairwise(plain) if a[0] != b[0]][::2]
    beyond = 0.0
    for at, (_, seconds, begins) in enumerate(blocks):
        near = [s for _, s, other in blocks[max(0, at - NEAR) : at + NEAR] if not other]
        beyond += (seconds - median(near)) if begins and at else 0.0
    return {
        "counting_pct": bench.interval([100 * (a / b - 1) for (_, a), (_, b) in pairs]),
        "pairs": len(pairs),
        "windows": windows,
        "window_s": beyond / max(windows, 1),
    }


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    args = parser.parse_args()
    results: list[dict[str, Any]] = []
    for name in ("small_gpt", "convnet", "small_mlp"):
        with tempfile.TemporaryDirectory() as directory:
            blocks, watch = watched(Path(directory), name, args.seconds)
        results.append({"script": name} | costs(blocks, len(watch.windows)))
    bench.show(results)
    bench.finish("watch", GOAL, results, args.output)


if __name__ == "__main__":
    main()
