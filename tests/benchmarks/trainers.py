"""The steps of Lightning and of the transformers Trainer with the adapters and without, on one GPU.

    python -m tests.benchmarks.trainers FILE [--rounds N] [--steps N] [--only LIBRARY]

FILE gets one JSON object. In each round each library's script of tests/gpu/trainers trains twice
from the same seed, eagerly and with the adapter, in an order that changes. The time of an iteration
is that of windows of 50, behind the first 150. The losses and the parameters at the end are
compared, also between two eager runs. `share_of_gain` is what the adapter takes off an iteration,
over what `launchscope profile` has measured that graphs would take off it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from launchscope.api import load

SCRIPTS = Path(__file__).parents[1] / "gpu/trainers"
WINDOW, SKIPPED = 50, 150
VALUES = ("iteration_ms", "replayed_iteration_ms", "removable_pct", "launches_per_step")


class Clock:
    """The times of windows of iterations, and the losses."""

    def __init__(self) -> None:
        self.windows: list[float] = []
        self.losses: list[Any] = []
        self._steps, self._begin = 0, 0.0

    def tick(self) -> None:
        self._steps += 1
        if self._steps < SKIPPED or (self._steps - SKIPPED) % WINDOW:
            return
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        now = time.perf_counter()
        if self._steps > SKIPPED:
            self.windows.append(1e3 * (now - self._begin) / WINDOW)
        self._begin = now


def lightning(clock: Clock, adapted: bool, steps: int) -> tuple[Any, Any]:
    import lightning.pytorch as pl

    from launchscope.integrations.lightning import GraphedSteps

    class Recorder(pl.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *_: Any) -> None:
            clock.losses.append(outputs["loss"].detach().clone())
            clock.tick()

    script: Any = importlib.import_module("tests.gpu.trainers.lightning_autoencoder")
    steps_of_graphs = GraphedSteps()
    callbacks = [Recorder(), *([steps_of_graphs] if adapted else [])]
    return script.train(callbacks, steps), steps_of_graphs.stats


def transformers(clock: Clock, adapted: bool, steps: int) -> tuple[Any, Any]:
    from transformers import TrainerCallback

    from launchscope.integrations.transformers import graph

    class Recorder(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.tick()

        def on_log(self, *_: Any, logs: Any = None, **__: Any) -> None:
            clock.losses += [logs["loss"]] if "loss" in logs else []

    script: Any = importlib.import_module("tests.gpu.trainers.huggingface")
    trainer = script.make_trainer([Recorder()], steps)
    graphed = graph(trainer) if adapted else None
    trainer.train()
    return trainer.model, None if graphed is None else graphed.stats


Train = Callable[[Clock, bool, int], tuple[Any, Any]]
LIBRARIES: dict[str, tuple[str, Train]] = {
    "lightning": ("lightning_autoencoder", lightning),
    "transformers": ("huggingface", transformers),
}


def run(train: Train, adapted: bool, steps: int) -> dict[str, Any]:
    torch.manual_seed(0)
    clock = Clock()
    model, stats = train(clock, adapted, steps)
    return {
        "ms": median(clock.windows),
        "losses": [float(loss) for loss in clock.losses],
        "parameters": torch.cat([p.detach().double().flatten() for p in model.parameters()]).cpu(),
        "stats": str(stats),
    }


def difference(one: dict[str, Any], other: dict[str, Any]) -> dict[str, float]:
    """The largest relative difference of a loss, and that of all parameters together."""
    pairs = zip(one["losses"], other["losses"], strict=True)
    norm = float((one["parameters"] - other["parameters"]).norm() / one["parameters"].norm())
    return {"loss": max(abs(a - b) / abs(a) for a, b in pairs), "parameters": norm}


def profile(script: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "profile.json"
        command = [sys.executable, "-m", "launchscope", "profile", "-o", str(out)]
        command.append(str(SCRIPTS / f"{script}.py"))
        result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if result.returncode:
            return {"failed": result.stderr[-2000:]}
        found = load(out)
    return {"replay": found.replay.status, **{name: found.value(name) for name in VALUES}}


def measure(library: str, rounds: int, steps: int) -> dict[str, Any]:
    script, train = LIBRARIES[library]
    eager: list[dict[str, Any]] = []
    adapted: list[dict[str, Any]] = []
    for number in range(rounds):
        for which in (False, True) if number % 2 else (True, False):
            (adapted if which else eager).append(run(train, which, steps))
    before, after = (median(r["ms"] for r in runs) for runs in (eager, adapted))
    result = {
        "eager_ms": [r["ms"] for r in eager],
        "adapted_ms": [r["ms"] for r in adapted],
        "gain_pct": 100 * (before - after) / before,
        "times_as_fast": before / after,
        "difference": [difference(a, b) for a, b in zip(eager, adapted)],
        "difference_of_eager_runs": [difference(eager[0], other) for other in eager[1:]],
        "losses": {"eager": eager[0]["losses"][-5:], "adapted": adapted[0]["losses"][-5:]},
        "stats": [r["stats"] for r in adapted],
    }
    if torch.cuda.is_available():
        result["device"] = torch.cuda.get_device_name()
        result["profile"] = found = profile(script)
        if found.get("removable_pct"):
            result["share_of_gain"] = result["gain_pct"] / found["removable_pct"]
    version = importlib.import_module(library).__version__
    return {"torch": torch.__version__, "version": version, "steps": steps, **result}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--only", choices=sorted(LIBRARIES))
    given = parser.parse_args()
    results: dict[str, Any] = {}
    for library in [given.only] if given.only else LIBRARIES:
        try:
            results[library] = measure(library, given.rounds, given.steps)
        except Exception as error:  # the other library's results are kept
            results[library] = {"failed": f"{type(error).__name__}: {error}"}
        given.file.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
