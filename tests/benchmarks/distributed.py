"""Runs `launchscope profile --nproc-per-node N` on plain training scripts of several ranks.

    python -m tests.benchmarks.distributed RESULTS [--ranks 4] [--at-once 3] [--table OUT.md]

One file per case, RESULTS/ID.json; a case that has one is not run again. `--cpu` runs the same with
gloo in rehearsal: counts, names and failures are those of ranks, times are not measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "benchmarks" / "workloads" / "ranks_train.py"
LIMIT_S = 90.0
RESERVED_S = 15.0  # of that, for the report after the time limit of `profile`
ENDING_S = 10.0  # for the launcher to end its ranks, which have sessions of their own
LAST_LINES = 60
HEADER = [
    "case", "expected", "came out", "as expected", "replay", "checked", "reason", "eager ms",
    "replay ms", "slowest", "by", "findings", "seconds",
]  # fmt: skip
CAUSES = {"data": "data_wait_ms", "host": "launch_overhead_ms", "work": "compute_ms"}


class Case(NamedTuple):
    """The words of the script, and what has to come out: "replayed" (measured and checked),
    "answered" (that, or a reason of the step itself), the cause of the slow rank, "killed",
    "timed out" or "no memory"."""

    id: str
    words: tuple[str, ...]
    expected: str


CASES = [
    *(
        Case(kind, (kind,), "replayed")
        for kind in ("ddp-mlp", "ddp-gpt", "fsdp-gpt", "fsdp-gpt-whole", "fsdp-gpt-mixed")
    ),
    Case("tensor-gpt", ("tensor-gpt",), "replayed"),
    Case("pipeline", ("pipeline",), "answered"),
    *(Case(f"late-{why}", ("ddp-gpt", "--late", why), cause) for why, cause in CAUSES.items()),
    Case("killed", ("ddp-gpt", "--ends", "killed"), "killed"),
    Case("time-out", ("ddp-gpt", "--ends", "still"), "timed out"),
    Case("memory", ("ddp-gpt", "--ends", "memory"), "no memory"),
]
# A replay that the ranks could not agree on says nothing of the step.
NO_ANSWER = ("ranks_apart", "hung", "not_run", "another_rank_failed", None)


def facts_of(profile: dict[str, Any]) -> dict[str, Any]:
    """What the Profile of a rank says, as values."""
    replay, metrics, verdict = profile["replay"], profile["metrics"], profile["verdict"]
    return {
        "device": profile["environment"]["device"],
        "torch": profile["environment"]["torch"],
        "mode": profile["mode"],
        "verdict": verdict and verdict["recommendation"],
        "replay": replay["status"],
        "reason": replay["reason"],
        "checked": replay["correct"],
        "gain_unknown": profile["facts"].get("gain_unknown"),
        "metrics": {name: each["value"] for name, each in metrics.items()},
        "findings": [finding["code"] for finding in profile["findings"]],
        "notes": profile["notes"],
    }


def finish(
    command: Sequence[str], inside: Path, variables: dict[str, str], limit_s: float
) -> int | None:
    """The exit status; None if it was still running at the limit."""
    with (inside / "stdout").open("wb") as out, (inside / "stderr").open("wb") as err:
        child = subprocess.Popen(
            command, cwd=inside, env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            start_new_session=True,
        )  # fmt: skip
    try:
        return child.wait(limit_s)
    except subprocess.TimeoutExpired:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(ENDING_S)
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def last_lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines()[-LAST_LINES:]


def run(case: Case, count: int, limit_s: float, *, cpu: bool) -> dict[str, Any]:
    """Profile the script of a case on that many ranks, and say how that went."""
    with tempfile.TemporaryDirectory() as name:
        inside = Path(name)
        (inside / SCRIPT.name).write_bytes(SCRIPT.read_bytes())
        words = [SCRIPT.name, *case.words, *(["--cpu"] if cpu else [])]
        options = ["--nproc-per-node", str(count), "--keep-trace", "-o", "report.json"]
        options += ["--timeout", str(limit_s - RESERVED_S)]
        command = [sys.executable, "-m", "launchscope", "profile", *options, *words]
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        own = {"PYTHONPATH": path, "TMPDIR": name, "LAUNCHSCOPE_NO_CACHE": "1"}
        began = time.monotonic()
        status = finish(command, inside, os.environ | own, limit_s)
        report = inside / "report.json"
        result: dict[str, Any] = {
            "id": case.id,
            "command": shlex.join(["launchscope", "profile", *options, *words]),
            "cpu": cpu,
            "count": count,
            "exit": status,
            "seconds": round(time.monotonic() - began, 1),
            "report": None,
            "ranks": None,
            "of_ranks": {
                path.parent.name: facts_of(json.loads(path.read_text()))
                for path in sorted(inside.glob("**/rank-*/profile.json"))
            },
            "stdout": last_lines(inside / "stdout"),
            "stderr": last_lines(inside / "stderr"),
        }
        if report.exists():
            profile = json.loads(report.read_text())
            left_out = ("timelines",)
            ranks = profile["ranks"]
            result["report"] = facts_of(profile)
            result["ranks"] = {key: each for key, each in ranks.items() if key not in left_out}
        result["came_out"] = came_out(result)
        return result


def came_out(result: dict[str, Any]) -> str:
    """What a result comes to, in one word or two."""
    if result["exit"] is None:
        return "no end"
    problems = [row["problem"] for row in (result["ranks"] or {"rows": []})["rows"]]
    if result["report"] is None:
        return "no report"
    if any(problems):
        return "rank lost" if not all(problems) else "ranks lost"
    report = result["report"]
    if report["mode"] == "rehearsal":
        return "rehearsed"
    checked = report["checked"]["status"]
    return f"{report['replay']}, {checked}" if report["replay"] == "measured" else report["replay"]


def as_expected(case: Case, result: dict[str, Any]) -> bool:
    report: dict[str, Any] | None = result["report"]
    outcome: str = result["came_out"]
    if report is None:
        return False
    if case.expected == "killed":
        rows = {row["rank"]: row for row in result["ranks"]["rows"]}
        kept: bool = result["cpu"] or rows[0]["iteration_ms"] is not None
        return kept and not rows[0]["problem"] and was_killed(result)
    if case.expected == "timed out":
        rows = {row["rank"]: row for row in result["ranks"]["rows"]}
        measured: bool = result["cpu"] or rows[0]["iteration_ms"] is not None
        return measured and result["exit"] is not None
    if result["exit"] != 0 or any(row["problem"] for row in result["ranks"]["rows"]):
        return False
    if result["cpu"]:
        counts = {row["device_ops_per_step"] for row in result["ranks"]["rows"]}
        alike = case.expected == "compute_ms" or case.id == "pipeline" or len(counts) == 1
        return outcome == "rehearsed" and None not in counts and alike
    if case.expected == "no memory":
        reasons = [
            each["reason"] and each["reason"]["code"] for each in result["of_ranks"].values()
        ]
        return "out_of_memory" in reasons and report["metrics"].get("iteration_ms") is not None
    if case.expected in CAUSES.values():
        slowest = result["ranks"]["slowest"], result["ranks"]["slowest_by"]
        return slowest == ("rank 1", case.expected)
    if case.expected == "answered" and report["replay"] not in ("measured", "what_if"):
        code: str | None = (report["reason"] or {"code": None})["code"]
        return code not in NO_ANSWER
    return bool(outcome == "measured, verified")


def was_killed(result: dict[str, Any]) -> bool:
    """Whether the report says that rank 1 was ended by SIGKILL: of a pass where one was killed
    after its step was timed, otherwise of the rank."""
    of_rank = result["of_ranks"].get("rank-1")
    if of_rank is not None and of_rank["reason"] is not None:
        died = {"code": "process_died", "details": {"exit_code": -signal.SIGKILL}}
        return bool(of_rank["reason"] == died)
    problems = [row["problem"] or "" for row in result["ranks"]["rows"] if row["rank"] == 1]
    return any("SIGKILL" in text for text in [*problems, *result["ranks"]["notes"]])


def cells(case: Case, result: dict[str, Any]) -> list[str]:
    fine = "yes" if as_expected(case, result) else "NO"
    names = [case.id, case.expected, result["came_out"], fine]
    seconds = f"{result['seconds']:.0f}"
    report = result["report"]
    if report is None:
        return [*names, *[""] * (len(HEADER) - 5), seconds]
    times = [report["metrics"].get(name) for name in ("step_ms", "replay_ms")]
    return [
        *names,
        report["replay"],
        report["checked"]["status"] if report["checked"] else "",
        report["reason"]["code"] if report["reason"] else "",
        *("" if each is None else f"{each:.2f}" for each in times),
        result["ranks"]["slowest"] or "",
        result["ranks"]["slowest_by"] or "",
        " ".join(report["findings"]),
        seconds,
    ]


def table(results: Path, output: Path, count: int) -> None:
    """Write the table of the runs on that many ranks, and print it."""
    found = [(case, results / f"{case.id}.json") for case in CASES]
    rows = [(case, json.loads(path.read_text())) for case, path in found if path.exists()]
    reports = [result["report"] for _, result in rows if result["report"]]
    devices = sorted({f"{each['device'] or 'no GPU'}, PyTorch {each['torch']}" for each in reports})
    lines = [HEADER, ["---"] * len(HEADER), *(cells(*row) for row in rows)]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    backend = "gloo in rehearsal" if any(result["cpu"] for _, result in rows) else "NCCL"
    title = f"# {count} ranks, {backend}\n\n{'; '.join(devices)}; one run of each case.\n\n"
    output.write_text(f"{title}{text}\n")
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--ranks", type=int, default=2, metavar="N", help="of every case")
    parser.add_argument("--cpu", action="store_true", help="gloo, in rehearsal")
    parser.add_argument("--only", nargs="+", choices=[case.id for case in CASES], metavar="ID")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="cases at a time")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="S", help="for one case")
    parser.add_argument("--table", type=Path, metavar="OUT.md")
    arguments = parser.parse_args()
    arguments.results.mkdir(parents=True, exist_ok=True)

    def one(case: Case) -> None:
        path = arguments.results / f"{case.id}.json"
        if path.exists():
            return
        result = run(case, arguments.ranks, arguments.limit, cpu=arguments.cpu)
        path.write_text(json.dumps(result, indent=1) + "\n")
        mark = "as expected" if as_expected(case, result) else "NOT AS EXPECTED"
        print(f"{case.id}: {result['came_out']}, {mark}, {result['seconds']:.0f} s", flush=True)

    wanted: Sequence[Case] = [case for case in CASES if case.id in (arguments.only or [case.id])]
    with ThreadPoolExecutor(arguments.at_once) as pool:
        for running in [pool.submit(one, case) for case in wanted]:
            running.result()
    if arguments.table:
        table(arguments.results, arguments.table, arguments.ranks)


if __name__ == "__main__":
    main()
