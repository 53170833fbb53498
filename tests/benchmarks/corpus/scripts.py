"""The scripts of the sample, each run in a copy of what `obtain` wrote, with the data that it looks
for; and what campaigns over them share. A job that has a result is not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

import torch

from tests.benchmarks.corpus.data import GENERATORS
from tests.benchmarks.corpus.obtain import place, stored

ROOT = Path(__file__).parents[3]
SAMPLES = ROOT / "sample_workloads"
SLACK_S = 60.0  # for launchscope to write its report after its time limit
LAST_LINES = 6


class Script(NamedTuple):
    """One script of the sample. It runs in `folder` of its repository. Relative to that, `data` has
    a generator for each place to write to, and `path` the folders to import from. Without a
    repository it is one of the sample workloads."""

    id: str
    kind: str
    style: str
    repository: str
    folder: str
    command: list[str]
    data: dict[str, str]
    packages: list[str]
    gpu: bool
    on_gpu: Sequence[str] = ()  # further arguments
    on_cpu: Sequence[str] = ()
    path: Sequence[str] = ()

    def arguments(self, *, gpu: bool) -> list[str]:
        return [*self.command, *(self.on_gpu if gpu else self.on_cpu)]


def sample(name: str = "sample") -> list[Script]:
    return [Script(**script) for script in stored(name)["scripts"]]


def workloads(steps: int | None = None) -> list[Script]:
    """The sample workloads as scripts of the corpus, with steps enough to compare so many."""
    words = [] if steps is None else ["--steps", str(2 * steps)]
    return [
        Script(f"sample-{path.stem}", "sample", "plain", "", "", [path.name, *words], {}, [], True)
        for path in sorted(SAMPLES.glob("*.py"))
        if not path.stem.startswith("_")
    ]


def obtained(profile: dict[str, Any]) -> str:
    """How the replay's time is known: measured, what_if, predicted or none."""
    status = profile["replay"]["status"]
    if status in ("measured", "what_if"):
        return str(status)
    predicted = profile["metrics"].get("predicted_replay_ms", {}).get("value")
    return "none" if predicted is None else "predicted"


def summary(profile: dict[str, Any]) -> dict[str, Any]:
    """What a Profile says, as values."""
    replay, step, verdict = profile["replay"], profile["step"], profile["verdict"]

    def value(name: str) -> float | None:
        figure: float | None = profile["metrics"].get(name, {}).get("value")
        return figure

    removable = profile["metrics"].get("removable_pct", {})
    return {
        "device": profile["environment"]["device"],
        "torch": profile["environment"]["torch"],
        "mode": profile["mode"],
        "replay": obtained(profile),
        "replay_status": replay["status"],
        "reason": replay["reason"] and replay["reason"]["code"],
        "parts": {part["scope"]: part["status"] for part in replay["scopes"]},
        "step": step and {name: step[name] for name in ("boundary", "period", "names", "scope")},
        "shapes_stable": profile["shapes"]["stable"],
        "iteration_ms": value("iteration_ms"),
        "step_ms": value("step_ms"),
        "replay_ms": value("replay_ms"),
        "replayed_iteration_ms": value("replayed_iteration_ms"),
        "source": profile["metrics"].get("replayed_iteration_ms", {}).get("source"),
        "launches": value("launches_per_step"),
        "verdict": verdict and verdict["recommendation"],
        "basis": verdict and verdict["basis"],
        "removable_pct": verdict and verdict["removable_pct"],
        "removable_between_pct": [removable.get("low"), removable.get("high")],
        "findings": [finding["code"] for finding in profile["findings"]],
    }


def prepare(script: Script, folder: Path, temporary: Path) -> Path:
    """Copy the repository and write the data. Returns the folder to run in."""
    work = temporary / "repository"
    source = place(folder, script.repository) if script.repository else SAMPLES
    shutil.copytree(source, work, ignore=shutil.ignore_patterns("recordings"))
    inside = work / script.folder
    for where, name in script.data.items():
        GENERATORS[name](inside / where)
    return inside


def environment(inside: Path, script: Script) -> dict[str, str]:
    """No windows, and no questions to a network."""
    folders = [str((inside / each).resolve()) for each in script.path] + [str(ROOT)]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")]),
        "MPLBACKEND": "Agg",
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "disabled",
        "LAUNCHSCOPE_NO_CACHE": "1",  # keep the person's last run
    }


