"""Mutates trace files for --seconds, and stops at the first one that does harm.

    python -m tests.benchmarks.fuzz --seconds 600

A file that did harm is kept beside the seed that made it, and the process ends with 1.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.fuzzing import bases, holds, mutated


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=0, help="of the first file")
    parser.add_argument("--keep-going", action="store_true", help="list all kinds of failures")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="launchscope-fuzz-"))
    path = folder / "trace"
    end = time.monotonic() + given.seconds
    slowest, tried, seed = 0.0, 0, given.seed
    failures: Counter[str] = Counter()
    while time.monotonic() < end:
        for kind, content in bases().items():
            path.write_bytes(mutated(content, random.Random(f"{kind} {seed}")))
            begin = time.monotonic()
            try:
                holds(path)
            except Exception as error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                what = f"{type(error).__name__}: {error}"[:160]
                failures[f"{what} at {place.filename}:{place.lineno}"] += 1
                if failures.total() < 4 or not given.keep_going:
                    traceback.print_exc()
                    kept = folder / f"{kind.replace(' ', '-')}-{seed}"
                    kept.write_bytes(path.read_bytes())
                    print(f"{kind}, seed {seed}: kept as {kept}", file=sys.stderr)
                if not given.keep_going:
                    sys.exit(1)
            slowest = max(slowest, time.monotonic() - begin)
            tried += 1
        seed += 1
    print(f"{tried} files, slowest {slowest:.2f} s, {failures.total()} did harm")
    for text, count in failures.most_common():
        print(f"{count:6}  {text}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
