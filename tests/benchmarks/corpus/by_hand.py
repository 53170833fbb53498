"""Compares what launchscope said about scripts of the corpus with captures that were made by hand.

`edits/ID.json` has the changes that a person makes to run the script's step as a CUDA graph with
plain PyTorch: the lines to look for, and the lines to put there. `both` makes a script countable
(it calls `step_done` of stopwatch.py after each step, and evaluates less often); `captured` is the
change itself. `python -m tests.benchmarks.corpus.by_hand FOLDER RESULTS CORPUS_RESULTS` runs each
script with and without that change, in turns and from the same seed, and writes RESULTS/ID.json.
A script that has a result is not run again unless it failed.
FOLDER is what `obtain` wrote, CORPUS_RESULTS what the corpus's own run wrote.

An iteration's time is the median of blocks of iterations. What removing 15 % or more of it means
depends on what launchscope said:

- adopt and adopt_after_fixes agree if the capture by hand removes 15 % or more, stay_eager if it
  removes less.
- inconclusive agrees if the capture removes a share within the bounds that launchscope gave.
- unsafe says nothing about the gain, so there is nothing to compare.

The replay agrees if launchscope's time and that of the graph by hand are within 10 %. The losses
agree if those of the captured step are no further from eager's than ten times the distance of two
eager runs, or than 0.1 % of a typical loss: capturable optimizers round differently.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

from tests.benchmarks.corpus.__main__ import Script, environment, finish, prepare, sample
from tests.benchmarks.corpus.table import figure, results

EDITS = Path(__file__).parent / "edits"
STOPWATCH = "LAUNCHSCOPE_STOPWATCH"
COMPARED, TIMED, LIMIT_S = 40, 300, 2.0  # iterations, iterations, seconds of timing
PROCESS_S = 100.0
THRESHOLD_PCT = 15.0
REPLAY_PCT = 10.0
TIMES_APART, APART = 10, 1e-3
LAST_LINES = 12
HEADER = [
    "script", "verdict", "eager ms", "captured ms", "removed %", "said %", "replay ms", "said ms",
    "losses apart", "eager again", "losses", "verdict agrees", "replay agrees",
]  # fmt: skip


class EditError(Exception):
    """An edit does not fit the script."""


class Edit(NamedTuple):
    """Where `find` stands in the file, `put` takes its place. Relative to the script's folder."""

    file: str
    find: list[str]
    put: list[str]


class ByHand(NamedTuple):
    """`note` says what the person has to do besides calling the step through a graph. `block` is
    the number of iterations that are timed together."""

    id: str
    note: str
    both: list[Edit]
    captured: list[Edit]
    block: int


def read(path: Path) -> ByHand:
    stored = json.loads(path.read_text())
    both, captured = ([Edit(**each) for each in stored[part]] for part in ("both", "captured"))
    return ByHand(path.stem, stored["note"], both, captured, stored.get("block", 10))


def edited(source: str, edit: Edit) -> str:
    """The source with the edit. Raises EditError unless its place is there exactly once."""
    old, new = "\n".join(edit.find), "\n".join(edit.put)
    count = source.count(old)
    if not old or count != 1:
        raise EditError(f"{edit.file}: {count} places have {edit.find[0]!r} and what follows")
    return source.replace(old, new)


def apply(edits: Sequence[Edit], inside: Path) -> None:
    """Edit the files of a script. Raises EditError also if one is no longer Python."""
    for edit in edits:
        path = inside / edit.file
        source = edited(path.read_text(), edit)
        path.write_text(source)
    for name in sorted({edit.file for edit in edits}):
        try:
            ast.parse((inside / name).read_text(), name)
        except SyntaxError as error:
            raise EditError(f"{name}, line {error.lineno}: {error.msg}") from error


class Plan(NamedTuple):
    """How long each run of a script is."""

    rounds: int = 2
    compared: int = COMPARED
    timed: int = TIMED
    limit_s: float = LIMIT_S
    process_s: float = PROCESS_S


