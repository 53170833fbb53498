"""One rank of test_ranks.py: trains in several ways with and without graphs, on an emulated GPU.

Arguments: a folder for results. The last situation ends the processes with an error.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from launchscope.graphed import GraphedStep, graphed
from launchscope.graphed.capture import all_steps
from launchscope.graphed.ranks import free_before_shutdown
from tests.graphed.emulation import EmulatedGpu, emulated

CALLS = 16
Tensor = torch.Tensor


def _reduce_scatter(output: Tensor, input: Tensor, group: Any = None, **_: Any) -> None:  # noqa: A002
    """Gloo's own runs operations of torch that no dispatch mode can tell from the script's."""
    whole = input.clone()
    dist.all_reduce(whole, group=group)
    output.copy_(whole.chunk(dist.get_world_size())[dist.get_rank()])


def ddp(model: nn.Module) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model)


def fsdp(model: nn.Sequential) -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def tensor_parallel(model: nn.Module) -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})


def train(
    wrap: Callable[[Any], nn.Module],
    with_graphs: bool,
    inside: Callable[[], None] = lambda: None,
    rows: Callable[[int], int] = lambda call: 4,
    timeout_s: float = 20.0,
    evaluated_before: int = -1,
) -> dict[str, Any]:
    """The losses of CALLS calls and what became of them."""
    torch.manual_seed(0)
    model = wrap(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(x).square().mean()
        loss.backward()
        inside()
        optimizer.step()
        return loss.detach()

    step.__qualname__ = f"step_{timeout_s:.0f}"  # one that a rank lacks is not another one's
    run: Any = graphed(timeout_s=timeout_s)(step) if with_graphs else step
    torch.manual_seed(1 if wrap is tensor_parallel else dist.get_rank())
    losses = []
    for call in range(CALLS):
        if call == evaluated_before:
            with torch.no_grad():
                model(torch.ones(4, 8))
        losses.append(float(run(torch.randn(rows(call), 8))))
    if not with_graphs:
        return {"losses": losses}
    stats = run.stats
    reasons = {reason.code: reason.message for reason in stats.reasons}
    return {
        "losses": losses,
        "counts": [stats.eager, stats.captured, stats.replayed],
        "reasons": reasons,
    }


def _capture_fails(gpu: EmulatedGpu) -> None:
    if dist.get_rank() == 1 and gpu.capturing():
        raise RuntimeError("no luck")


def _has_effect() -> None:
    if dist.get_rank() == 1:
        open("/dev/null").close()


def alone(call: int) -> int:
    """The rows of a batch that is smaller in one call, on one rank."""
    return 3 if call == 13 and dist.get_rank() == 1 else 4


def situations(gpu: EmulatedGpu) -> dict[str, Callable[[bool], dict[str, Any]]]:
    def odd(call: int) -> int:
        return 3 if call == 13 else 4

    def slow(with_graphs: bool) -> dict[str, Any]:
        """Rank 1 runs the plain step, so it never votes."""
        began = time.monotonic()
        result = train(ddp, with_graphs and dist.get_rank() == 0, timeout_s=1.0)
        return {**result, "seconds": time.monotonic() - began}

    of_fsdp = {
        "fsdp": lambda graphs: train(fsdp, graphs),
        "fsdp evaluated": lambda graphs: train(fsdp, graphs, evaluated_before=2),
    }
    return {
        "ddp": lambda graphs: train(ddp, graphs),
        **(of_fsdp if hasattr(torch.cpu.Stream, "record_event") else {}),  # not in torch 2.6
        "tensor parallel": lambda graphs: train(tensor_parallel, graphs),
        "all miss": lambda graphs: train(ddp, graphs, rows=odd),
        "one fails": lambda graphs: train(ddp, graphs, lambda: _capture_fails(gpu)),
        "one refuses": lambda graphs: train(ddp, graphs, _has_effect),
        "one is absent": slow,
        "own": lambda graphs: train(lambda model: model, graphs, rows=lambda c: 3 + (c == 13)),
    }


def graphs_of(steps: list[GraphedStep[Any, Any]]) -> int:
    return sum(step.stats.graphs for step in steps)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    gpu = emulated(setattr)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    for name in ("reduce_scatter_tensor", "reduce_scatter_single"):
        setattr(dist, name, _reduce_scatter)
    rank = dist.get_rank()
    results = {}
    for name, situation in situations(gpu).items():
        results[name] = {"eager": situation(False)["losses"], **situation(True)}
    held = [step for step in all_steps if step.ranks is not None]
    results["end"] = {"before": graphs_of(held)}
    # What torch calls for each group that ends; in torch 2.6 a function of the module.
    owner: Any = dist.ProcessGroup
    name = "shutdown"
    if not hasattr(owner, name):
        owner, name = dist.distributed_c10d, "_shutdown_backend"
    shutdown = getattr(owner, name)
    setattr(owner, name, lambda _: results["end"].update(at_shutdown=graphs_of(held)))
    free_before_shutdown.__wrapped__()
    getattr(owner, name)(dist.group.WORLD)
    setattr(owner, name, shutdown)
    (folder / f"rank-{rank}.json").write_text(json.dumps(results))
    train(ddp, True, rows=alone, timeout_s=2.0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
