"""What `graphed` gives and what it costs, on one GPU.

    python -m tests.benchmarks.graphed FILE [--only WORD...] [--seconds N] [--nanogpt CHECKOUT]

FILE gets one line of JSON per case. Another call with the same FILE goes on with the cases that it
lacks or that failed; no case begins after `--seconds` (250). `--only` takes parts of names.

First, `--at-once` processes (8) share what needs no quiet GPU: the situations, which train four
times: eagerly, eagerly again (eager's own noise), eagerly with the optimizers in the form that a
graph contains (the exact reference where that form differs from the script's), and graphed. They
also compile the models of the speed cases, for the cache. Then one process measures alone: the cost
of a call, the memory of several graphs, and the speed (`graphed_speed.py`).
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from launchscope.graphed import GraphedStep, GraphedWarning, graphed, judgment
from launchscope.graphed.arguments import unflatten
from launchscope.graphed.program import Program
from tests.benchmarks import graphed_speed
from tests.graphed_situations import SITUATIONS, Trajectory

PARAMETERS = (10, 100, 1000)
BATCHES = (8, 6, 4, 2)  # of the graphs whose memory is measured
STEPS = 200  # of a situation
GRACE_S = 120  # for the case that is under way when the time is over


class EagerInForm(Program):
    """In place of a graph: runs the step eagerly, with the optimizers as a graph contains them."""

    def capture(self, function: Callable[..., Any], form: Any) -> Any:
        self._call = function, form
        self._result = self._run(self._leaves)
        return self._result

    def _run(self, leaves: list[Any]) -> Any:
        function, form = self._call
        args, kwargs = unflatten(form, iter(leaves))
        optimizers = self.kind.form
        optimizers.refresh()
        device = optimizers.on_device
        before = None if device is None else device.clone()
        with optimizers:
            result = function(*args, **kwargs)
        if before is not None and device is not None:
            optimizers.count((device - before).cpu())
        return result

    def run_last(self) -> None: ...

    def replay(self, leaves: list[Any], current: list[Any], copied: bool) -> Any:
        return self._run(leaves)

    def outputs(self, leaves: list[Any], copied: bool) -> Any:
        return self._result

    def release(self) -> None: ...


def differences(one: Trajectory, other: Trajectory) -> dict[str, Any]:
    """Whether two trajectories are equal, and the largest relative differences."""
    losses = [
        abs(a - b) / max(abs(b), 1e-12)
        for a, b in zip(one.losses, other.losses)
        if not (a == b or (a != a and b != b))
    ]
    weights = [
        float((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-12))
        for a, b in zip(one.weights, other.weights)
    ]
    same = all(
        torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())
        for a, b in zip(one.weights, other.weights)
    )
    return {
        "equal": not losses and same and len(one.losses) == len(other.losses),
        "loss": max(losses, default=0.0),
        "weights": max(weights, default=0.0),
        "first_loss_that_differs": next(
            (i for i, (a, b) in enumerate(zip(one.losses, other.losses)) if a != b and a == a), None
        ),
    }


def train(name: str, steps: int, how: str) -> tuple[Trajectory, float, list[GraphedStep[Any, Any]]]:
    """One run of a situation, with its seconds and its graphed steps."""
    made: list[GraphedStep[Any, Any]] = []

    def wrap(step: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        if how == "eager":
            return step
        checked = {**options, "check": 0} if how == "form" else options
        made.append(graphed(**checked)(step))
        return made[-1]

    if how == "form":
        setattr(judgment, "Program", EagerInForm)  # noqa: B010 - it is imported there
    try:
        torch.cuda.synchronize()
        start = time.perf_counter()
        result = SITUATIONS[name].run(wrap, steps)
        torch.cuda.synchronize()
        return result, time.perf_counter() - start, made
    finally:
        setattr(judgment, "Program", Program)  # noqa: B010


def situation(name: str, steps: int) -> dict[str, Any]:
    eager, eager_s, _ = train(name, steps, "eager")
    again, again_s, _ = train(name, steps, "eager")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        replayed, graphed_s, made = train(name, steps, "graphed")
    codes = {r.code for step in made for r in step.stats.reasons} - {"warmup"}
    told = [str(w.message) for w in caught if w.category is GraphedWarning]
    result: dict[str, Any] = {
        "against_eager": differences(replayed, eager),
        "eager_against_eager": differences(again, eager),
        "stats": [str(step.stats) for step in made],
        "replayed": sum(step.stats.replayed for step in made),
        "warnings": told,
        "as_announced": [
            any(step.stats.replayed for step in made) == SITUATIONS[name].replays,
            codes == {SITUATIONS[name].code} - {None},
        ],
        # Of the whole loop: with the warm-up, the captures, and what the loop does between steps.
        "eager_ms": 1e3 * min(eager_s, again_s) / steps,
        "graphed_ms": 1e3 * graphed_s / steps,
    }
    if not result["against_eager"]["equal"]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                form, _, _ = train(name, steps, "form")
            result["against_form"] = differences(replayed, form)
        except Exception:
            result["against_form"] = {"error": traceback.format_exc()}
    return result


def cost(count: int) -> dict[str, Any]:
    """Microseconds on the host of a call, beside those of the replay of its graph.

    The optimizer is fused; the parameters are tiny, so that the GPU is never the limit of one call.
    Calls in a row wait for the GPU where its work takes longer than the guards of the next call.
    """
    model = nn.ModuleList([nn.Linear(4, 4) for _ in range(count // 2)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    x = torch.randn(4, 4, device="cuda")

    @graphed
    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        total = torch.zeros((), device="cuda")
        for layer in model:
            total = total + layer(x).square().mean()
        total.backward()
        optimizer.step()
        return total.detach()

    for _ in range(6):
        step(x)
    [program] = step._programs()
    kind = step._all_kinds()[-1]
    graph = program.parts[0].graph

    def once(call: Callable[[], Any]) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        return 1e6 * (time.perf_counter() - start)

    calls, replays, guards = [], [], []
    for _ in range(200):
        calls.append(once(lambda: step(x)))
        replays.append(once(graph.replay))
        guards.append(once(kind.holds))
    return {
        "call_us": median(calls),
        "replay_us": median(replays),
        "guard_us": median(guards),
        "beyond_the_replay_us": median(calls) - median(replays),
    }


def memory(graphs: int, shared: bool) -> dict[str, float]:
    """MiB on the GPU of a small GPT with that many graphs, each of another batch size, in one pool
    or each in its own. Without graphs: of the eager step."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_reserved()
    model = graphed_speed.sample("small_gpt").GPT(6, 256, 8, 128).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def train(tokens: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    step: Any = graphed(check=0)(train) if graphs else train
    for size in BATCHES[: graphs or None]:
        for _ in range(6):
            step(torch.zeros((size, 129), dtype=torch.long, device="cuda"))
        for program in [] if shared or not graphs else step._programs():
            program.pool = None  # no later graph finds it
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_reserved() - before
    torch.cuda.empty_cache()
    reserved = torch.cuda.memory_reserved() - before
    if graphs:
        assert step.stats.graphs == graphs, step.stats
        step.reset()
    return {"reserved_mib": reserved / 2**20, "peak_mib": peak / 2**20}


def memories() -> dict[str, Any]:
    ways = [(0, True), (1, True), *((n, way) for n in (2, 4) for way in (True, False))]
    return {f"{n} graphs, {'one pool' if way else 'own pools'}": memory(n, way) for n, way in ways}


def line(result: dict[str, Any]) -> str:
    if "error" in result:
        return f"ERROR {result['error'].strip().splitlines()[-1]}"
    if "against_eager" not in result:
        return json.dumps(result)
    eager, form = result["against_eager"], result.get("against_form", {})
    noise = result["eager_against_eager"]
    text = (
        "equal" if eager["equal"]
        else f"equal in form, {eager['weights']:.0e} to eager" if form.get("equal")
        else f"differs by {eager['weights']:.0e} (eager's noise: {noise['weights']:.0e})"
    )  # fmt: skip
    kept = "" if all(result["as_announced"]) else " NOT AS ANNOUNCED"
    times = f"{result['eager_ms']:.2f} -> {result['graphed_ms']:.2f} ms"
    return f"{text}{kept}; {times}; {' | '.join(result['stats'])}"


Cases = dict[str, Callable[[], dict[str, Any]]]


def together(nanogpt: Path | None) -> Cases:
    """The cases that do not need the GPU alone, the long ones first."""
    compiled: Cases = {
        f"compile_{name}": functools.partial(graphed_speed.compile_only, make)
        for name, make in graphed_speed.makers(nanogpt).items()
    }
    return compiled | {name: functools.partial(situation, name, STEPS) for name in SITUATIONS}


def alone(nanogpt: Path | None) -> Cases:
    costs: Cases = {f"cost_{n}_parameters": functools.partial(cost, n) for n in PARAMETERS}
    speeds: Cases = {
        f"speed_{name}": functools.partial(graphed_speed.measured, make)
        for name, make in graphed_speed.makers(nanogpt).items()
    }
    return {"memory": memories} | costs | speeds


def run_here(names: list[str], cases: Cases, file: Path, until: float) -> None:
    for name in names:
        if time.time() > until:
            return
        result: dict[str, Any] = {"case": name, "torch": torch.__version__}
        result["device"] = torch.cuda.get_device_name()
        start = time.perf_counter()
        try:
            result |= cases[name]()
        except Exception:
            result["error"] = traceback.format_exc()
        result["took_s"] = time.perf_counter() - start
        with file.open("a") as stream:
            stream.write(json.dumps(result) + "\n")
        print(f"{name}: {line(result)}", flush=True)


def finished(file: Path) -> set[str]:
    lines = file.read_text().splitlines() if file.exists() else []
    return {result["case"] for result in map(json.loads, lines) if "error" not in result}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD")
    parser.add_argument("--seconds", type=float, default=250.0)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--nanogpt", type=Path, metavar="CHECKOUT")
    parser.add_argument("--here", nargs="+", help="cases to run in this process")
    parser.add_argument("--until", type=float, default=0.0)
    chosen = parser.parse_args()
    groups = together(chosen.nanogpt), alone(chosen.nanogpt)
    if chosen.here:
        run_here(chosen.here, groups[0] | groups[1], chosen.file, chosen.until)
        return
    until = time.time() + chosen.seconds
    done = finished(chosen.file)
    more = ["--nanogpt", str(chosen.nanogpt)] if chosen.nanogpt else []
    command = [sys.executable, "-m", "tests.benchmarks.graphed", str(chosen.file), *more]
    for cases, at_once in zip(groups, (chosen.at_once, 1)):
        left = [n for n in cases if n not in done and any(word in n for word in chosen.only)]
        shares = [left[number::at_once] for number in range(at_once)]
        children = [
            subprocess.Popen([*command, "--until", str(until), "--here", *share])
            for share in shares if share
        ]  # fmt: skip
        for child in children:
            try:
                child.wait(max(0.0, until - time.time()) + GRACE_S)
            except subprocess.TimeoutExpired:
                child.kill()
    missing = (set(groups[0]) | set(groups[1])) - finished(chosen.file)
    print(f"{len(missing)} cases are left: {' '.join(sorted(missing))}")


if __name__ == "__main__":
    main()