def one_run(
    script: Script, prepared: Path, edits: Sequence[Edit], block: int, plan: Plan
) -> dict[str, Any]:
    """What the stopwatch wrote about one run of the edited script in a fresh copy."""
    with tempfile.TemporaryDirectory() as name:
        work, output, log = Path(name, "repository"), Path(name, "result.json"), Path(name, "log")
        shutil.copytree(prepared, work)
        inside = work / script.folder
        apply(edits, inside)
        settings = json.dumps([str(output), plan.compared, plan.timed, plan.limit_s, block])
        variables = environment(inside, script) | {STOPWATCH: settings, "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, *script.arguments(gpu=torch.cuda.is_available())]
        ended = finish(command, inside, variables, plan.process_s, log)
        if output.exists():
            found: dict[str, Any] = json.loads(output.read_text())
            return found
        said = "\n".join(log.read_text(errors="replace").splitlines()[-LAST_LINES:])
        how = f"ran for {plan.process_s:.0f} s" if ended is None else f"ended with status {ended}"
        raise RuntimeError(f"the script {how} before its iterations were timed:\n{said}")


def apart(one: Sequence[float], other: Sequence[float]) -> float:
    """The largest distance of two sequences of losses, as a share of a typical one. Raises
    RuntimeError if a loss is infinite or not a number."""
    if not all(map(math.isfinite, (*one, *other))):
        raise RuntimeError("a loss is infinite or not a number, so the losses cannot be compared")
    typical = median(abs(loss) for loss in other)
    return max(abs(a - b) for a, b in zip(one, other)) / max(typical, 1e-12)


def within(removed_pct: float, said: dict[str, Any]) -> bool | None:
    """Whether launchscope's verdict and the gain of the capture agree; None if it claims none."""
    verdict, bounds = said["verdict"], said.get("removable_between_pct")
    if verdict in ("adopt", "adopt_after_fixes"):
        return removed_pct >= THRESHOLD_PCT
    if verdict == "stay_eager":
        return removed_pct < THRESHOLD_PCT
    if verdict == "inconclusive" and bounds:
        return bool(bounds[0] <= removed_pct <= bounds[1])
    return None


def compared(
    eager: Sequence[dict[str, Any]], captured: Sequence[dict[str, Any]], said: dict[str, Any] | None
) -> dict[str, Any]:
    """The result of a script from its runs. `said` is launchscope's Profile, as values. Raises
    RuntimeError if the graph took no part in the timed iterations."""
    on_gpu = captured[0]["device"] != "CPU"
    for run in captured:
        # A step that alternates with another one is replayed in some of the iterations only.
        replays = sum(run["replays"])
        if on_gpu and (run["replay_ms"] is None or replays < 0.9 * run["iterations"]):
            raise RuntimeError(
                f"{replays} replays in {run['iterations']} iterations of the edited "
                f"script, and {sum(run['aside'])} steps beside the graph"
            )
    if any(run["replays"] for run in eager):
        raise RuntimeError("the script that should run eagerly has a captured step")

    def ms(runs: Sequence[dict[str, Any]]) -> float:
        blocks_ms: list[float] = [block for run in runs for block in run["blocks_ms"]]
        return median(blocks_ms)

    def overall_ms(runs: Sequence[dict[str, Any]]) -> float:
        times_ms: list[float] = [run["overall_ms"] for run in runs]
        return median(times_ms)

    removed_pct = 100 * (1 - ms(captured) / ms(eager))
    wanted = eager[0]["losses"]
    again = max((apart(run["losses"], wanted) for run in eager[1:]), default=0.0)
    far = max(apart(run["losses"], wanted) for run in captured)
    replay_ms = median(run["replay_ms"] for run in captured) if on_gpu else None
    said_ms = said and said["replay_ms"]
    return {
        "device": captured[0]["device"],
        "torch": captured[0]["torch"],
        "eager_ms": ms(eager),
        "captured_ms": ms(captured),
        "removed_pct": removed_pct,
        "removed_in_each_round_pct": [
            100 * (1 - ms([after]) / ms([before])) for before, after in zip(eager, captured)
        ],
        # Also what most blocks leave out: ends of epochs, and what a script does beside steps.
        "removed_of_everything_pct": 100 * (1 - overall_ms(captured) / overall_ms(eager)),
        "replay_ms": replay_ms,
        "losses": {
            "iterations": len(wanted),
            "captured": far,
            "eager_again": again,
            "agree": far <= max(TIMES_APART * again, APART),
        },
        "said": said,
        "verdict_agrees": within(removed_pct, said) if said and on_gpu else None,
        "replay_agrees": (
            abs(replay_ms / said_ms - 1) <= REPLAY_PCT / 100 if replay_ms and said_ms else None
        ),
        "runs": {"eager": eager, "captured": captured},
    }


def measured(
    script: Script, by_hand: ByHand, folder: Path, said: dict[str, Any] | None, plan: Plan
) -> dict[str, Any]:
    runs: dict[str, list[dict[str, Any]]] = {"eager": [], "captured": []}
    edits = {"eager": by_hand.both, "captured": [*by_hand.both, *by_hand.captured]}
    with tempfile.TemporaryDirectory() as name:
        prepare(script, folder, Path(name))
        prepared = Path(name, "repository")
        for _ in range(plan.rounds):
            for how, found in runs.items():
                found.append(one_run(script, prepared, edits[how], by_hand.block, plan))
    return compared(runs["eager"], runs["captured"], said)


def cells(result: dict[str, Any]) -> list[str]:
    """A row of the table."""
    if "error" in result:
        return [result["id"], "failed", *[""] * (len(HEADER) - 2)]
    said, losses = result["said"] or {}, result["losses"]

    def answer(value: bool | None) -> str:
        return "not compared" if value is None else "yes" if value else "no"

    return [
        result["id"],
        said.get("verdict") or "none",
        figure(result["eager_ms"], 2),
        figure(result["captured_ms"], 2),
        figure(result["removed_pct"], 0),
        figure(said.get("removable_pct"), 0),
        figure(result["replay_ms"], 3),
        figure(said.get("replay_ms"), 3),
        f"{losses['captured']:.1e}",
        f"{losses['eager_again']:.1e}",
        answer(losses["agree"]),
        answer(result["verdict_agrees"]),
        answer(result["replay_agrees"]),
    ]


def markdown(found: Sequence[dict[str, Any]]) -> str:
    rows = [HEADER, ["---"] * len(HEADER), *map(cells, found)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def main() -> int:
    available = {path.stem: path for path in sorted(EDITS.glob("*.json"))}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("corpus_results", type=Path)
    parser.add_argument("--only", nargs="+", default=list(available), metavar="ID")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="scripts at a time")
    parser.add_argument("--rounds", type=int, default=Plan().rounds, metavar="N")
    parser.add_argument("--compared", type=int, default=COMPARED, metavar="N", help="iterations")
    parser.add_argument("--timed", type=int, default=TIMED, metavar="N", help="iterations")
    parser.add_argument("--limit", type=float, default=PROCESS_S, metavar="S", help="for one run")
    parser.add_argument("--table", type=Path, metavar="OUTPUT.json", help="with a table beside it")
    arguments = parser.parse_args()
    unknown = set(arguments.only) - set(available)
    if unknown:
        parser.error(f"no edits for {', '.join(sorted(unknown))}")
    scripts = {script.id: script for script in sample()}
    profiles = {name: each["profile"] for name, each in results(arguments.corpus_results).items()}
    plan = Plan(arguments.rounds, arguments.compared, arguments.timed, process_s=arguments.limit)
    arguments.results.mkdir(parents=True, exist_ok=True)

    def one(name: str) -> dict[str, Any]:
        began, path = time.monotonic(), arguments.results / f"{name}.json"
        if path.exists() and "error" not in (stored := json.loads(path.read_text())):
            return dict(stored)
        by_hand, said = read(available[name]), profiles.get(name)
        result: dict[str, Any] = {"id": name, "note": by_hand.note}
        try:
            result |= measured(scripts[name], by_hand, arguments.folder, said, plan)
        except (EditError, RuntimeError, OSError) as error:
            result["error"] = str(error)
        result["seconds"] = round(time.monotonic() - began, 1)
        path.write_text(json.dumps(result, indent=1) + "\n")
        print(f"{name}: {result.get('error') or 'done'}, {result['seconds']:.0f} s", flush=True)
        return result

    # The ones with the longest iterations first, so that none of them is alone at the end.
    def iteration_ms(name: str) -> float:
        return (profiles.get(name) or {}).get("iteration_ms") or 0.0

    order = sorted(arguments.only, key=iteration_ms, reverse=True)
    with ThreadPoolExecutor(arguments.at_once) as pool:
        unsorted = list(pool.map(one, order))
    found = sorted(unsorted, key=lambda result: str(result["id"]))
    print(markdown(found), end="")
    if arguments.table:
        rows = [{key: result[key] for key in result if key != "runs"} for result in found]
        arguments.table.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
        arguments.table.with_suffix(".md").write_text(markdown(found))
    return 1 if any("error" in result for result in found) else 0


if __name__ == "__main__":
    sys.exit(main())
