"""Real iteration time of a twin against `replayed_iteration_ms` of the original's profile.

Goal: within 10 %. A twin is what `launchscope adopt` writes, once per sample. A run of `launchscope
profile` on the original and a run of its twin take turns; the medians of both are compared.

Run from the top of the checkout: python -m tests.benchmarks.twins [--output PATH]
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks import bench

GOAL = "projected iteration within 10 % of what a twin with the graph really takes"
TWINS = ("small_gpt", "small_mlp", "lstm", "convnet", "transformer_inference")
HEADER = ["workload", "eager, ms", "projected, ms (quartiles)", "twin, ms (quartiles)",
          "projection is off by", "verdict"]  # fmt: skip


def profiled(name: str, directory: Path) -> dict[str, Any]:
    """The Profile of the original."""
    path = directory / "profile.json"
    script = str(bench.ROOT / "sample_workloads" / f"{name}.py")
    bench.run(["-m", "launchscope", "profile", "-q", "-o", str(path), script])
    return json.loads(path.read_text())  # type: ignore[no-any-return]


def written(name: str, directory: Path) -> Path:
    """The twin of a sample, in a copy of the folder of samples. Exits where there is no patch."""
    folder = directory / "samples"
    ignored = shutil.ignore_patterns("recordings")
    shutil.copytree(bench.ROOT / "sample_workloads", folder, ignore=ignored)
    script, patch = folder / f"{name}.py", folder / "graph.patch"
    bench.run(["-m", "launchscope", "adopt", "-q", "-o", patch.name, script.name], folder)
    if not patch.exists():
        sys.exit(f"{name}: adopt wrote no patch")
    subprocess.run(["git", "apply", patch.name], cwd=folder, check=True)
    return script


def adopted(twin: Path, directory: Path) -> float:
    """Milliseconds per iteration of the twin."""
    path = directory / "twin.json"
    bench.run(["-m", "tests.benchmarks.twins.timed", str(path), str(twin)])
    return float(json.loads(path.read_text())["iteration_ms"])


def compared(name: str, repeats: int) -> dict[str, Any]:
    eager, projected, real, verdicts = [], [], [], []
    with tempfile.TemporaryDirectory() as directory:
        twin = written(name, Path(directory))
        for _ in range(repeats):
            profile = profiled(name, Path(directory))
            values = {key: metric["value"] for key, metric in profile["metrics"].items()}
            if values["replayed_iteration_ms"] is None:
                sys.exit(f"{name}: no iteration was projected: {profile['verdict']['headline']}")
            eager.append(values["iteration_ms"])
            projected.append(values["replayed_iteration_ms"])
            verdicts.append(profile["verdict"]["recommendation"])
            real.append(adopted(twin, Path(directory)))
    return {
        "workload": name,
        "eager_ms": bench.Spread.of(eager),
        "projected_ms": bench.Spread.of(projected),
        "twin_ms": bench.Spread.of(real),
        "off_pct": 100 * (median(projected) / median(real) - 1),
        "verdicts": verdicts,
    }


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=TWINS, default=list(TWINS))
    args = parser.parse_args()
    if not bench.cuda_available():
        sys.exit("needs a CUDA device: without one there is nothing to replay")
    results = [compared(name, args.repeats) for name in args.only]
    rows = [
        [
            result["workload"],
            f"{result['eager_ms'].median:.3f}",
            result["projected_ms"].text(3),
            result["twin_ms"].text(3),
            f"{result['off_pct']:+.1f} %",
            ", ".join(dict.fromkeys(result["verdicts"])),
        ]
        for result in results
    ]
    bench.table(HEADER, rows)
    bench.finish("twins", GOAL, results, args.output)


if __name__ == "__main__":
    main()
