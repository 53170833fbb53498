"""`launchscope compare` on the samples: five batch sizes of three, and the strategies on four.

Each comparison is written as compare_NAME.json into --results, and compare.md there
reports them all. A run that is there already is not made again without --again.

Run from the top of the checkout: python -m tests.benchmarks.compare [--results FOLDER]
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from launchscope.model import Comparison
from launchscope.parser import read_saved
from launchscope.report import render
from tests.benchmarks import bench

STRATEGIES = "eager,replay,compile,graphed"


@dataclass(frozen=True)
class Run:
    """One comparison: of which sample, with which options."""

    name: str
    sample: str
    options: tuple[str, ...]
    args: tuple[str, ...] = ()


# Without the check of results: it is made once for each sample by `profile`, at its default size.
RUNS = (
    Run("convnet", "convnet", ("--batch-sizes", "16,64,256,512,1024", "--verify", "0")),
    Run("small_gpt", "small_gpt", ("--batch-sizes", "4,16,32,64,128", "--verify", "0")),
    Run(
        "transformer_inference",
        "transformer_inference",
        ("--batch-sizes", "1,4,16,64,256", "--verify", "0"),
    ),
    Run("strategies_small_mlp", "small_mlp", ("--modes", STRATEGIES)),
    Run("strategies_small_gpt", "small_gpt", ("--modes", STRATEGIES)),
    Run("strategies_convnet", "convnet", ("--modes", STRATEGIES)),
    Run("strategies_transformer_inference", "transformer_inference", ("--modes", STRATEGIES)),
)


def file_of(run: Run, folder: Path) -> Path:
    return folder / f"compare_{run.name}.json"


def made(run: Run, folder: Path) -> Comparison:
    """Runs the comparison; its own report goes to stderr as it is printed."""
    path = file_of(run, folder)
    command = ["-m", "launchscope", "compare", "-q", *run.options, "-o", str(path)]
    bench.run([*command, f"sample_workloads/{run.sample}.py", *run.args])
    return read_saved(path, Comparison)


def summary(found: list[tuple[Run, Comparison]]) -> str:
    """All comparisons as one Markdown page, each as its own report says it."""
    first = found[0][1].environment
    days = sorted({(made.environment.recorded_at or "")[:10] for _, made in found})
    head = (
        f"Made by `python -m tests.benchmarks.compare` on {first.device}, PyTorch {first.torch}, "
        f"CUDA {first.cuda}, {' and '.join(days)}."
    )
    parts = ["# Comparisons of the samples", head]
    for run, comparison in found:
        text = render(comparison, "markdown")
        assert isinstance(text, str)
        typed = " ".join(["launchscope compare", *run.options, f"{run.sample}.py", *run.args])
        # One page: every heading goes down by one.
        body = "\n".join(f"#{line}" if line.startswith("#") else line
                         for line in text.strip().splitlines())  # fmt: skip
        parts += [body, f"```sh\n{typed}\n```"]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path(__file__).with_name("results"))
    parser.add_argument("--only", nargs="+", choices=[run.name for run in RUNS])
    parser.add_argument("--again", action="store_true", help="also what is there already")
    parser.add_argument(
        "--summary-only", action="store_true", help="write compare.md from what is there"
    )
    args = parser.parse_args()
    if not args.summary_only and not bench.cuda_available():
        sys.exit("needs a CUDA device: without one there is nothing to compare")
    args.results.mkdir(parents=True, exist_ok=True)
    for run in RUNS:
        if args.summary_only or (args.only and run.name not in args.only):
            continue
        if file_of(run, args.results).exists() and not args.again:
            continue
        begun = time.monotonic()
        comparison = made(run, args.results)
        print(f"{run.name}, {time.monotonic() - begun:.0f} s: {comparison.headline}", flush=True)
    found = [
        (run, read_saved(file_of(run, args.results), Comparison))
        for run in RUNS
        if file_of(run, args.results).exists()
    ]
    if not found:
        sys.exit("there is no comparison to summarise")
    (args.results / "compare.md").write_text(summary(found), encoding="utf-8")
    print(f"written: {args.results / 'compare.md'}")


if __name__ == "__main__":
    main()
