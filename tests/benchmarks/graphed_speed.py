"""A step eagerly, in `graphed`, and with its model in `torch.compile(mode="reduce-overhead")`.

    python -m tests.benchmarks.graphed_speed FOLDER [--only NAME...] [--nanogpt CHECKOUT]

Writes one JSON file per case into FOLDER. Each case is a process of its own, in which the three
take turns: every round times a block of steps of each, in an order drawn anew. Before that, eager
and `graphed` train from the same seed, and their losses are compared. In the compiled variant the
optimizer stays eager, as in most scripts.

nanoGPT is not part of this repository. `git clone https://github.com/karpathy/nanoGPT`, and name
the folder: its model and optimizer are used with the settings of `train_shakespeare_char.py` (bf16,
dropout 0.2, gradient clipping, a rate set by hand in every step), on random characters. All three
variants do in each iteration what its `train.py` does: cut a batch out of a file row by row, pass
the loss through a GradScaler that is off, and read the loss in every tenth iteration.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import random
import subprocess
import sys
import tempfile
import time
import traceback
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
ROUNDS = 15
BLOCK_S = 0.25  # of each variant in a round
LIMIT_S = 400  # of one case
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
    module = module_at(ROOT / "sample_workloads/convnet.py").ResNet(16, 3).cuda()
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
    module = module_at(ROOT / "sample_workloads/small_gpt.py").GPT(6, 256, 8, 128).cuda()
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
    module = module_at(ROOT / "sample_workloads/small_gpt.py").GPT(6, 512, 8, 64).cuda().eval()
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


CASES: dict[str, Callable[[Wrap, Compile], Step]] = {
    f.__name__: f for f in (small_mlp, convnet, small_gpt, small_gpt_inference)
}


def _as_it_is(model: nn.Module) -> Callable[..., Any]:
    return model


def _plain(step: Callable[..., Any]) -> Callable[..., Any]:
    return step


def losses(make: Callable[[Wrap, Compile], Step], wrap: Wrap, steps: int) -> list[float]:
    torch.manual_seed(0)
    step = make(wrap, _as_it_is)
    found = [step(number) for number in range(steps)]
    return [float(loss) for loss in found]


def block(step: Step, first: int, count: int) -> float:
    """Milliseconds of a step, over `count` of them."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for number in range(first, first + count):
        step(number)
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start) / count


def measured(name: str, make: Callable[[Wrap, Compile], Step]) -> dict[str, Any]:
    steps = 600 if name == "nanogpt" else 200
    wanted, again = losses(make, _plain, steps), losses(make, _plain, steps)
    found = losses(make, graphed, steps)

    def apart(one: list[float]) -> float:
        return max(abs(a - b) / abs(b) for a, b in zip(one, wanted))

    made: list[Any] = []

    def kept(step: Callable[..., Any]) -> Any:
        made.append(graphed(step))
        return made[-1]

    def reduce_overhead(model: nn.Module) -> Callable[..., Any]:
        return torch.compile(model, mode="reduce-overhead")

    variants = {
        "eager": make(_plain, _as_it_is),
        "graphed": make(kept, _as_it_is),
        "compiled": make(_plain, reduce_overhead),
    }
    setup = {}
    for variant, step in variants.items():
        start = time.perf_counter()
        block(step, 0, 20)
        setup[variant] = time.perf_counter() - start
    counts = {v: max(10, int(1e3 * BLOCK_S / block(s, 20, 20))) for v, s in variants.items()}
    times: dict[str, list[float]] = {variant: [] for variant in variants}
    for number in range(ROUNDS):
        for variant in random.Random(number).sample(list(variants), len(variants)):
            times[variant].append(block(variants[variant], 40, counts[variant]))

    def ratio(variant: str) -> dict[str, float]:
        ratios = [a / b for a, b in zip(times["eager"], times[variant])]
        low, _, high = quantiles(ratios, n=4)
        return {"median": median(ratios), "low": low, "high": high}

    return {
        "ms": {variant: median(values) for variant, values in times.items()},
        "samples_ms": times,
        "first_20_steps_s": setup,
        "times_as_fast": {variant: ratio(variant) for variant in ("graphed", "compiled")},
        "losses": {
            "steps": steps, "graphed": apart(found), "eager_again": apart(again),
            "last_eager": wanted[-1], "last_graphed": found[-1],
        },
        "stats": str(made[0].stats),
    }  # fmt: skip


def line(result: dict[str, Any]) -> str:
    if "error" in result:
        return f"ERROR {result['error'].strip().splitlines()[-1]}"
    ms, how = result["ms"], result["times_as_fast"]
    fast = ", ".join(
        f"{variant} {ms[variant]:.3f} ms ({of['median']:.2f}x, {of['low']:.2f} to {of['high']:.2f})"
        for variant, of in how.items()
    )
    losses = result["losses"]
    return (
        f"eager {ms['eager']:.3f} ms, {fast}; losses within {losses['graphed']:.1e} over "
        f"{losses['steps']} steps (eager again: {losses['eager_again']:.1e}); {result['stats']}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--nanogpt", type=Path, metavar="CHECKOUT")
    parser.add_argument("--here", action="store_true", help="run the one case in this process")
    chosen = parser.parse_args()
    makers = dict(CASES)
    if chosen.nanogpt:
        makers = {"nanogpt": nanogpt(chosen.nanogpt), **makers}
    names = chosen.only or list(makers)
    if chosen.here:
        [name] = names
        result: dict[str, Any] = {"case": name, "torch": torch.__version__}
        result["device"] = torch.cuda.get_device_name()
        try:
            result |= measured(name, makers[name])
        except Exception:
            result["error"] = traceback.format_exc()
        (chosen.folder / f"{name}.json").write_text(json.dumps(result, indent=1))
        return
    chosen.folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = chosen.folder / f"{name}.json"
        if path.exists():
            continue
        more = ["--nanogpt", str(chosen.nanogpt)] if chosen.nanogpt else []
        command = [sys.executable, "-m", "tests.benchmarks.graphed_speed", str(chosen.folder)]
        try:
            subprocess.run([*command, "--here", "--only", name, *more], timeout=LIMIT_S, check=True)
        except (subprocess.SubprocessError, OSError) as error:
            path.write_text(json.dumps({"case": name, "error": str(error)}, indent=1))
        print(f"{name}: {line(json.loads(path.read_text()))}", flush=True)


if __name__ == "__main__":
    main()
