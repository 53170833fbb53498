"""How `graphed` compares with eager: every situation bit for bit, and what a call costs.

    python -m tests.benchmarks.graphed FOLDER [--only NAME...] [--at-once N] [--steps N]

Writes one JSON file per case into FOLDER, and skips the cases that have one. Each case is a process
of its own, which trains four times: eagerly, eagerly again (eager's own noise), eagerly with the
optimizers in the form that a graph contains (the exact reference where that form differs from the
person's), and graphed.
"""

from __future__ import annotations

import argparse
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
from torch import nn

from launchscope.graphed import GraphedStep, GraphedWarning, graphed, judgment
from launchscope.graphed.arguments import flatten, gradient_of, key_of, unflatten
from launchscope.graphed.program import Program
from tests.graphed_situations import SITUATIONS, Trajectory

COSTS = {f"cost_{count}_parameters": count for count in (10, 100, 1000)}
CASES = [*COSTS, *SITUATIONS]
LIMIT_S = 300  # of one case


class EagerInForm(Program):
    """In place of a graph: runs the step eagerly, with the optimizers as a graph contains them."""

    def capture(self, function: Callable[..., Any], form: Any) -> Any:
        self._call = function, form
        self._result = self._run(self._leaves)
        return self._result

    def _run(self, leaves: list[Any]) -> Any:
        function, form = self._call
        args, kwargs = unflatten(form, iter(leaves))
        optimizers = self.state.form
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
    kinds = next(iter(step._kinds.values()))
    program = kinds[-1].program
    assert program is not None
    graph = program.parts[0].graph

    def once(call: Callable[[], Any]) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        return 1e6 * (time.perf_counter() - start)

    guard, form = kinds[-1].state.guard, flatten(((x,), {}), [])
    parts: dict[str, Callable[[], Any]] = {
        "addresses": lambda: list(map(torch.Tensor.data_ptr, guard.tensors)),
        "gradients": lambda: list(map(gradient_of, guard.parameters)),
        "tables": lambda: gc.get_referents(*guard._tables),
        "values": guard.values.read,
        "key": lambda: key_of([x], form),
        "outputs": lambda: program.outputs([x], True),
    }
    program.next_check = program.replays + 1
    check_us = once(lambda: step(x))
    calls, replays, guards = [], [], []
    for _ in range(200):
        calls.append(once(lambda: step(x)))
        replays.append(once(graph.replay))
        guards.append(once(kinds[-1].holds))

    def in_a_row(call: Callable[[], Any]) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(20):
            call()
        torch.cuda.synchronize()
        return 1e6 * (time.perf_counter() - start) / 20

    rows = [(in_a_row(lambda: step(x)), in_a_row(graph.replay)) for _ in range(15)]
    return {
        "parameters": len(list(model.parameters())),
        "call_us": median(calls),
        # Between two checks there are at least 1,000 replays, or 100 times as many as one takes.
        "check_us": check_us,
        "check_pct": 100 * check_us / max(1_000 * median(calls), 100 * check_us),
        "replay_us": median(replays),
        "guard_us": median(guards),
        "beyond_the_replay_us": median(calls) - median(replays),
        "parts_us": {
            part: median([once(read) for _ in range(100)]) for part, read in parts.items()
        },
        "call_in_a_row_us": median([row for row, _ in rows]),
        "replay_in_a_row_us": median([row for _, row in rows]),
        "stats": str(step.stats),
    }


def one(name: str, steps: int, path: Path) -> None:
    result: dict[str, Any] = {"case": name, "steps": steps, "torch": torch.__version__}
    result["device"] = torch.cuda.get_device_name()
    try:
        result |= cost(COSTS[name]) if name in COSTS else situation(name, steps)
    except Exception:
        result["error"] = traceback.format_exc()
    path.write_text(json.dumps(result, indent=1))


def line(result: dict[str, Any]) -> str:
    if "error" in result:
        return f"ERROR {result['error'].strip().splitlines()[-1]}"
    if "call_us" in result:
        beyond, replay = result["beyond_the_replay_us"], result["replay_us"]
        parts = ", ".join(f"{part} {us:.0f}" for part, us in result["parts_us"].items())
        return (
            f"{beyond:.0f} us beyond a replay of {replay:.0f} us (guards {result['guard_us']:.0f}; "
            f"parts: {parts}); in a row {result['call_in_a_row_us']:.0f} us a call, "
            f"{result['replay_in_a_row_us']:.0f} us a replay"
        )
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=CASES, default=CASES, metavar="NAME")
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--here", action="store_true", help="run the one case in this process")
    chosen = parser.parse_args()
    if chosen.here:
        one(chosen.only[0], chosen.steps, chosen.folder / f"{chosen.only[0]}.json")
        return
    chosen.folder.mkdir(parents=True, exist_ok=True)
    left = [name for name in chosen.only if not (chosen.folder / f"{name}.json").exists()]
    running: dict[str, tuple[subprocess.Popen[str], float]] = {}
    while left or running:
        while left and len(running) < chosen.at_once:
            name = left.pop(0)
            command = [sys.executable, "-m", "tests.benchmarks.graphed", str(chosen.folder),
                       "--here", "--only", name, "--steps", str(chosen.steps)]  # fmt: skip
            child = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            running[name] = child, time.monotonic()
        for name, (child, since) in list(running.items()):
            late = time.monotonic() - since > LIMIT_S
            if late:
                child.kill()
            elif child.poll() is None:
                continue
            said = child.communicate()[1]
            del running[name]
            path = chosen.folder / f"{name}.json"
            if not path.exists():
                text = (
                    "no result in time" if late else f"exit code {child.returncode}\n{said[-4000:]}"
                )
                path.write_text(json.dumps({"case": name, "error": text}, indent=1))
            print(f"{name}: {line(json.loads(path.read_text()))}", flush=True)
        time.sleep(0.2)


if __name__ == "__main__":
    main()
