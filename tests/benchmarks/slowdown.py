"""Slowdown of the steps of the timing pass against the same steps without launchscope.

Goal: under 1 % for steps of 2 ms and more. Two processes of one script differ by a tenth
on a busy host, so both sides run in one process and take turns step by step: a training
loop is followed by the real hooks, step search and timing pass, and for every other step
(the order within a pair changes at random) all of that is taken out of torch again, so
that the step is the plain one. Steps of the pass are not all alike (of short ones one in three
has an event at its begin), so what is compared is three in a row: reported is the median over
these of `followed / plain - 1` and of the difference per step, with its 95 % interval.

Run from the top of the checkout: python -m tests.benchmarks.slowdown [--output PATH]
"""

from __future__ import annotations

import inspect
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import fmean
from time import perf_counter_ns
from typing import Any

from tests.benchmarks import bench

GOAL = "steps of the timing pass under 1 % slower than in the plain script, from 2 ms on"
_WIDTH, _BATCH, _WARM = 256, 64, 30


class Loop:
    """A training loop of `layers` linear layers: some 2 ms of launches at half a dozen layers."""

    def __init__(self, torch: Any, layers: int):
        modules: list[Any] = []
        for _ in range(layers):
            modules += [torch.nn.Linear(_WIDTH, _WIDTH), torch.nn.ReLU()]
        self.model = torch.nn.Sequential(*modules, torch.nn.Linear(_WIDTH, 10)).cuda()
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self._inputs = torch.randn(_BATCH, _WIDTH, device="cuda")
        self._labels = torch.randint(0, 10, (_BATCH,), device="cuda")
        self._loss = torch.nn.functional.cross_entropy

    def step(self) -> None:
        self._optimizer.zero_grad()
        loss = self._loss(self.model(self._inputs), self._labels)
        loss.backward()
        self._optimizer.step()

    def time_ms(self) -> float:
        """Host time of one step, which is what it takes: these steps are launch-bound."""
        begun = perf_counter_ns()
        self.step()
        return (perf_counter_ns() - begun) / 1e6


@contextmanager
def out_of_torch(torch: Any, model: Any) -> Iterator[None]:
    """Everything that follows a step is taken out, as if it had never been put in."""
    optimizer = sys.modules["torch.optim.optimizer"]
    tables = [model.__dict__[name] for name in model.__dict__ if "_hooks" in name]
    tables += [optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks]
    kept = [(table, dict(table)) for table in tables if table]
    # Whoever goes before the module's own call.
    call = model.__dict__.pop("_compiled_call_impl", None)
    if call is None and not kept:
        sys.exit("nothing was found to take out: the two sides would be the same")
    for table, _ in kept:
        table.clear()
    backward = torch.autograd.backward
    torch.autograd.backward = inspect.unwrap(backward)
    try:
        yield
    finally:
        torch.autograd.backward = backward
        for table, entries in kept:
            table.update(entries)
        if call is not None:
            model.__dict__["_compiled_call_impl"] = call


def pairs(torch: Any, layers: int, count: int) -> tuple[list[float], list[float]]:
    """Step times in ms, plain and followed, index by index from the same pair."""
    from launchscope.model import Schedule, Target
    from launchscope.runner.child.passes.step_controller import StepController
    from launchscope.runner.protocol.folder import ChildFolder, Plan

    plain: list[float] = []
    followed: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        # Longer than needed: the pass must not come to its end between two steps.
        schedule = Schedule(timing=count + _WARM + 200)
        plan = Plan(Target("script", "loop"), ("timing",), schedule)
        controller = StepController(torch, ChildFolder(directory), plan)
        controller.hooks.install()
        loop = Loop(torch, layers)
        for _ in range(schedule.warmup + _WARM):
            loop.step()

        def plain_ms() -> float:
            with out_of_torch(torch, loop.model):
                return loop.time_ms()

        sides: list[tuple[list[float], Callable[[], float]]]
        sides = [(plain, plain_ms), (followed, loop.time_ms)]
        chance = random.Random(0)
        for pair in range(count):
            chance.shuffle(sides)
            for times, side in sides:
                times.append(side())
            if pair % 50 == 0:  # the queue of launches never comes near its limit
                torch.cuda.synchronize()
        runner = controller.runner
        if runner._direct is None:
            sys.exit("the steps were not followed as those of a script are, whose pass is short")
        controller.script_ended()
        seen = runner.steps_done
        expected = schedule.warmup + _WARM + count
        if abs(seen - expected) > 1:
            sys.exit(f"{seen} steps were followed where {expected} should have been")
    return plain, followed


def threes(times: list[float]) -> list[float]:
    """Mean of each three in a row, which hold one step of every sort."""
    return [fmean(times[at : at + 3]) for at in range(0, len(times) - 2, 3)]


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--layers", type=int, nargs="+", default=[6, 21, 44])
    args = parser.parse_args()
    if not bench.cuda_available():
        sys.exit("needs a CUDA device: without one there is no timing pass")
    import torch

    results: list[dict[str, Any]] = []
    for layers in args.layers:
        count = max(200, round(args.pairs * min(1.0, 6 / layers)))
        plain, followed = pairs(torch, layers, count)
        sides = list(zip(threes(plain), threes(followed), strict=True))
        slowdown = bench.interval([100 * (b / a - 1) for a, b in sides])
        added = bench.interval([1e3 * (b - a) for a, b in sides])
        results.append(
            {
                "layers": layers,
                "pairs": count,
                "plain_ms": bench.Spread.of(plain).median,
                "followed_ms": bench.Spread.of(followed).median,
                "slowdown_pct": slowdown,
                "added_us": added,
            }
        )
    bench.show(results)
    bench.finish("slowdown", GOAL, results, args.output)


if __name__ == "__main__":
    main()
