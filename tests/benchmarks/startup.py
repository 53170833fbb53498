"""Wall time of `launchscope --help`, and that it imports neither torch nor pandas.

Goal: under 0.2 s. A bare interpreter is timed in turn with it, because that part is not
ours to shorten.

Run from the top of the checkout: python -m tests.benchmarks.startup [--output PATH]
"""

from __future__ import annotations

import subprocess
import sys
import time

from tests.benchmarks import bench

GOAL = "launchscope --help under 0.2 s with no torch import"


def seconds(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, *command],
        check=True,
        stdout=subprocess.DEVNULL,
        env=bench.child_environment(),
    )
    return time.perf_counter() - begin


def heavy_imports(command: list[str]) -> list[str]:
    listing = bench.run(["-X", "importtime", *command]).stderr
    names = {line.rpartition("|")[2].strip() for line in listing.splitlines()}
    return sorted(names & {"torch", "pandas", "numpy"})


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args()

    commands = {
        "launchscope --help": ["-m", "launchscope", "--help"],
        "launchscope profile --help": ["-m", "launchscope", "profile", "--help"],
        "python -c pass": ["-c", "pass"],
    }
    samples: dict[str, list[float]] = {name: [] for name in commands}
    for repeat in range(args.repeats + 2):  # the first two warm the file cache
        for name, command in commands.items():
            taken = seconds(command)
            if repeat >= 2:
                samples[name].append(taken)

    results = [
        {
            "command": name,
            "seconds": bench.Spread.of(samples[name]),
            "heavy_imports": heavy_imports(command),
        }
        for name, command in commands.items()
    ]
    bench.show(results)
    bench.finish("startup", GOAL, results, args.output)


if __name__ == "__main__":
    main()
