"""Fills the seconds that a GPU is there for with verdicts and truths, one script after the other.

    python -m tests.benchmarks.corpus.campaign FOLDER RESULTS --budget 560
    python -m tests.benchmarks.corpus.campaign FOLDER CROWDED --verdicts --at-once 12
    python -m tests.benchmarks.corpus.campaign FOLDER RESULTS --verdicts --only ID ...
    python -m tests.benchmarks.corpus.accuracy RESULTS tests/benchmarks/results/by_hand.json

FOLDER is what `obtain` wrote. Each script that was captured by hand runs under `launchscope
profile`, and right behind it both of its loops are timed (`by_hand.py`). The results are
RESULTS/verdicts/ID.json and RESULTS/truths/ID.json; what has a result is not run again, so the
same command goes on where the last one was stopped. `--verdicts` leaves the truths out.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.corpus.by_hand import Plan, truth
from tests.benchmarks.corpus.edits import ByHand, EditError, available, scripts
from tests.benchmarks.corpus.scripts import (
    Job,
    Script,
    add_options,
    chosen,
    line,
    run,
    run_jobs,
)

VERDICT_S, TRUTH_S = 45.0, 25.0  # what most of them end within


def verdict_job(script: Script, folder: Path) -> Job:
    return Job(
        f"verdicts/{script.id}",
        lambda place, limit_s: run(script, folder, limit_s, place),
        VERDICT_S,
    )


def truth_job(script: Script, by_hand: ByHand, folder: Path) -> Job:
    def result(place: dict[str, str], limit_s: float) -> dict[str, Any]:
        limited = Plan(limit_s=min(Plan().limit_s, limit_s))
        try:
            found = truth(script, by_hand, folder, limited, place)
        except (EditError, RuntimeError, OSError) as error:
            found = {"kind": by_hand.kind, "error": str(error)}
        return {"id": script.id, **found}

    return Job(f"truths/{script.id}", result, TRUTH_S)


def varied(scripts: Sequence[Script], by_hand: Mapping[str, ByHand]) -> list[Script]:
    """Those that were captured by hand: the first of each kind, then the second of each."""
    before: Counter[str] = Counter()
    turns: dict[str, int] = {}
    for script in scripts:
        if script.id in by_hand:
            kind = by_hand[script.id].kind
            turns[script.id] = before[kind]
            before[kind] += 1
    wanted = [script for script in scripts if script.id in turns]
    return sorted(wanted, key=lambda script: turns[script.id])


def said(result: dict[str, Any]) -> str:
    if "exit" in result:
        return line(result)
    if "error" in result:
        return f"{result['id']}: no truth: {result['error']}"
    agree = "" if result["losses"]["agree"] else ", losses differ"
    return (
        f"{result['id']}: {result['removed_pct']:.0f} % removed of {result['eager_ms']:.2f} ms"
        f"{agree}, {result['seconds']:.0f} s"
    )


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path)
    add_options(parser, limit_s=120.0)
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--verdicts", action="store_true", help="no truths")
    parts.add_argument("--truths", action="store_true", help="no verdicts")
    arguments = parser.parse_args(words)
    by_hand, known = available(), scripts()
    # The whole sample can be named; left out, those with a truth run.
    wanted = chosen(parser, arguments, [*known.values()])
    if not arguments.only:
        wanted = varied(wanted, by_hand)
    jobs: list[Job] = []
    for script in wanted:
        if not arguments.truths:
            jobs.append(verdict_job(script, arguments.folder))
        if not arguments.verdicts and script.id in by_hand:
            jobs.append(truth_job(script, by_hand[script.id], arguments.folder))
    run_jobs(jobs, arguments, said)


if __name__ == "__main__":
    main()