def finish(
    command: list[str], inside: Path, variables: dict[str, str], limit_s: float, log: Path
) -> int | None:
    """The exit status; None if it was still running at the limit. Ends its children too."""
    with log.open("wb") as out:
        child = subprocess.Popen(
            command, cwd=inside, env=variables, stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        return child.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def launched(
    command: str,
    script: Script,
    folder: Path,
    limit_s: float,
    place: dict[str, str],
    *,
    in_git: bool = False,
) -> tuple[dict[str, Any], Any]:
    """`launchscope COMMAND` on the script once, with more variables: how that went, and what it
    saved as JSON."""
    with tempfile.TemporaryDirectory() as name:
        temporary = Path(name)
        inside = prepare(script, folder, temporary)
        if in_git:
            subprocess.run(["git", "init", "-q", temporary / "repository"], check=True)
        saved, log = temporary / "saved.json", temporary / "log"
        words = [
            *(sys.executable, "-m", "launchscope", command, "-q", "-o", str(saved)),
            *("--timeout", str(limit_s), *script.arguments(gpu=torch.cuda.is_available())),
        ]
        began = time.monotonic()
        exit_status = finish(
            words, inside, environment(inside, script) | place, limit_s + SLACK_S, log
        )
        result = {
            "id": script.id,
            "exit": exit_status,
            "seconds": round(time.monotonic() - began, 1),
        }
        if saved.exists():
            return result, json.loads(saved.read_text())
        lines = log.read_text(errors="replace").splitlines()
        said = [line[-300:] for line in lines if line.strip()][-LAST_LINES:]
        return {**result, "said": said}, None


def run(script: Script, folder: Path, limit_s: float, place: dict[str, str]) -> dict[str, Any]:
    """Profile the script once, with more variables, and say how that went."""
    result, profile = launched("profile", script, folder, limit_s, place)
    about = {"kind": script.kind, "style": script.style, "gpu": script.gpu}
    return {**result, **about, "profile": None if profile is None else summary(profile)}


def line(result: dict[str, Any]) -> str:
    """What a person sees of a result."""
    profile = result["profile"]
    found = f"{profile['replay']}, {profile['verdict']}" if profile else "no profile"
    return f"{result['id']}: {found}, {result['seconds']:.0f} s"


def add_options(parser: argparse.ArgumentParser, limit_s: float) -> None:
    """The options of a campaign over scripts, which may take `limit_s` each."""
    parser.add_argument("--only", nargs="+", default=[], metavar="ID")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="scripts at a time")
    parser.add_argument(
        "--gpus",
        type=int,
        default=0,
        metavar="N",
        help="share N GPUs; each script sees one of them",
    )
    parser.add_argument("--limit", type=float, default=limit_s, metavar="S", help="for one script")
    parser.add_argument(
        "--budget", type=float, default=float("inf"), metavar="S", help="start none later than this"
    )


def place_of(number: int, at_once: int, gpus: int) -> dict[str, str]:
    """The variables of one of the scripts that run at a time: its GPU, and its share of the
    cores."""
    found = {"CUDA_VISIBLE_DEVICES": str(number % gpus)} if gpus else {}
    if at_once > 1:
        found["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // at_once))
    return found


class Job(NamedTuple):
    """Its result is RESULTS/`name`.json. `run` gets the variables of its place on the machine and
    the seconds that it may take; it is not started with less than `seconds` left."""

    name: str
    run: Callable[[dict[str, str], float], dict[str, Any]]
    seconds: float = 0.0


def is_finished(path: Path) -> bool:
    """Whether there is a result, and not of a failure."""
    return path.exists() and not {"error", "failed"} & set(json.loads(path.read_text()))


def run_jobs(
    jobs: Sequence[Job],
    arguments: argparse.Namespace,
    line_of: Callable[[dict[str, Any]], str],
) -> None:
    """Write the result of each job that has none yet or failed, in this order."""
    free: Queue[dict[str, str]] = Queue()
    for number in range(arguments.at_once):
        free.put(place_of(number, arguments.at_once, arguments.gpus))
    began = time.monotonic()

    def one(job: Job) -> None:
        path = arguments.results / f"{job.name}.json"
        left_s = arguments.budget - (time.monotonic() - began)
        if is_finished(path) or left_s < job.seconds:
            return
        place = free.get()
        try:
            result = job.run(place, min(arguments.limit, left_s))
        finally:
            free.put(place)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result | {"at_once": arguments.at_once}, indent=1) + "\n")
        print(f"{time.monotonic() - began:4.0f} s  {line_of(result)}", flush=True)

    with ThreadPoolExecutor(arguments.at_once) as pool:
        for running in [pool.submit(one, job) for job in jobs]:
            running.result()


def chosen(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, scripts: Sequence[Script]
) -> list[Script]:
    """The scripts of --only in its order, or all."""
    known = {script.id: script for script in scripts}
    if unknown := set(arguments.only) - set(known):
        parser.error(f"not in the sample: {', '.join(sorted(unknown))}")
    return [known[name] for name in arguments.only] or list(scripts)
