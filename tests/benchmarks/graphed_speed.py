"""A step eagerly, in `graphed`, and with its model in `torch.compile(mode="reduce-overhead")`.

The three take turns: every round times a block of steps of each, in an order drawn anew. In the
compiled variant the optimizer stays eager, as in most scripts. Then `graphed` runs 10,000 steps by
itself, for the share of its checks.

nanoGPT is not part of this repository. `git clone https://github.com/karpathy/nanoGPT`, and name
the folder: its model and optimizer are used with the settings of `train_shakespeare_char.py` (bf16,
dropout 0.2, gradient clipping, a rate set by hand in every step), on random characters. All three
variants do in each iteration what its `train.py` does: cut a batch out of a file row by row, pass
the loss through a GradScaler that is off, and read the loss in every tenth iteration.
"""

from __future__ import annotations

import importlib.util
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from launchscope import graphed

ROOT = Path(__file__).parents[2]
ROUNDS = 9
BLOCK_S = 0.15  # of each variant in a round
CHECKED_STEPS = 10_000
CHARACTERS = 1_000_000  # of nanoGPT's text
Step = Callable[[int], Any]  # gets the number of the step, returns its loss
Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]
Compile = Callable[[nn.Module], Callable[..., Any]]


def module_at(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def sample(name: str) -> ModuleType:
    return module_at(ROOT / f"sample_workloads/{name}.py")


def small_mlp(wrap: Wrap, compiled: Compile) -> Step:
    layers = [layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.ReLU())]
    module = nn.Sequential(*layers, nn.Linear(256, 10)).cuda()
    model = compiled(module)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    x = torch.randn(64, 64, 256, device="cuda")
    y = x[:, :, :10].argmax(dim=2)

    @wrap
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return lambda number: step(x[number % 64], y[number % 64])


def convnet(wrap: Wrap, compiled: Compile) -> Step:
    module = sample("convnet").ResNet(16, 3).cuda()
    model = compiled(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    x = torch.randn(8, 32, 3, 32, 32, device="cuda")
    y = torch.randint(0, 10, (8, 32), device="cuda")

    @wrap
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return lambda number: step(x[number % 8], y[number % 8])


def small_gpt(wrap: Wrap, compiled: Compile) -> Step:
    module = sample("small_gpt").GPT(6, 256, 8, 128).cuda()
    model = compiled(module)
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-4, betas=(0.9, 0.95))
    corpus = torch.randint(0, 1024, (64, 8, 129), device="cuda")

    @wrap
    def step(batch: torch.Tensor) -> Any:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(batch[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return lambda number: step(corpus[number % 64])


def small_gpt_inference(wrap: Wrap, compiled: Compile) -> Step:
    module = sample("small_gpt").GPT(6, 512, 8, 64).cuda().eval()
    model = compiled(module)
    requests = torch.randint(0, 1024, (32, 1, 64), device="cuda")

    @wrap
    def step(tokens: torch.Tensor) -> Any:
        with torch.no_grad():
            return model(tokens)[:, -1].float().logsumexp(-1).mean()

    return lambda number: step(requests[number % 32])


def nanogpt(checkout: Path) -> Callable[[Wrap, Compile], Step]:
    import numpy

    file = tempfile.NamedTemporaryFile(suffix=".bin")  # noqa: SIM115 - lives as long as the steps
    numpy.random.default_rng(0).integers(0, 65, CHARACTERS).astype(numpy.uint16).tofile(file.name)

    def make(wrap: Wrap, compiled: Compile) -> Step:
        source = module_at(checkout / "model.py")
        config = source.GPTConfig(
            block_size=256, vocab_size=65, n_layer=6, n_head=6, n_embd=384, dropout=0.2, bias=False
        )
        module = source.GPT(config).cuda()
        model = compiled(module)
        optimizer = module.configure_optimizers(1e-1, 1e-3, (0.9, 0.99), "cuda")
        scaler = torch.amp.GradScaler("cuda", enabled=False)
        draw = torch.Generator().manual_seed(1)

        @wrap
        def step(x: torch.Tensor, y: torch.Tensor) -> Any:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                _, loss = model(x, y)
                loss = loss / 1  # micro-steps
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            return loss.detach()

        def rows(first: torch.Tensor) -> torch.Tensor:
            text = numpy.memmap(file.name, dtype=numpy.uint16, mode="r")
            cut = [torch.from_numpy(text[i : i + 256].astype(numpy.int64)) for i in first]
            return torch.stack(cut).pin_memory().to("cuda", non_blocking=True)

        def iteration(number: int) -> Any:
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 * min((number + 1) / 101, 0.5 + 0.5 * math.cos(number / 5000))
            first = torch.randint(CHARACTERS - 256, (64,), generator=draw)
            loss = step(rows(first), rows(first + 1))
            if number % 10 == 0:
                loss.item()
            return loss

        return iteration

    return make


Make = Callable[[Wrap, Compile], Step]


def makers(nanogpt_checkout: Path | None) -> dict[str, Make]:
    found: dict[str, Make] = {
        make.__name__: make for make in (small_mlp, convnet, small_gpt, small_gpt_inference)
    }
    return found if nanogpt_checkout is None else {"nanogpt": nanogpt(nanogpt_checkout), **found}


def _as_it_is(model: nn.Module) -> Callable[..., Any]:
    return model


def _plain(step: Callable[..., Any]) -> Callable[..., Any]:
    return step


def _reduce_overhead(model: nn.Module) -> Callable[..., Any]:
    return torch.compile(model, mode="reduce-overhead")


def block(step: Step, first: int, count: int) -> float:
    """Milliseconds of a step, over `count` of them."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for number in range(first, first + count):
        step(number)
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start) / count


def measured(make: Make) -> dict[str, Any]:
    variants = {
        "eager": make(_plain, _as_it_is),
        "graphed": make(graphed, _as_it_is),
        "compiled": make(_plain, _reduce_overhead),
    }
    setup = {variant: 0.02 * block(step, 0, 20) for variant, step in variants.items()}
    counts = {v: max(10, int(1e3 * BLOCK_S / block(s, 20, 20))) for v, s in variants.items()}
    times: dict[str, list[float]] = {variant: [] for variant in variants}
    for number in range(ROUNDS):
        for variant in random.Random(number).sample(list(variants), len(variants)):
            times[variant].append(block(variants[variant], 40, counts[variant]))

    def ratio(variant: str) -> list[float]:
        return quantiles([a / b for a, b in zip(times["eager"], times[variant])], n=4)

    return {
        "ms": {variant: median(values) for variant, values in times.items()},
        "first_20_steps_s": setup,
        "times_as_fast": {variant: ratio(variant) for variant in ("graphed", "compiled")},
        "checks": checks(make),
    }


def checks(make: Make) -> dict[str, Any]:
    """The share of the checks in the time of many steps, the first three excepted. A check's time
    contains its replay."""
    seconds: list[float] = []
    made: list[Any] = []

    def timed(step: Callable[..., Any]) -> Any:
        made.append(graphed(step))
        run = made[0]._checks.run

        def check(*args: Any) -> Any:
            torch.cuda.synchronize()
            start = time.perf_counter()
            result = run(*args)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
            return result

        made[0]._checks.run = check
        return made[0]

    total = 1e-3 * CHECKED_STEPS * block(make(timed, _as_it_is), 0, CHECKED_STEPS)
    return {
        "steps": CHECKED_STEPS,
        "share_pct": 100 * sum(seconds[3:]) / total,
        "seconds": seconds,
        "stats": str(made[0].stats),
    }
