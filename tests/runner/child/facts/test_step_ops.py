"""What a step does beside its ops is recorded, and the script's own warnings stay as they are."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from launchscope.runner.child.capture.step_trace import StepRecorder
from launchscope.runner.child.events.events import NO_OBSERVER
from launchscope.runner.child.events.hooks import Hooks
from launchscope.runner.child.facts.step_ops import (
    HostTensors,
    StepStream,
    make_dispatch_mode,
    recording_syncs,
)

SYNC_TEXT = "called a synchronizing CUDA operation (Triggered internally at x.cpp:1)"
EXTRA = {"aten.chunk", "aten.clone"}  # that torch 2.6 runs for a tensor in parts


@pytest.fixture(autouse=True)
def filters_of_this_test() -> Iterator[None]:
    with warnings.catch_warnings():
        yield


def test_a_synchronization_is_recorded_at_every_step_whatever_the_filters_say() -> None:
    warnings.simplefilter("error")
    for _ in range(2):
        stream = StepStream()
        with recording_syncs(torch, stream):
            warnings.warn(SYNC_TEXT, stacklevel=1)
        assert [record.op for record in stream.blockers] == ["cudaStreamSynchronize"]
    with pytest.raises(UserWarning, match="synchronizing"):
        warnings.warn(SYNC_TEXT, stacklevel=1)


@pytest.mark.parametrize(("more", "same"), [(torch.Tensor.item, True), (torch.Tensor.exp, False)])
def test_a_value_read_only_in_some_steps_is_a_blocker_and_no_branch(more: Any, same: bool) -> None:
    def step(*, logs: bool) -> StepStream:
        stream, x = StepStream(), torch.ones(2)
        with make_dispatch_mode(torch, stream, lambda tensor: True, HostTensors()):
            loss = x.mul(2).sum()
            if logs:
                more(loss)
        return stream

    quiet, loud = step(logs=False), step(logs=True)
    assert (quiet.signature == loud.signature) is same
    assert [record.category for record in loud.blockers] == ["sync"] * same


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    """Of one rank."""
    store: Any = getattr(dist, "HashStore")()  # noqa: B009, torch does not list it
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore:DTensor random operators")  # by torch 2.6
def test_ops_on_tensors_in_parts_are_those_of_the_part_of_this_rank(mesh: DeviceMesh) -> None:
    weight = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
    x, seen = distribute_tensor(torch.ones(2, 4), mesh, [Replicate()]), StepStream()
    on_device = torch.Tensor.is_floating_point  # any
    with make_dispatch_mode(torch, seen, on_device, HostTensors()):
        held = torch.linalg.vector_norm(x @ weight)
    made = [record.op for record in seen.ops if record.op not in EXTRA]
    assert made == ["aten.mm", "aten.linalg_vector_norm"]
    trace = StepRecorder(torch, Hooks(torch, NO_OBSERVER), on_device)
    with trace.mode():
        held = x @ weight
    assert [call.op for call in trace.trace.calls if call.op not in EXTRA] == ["aten.mm"]
    del held


def blockers_of(step: Any, on_device: Any = lambda tensor: True) -> list[tuple[str, str]]:
    stream = StepStream()
    with make_dispatch_mode(torch, stream, on_device, HostTensors()):
        step()
    return [(record.op, record.category) for record in stream.blockers]


def test_indices_on_the_host_are_copies_in_the_forward_and_in_the_backward() -> None:
    """Memory without content stands for the GPU."""
    rows, there = torch.tensor([0, 2]), torch.tensor([0, 2], device="meta")

    def step(*indices: Any) -> None:
        leaf = torch.ones(3, 3, device="meta", requires_grad=True)
        leaf[indices].sum().backward()
        held = leaf.detach()
        held[indices] = 1.0

    def on_device(tensor: Any) -> bool:
        return bool(tensor.device.type == "meta")

    found = blockers_of(lambda: step(slice(None), rows), on_device)
    names = ("aten.index", "aten.index_put", "aten.index_put_")
    assert found == [(name, "host_copy") for name in names]
    assert blockers_of(lambda: step(slice(None), there), on_device) == []


def test_torch_linalg_waits_for_its_error_check_unless_the_script_checks_itself() -> None:
    matrix = torch.eye(2)
    check = [("aten._linalg_check_errors", "sync")]
    assert blockers_of(lambda: torch.linalg.cholesky(matrix)) == check
    assert blockers_of(lambda: torch.linalg.inv(matrix)) == check
    assert blockers_of(lambda: torch.linalg.cholesky_ex(matrix)) == []
