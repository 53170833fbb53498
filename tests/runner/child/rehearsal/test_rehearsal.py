"""Scripts written for a GPU run on a CPU, and their device operations are counted as on CUDA."""

from __future__ import annotations

from functools import partial

import pytest

from launchscope.model import InspectResult, Schedule
from tests.runner.children import Batch, PointResult, recorded

pytestmark = pytest.mark.child

ADAMW = """
import torch
net = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(8)])
opt = torch.optim.AdamW(net.parameters())
for i in range(20):
    opt.zero_grad()
    net(torch.randn(4, 8)).sum().backward()
    opt.step()
"""
DEVICE = 'device = "cuda" if torch.cuda.is_available() else "cpu"\n'
DRAWS = f"""
import torch
{DEVICE}net = torch.nn.Sequential(torch.nn.Embedding(64, 8), torch.nn.Linear(8, 8)).to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
data = torch.randint(64, (1000,))
for i in range(20):
    starts = torch.randint(900, (4,))
    x = torch.stack([data[at:at + 16] for at in starts]).to(device)
    with torch.no_grad():
        net(x)
    loss = net(x).square().mean()
    if torch.rand(1).item() < 0.5 and torch.randperm(3)[0] > 5:
        break
    loss.backward()
    loss.item()  # the step's own
    opt.step()
    opt.zero_grad()
"""
SCRIPTS = {
    "names_cuda": """
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
torch.cuda.set_device(0)
torch.cuda.manual_seed_all(1)
torch.backends.cudnn.benchmark = True
device = torch.device("cuda", 0)
net = torch.nn.Linear(8, 8).cuda()
net = net.to("cuda").to(device).to(device=device, dtype=torch.float32).cuda(0)
head = torch.nn.Linear(8, 2, device="cuda:0")
opt = torch.optim.AdamW([*net.parameters(), *head.parameters()], capturable=True)
scaler = torch.amp.GradScaler("cuda")
data = TensorDataset(torch.randn(64, 8), torch.zeros(64).long())
start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
stream = torch.cuda.Stream()
torch.cuda.current_stream().wait_stream(stream)
assert torch.zeros(2).cuda().add(torch.ones(2, device="cuda")).to("cuda", torch.half).sum() == 2
assert torch.zeros(1).to(0).to(torch.zeros(1, device=device)).device.type == "cpu"
for epoch in range(4):
    for images, labels in DataLoader(data, batch_size=8, pin_memory=True):
        images = images.to(device, non_blocking=True)
        labels = labels.cuda(non_blocking=True)
        start.record()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(head(net(images)), labels)
        opt.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        end.record()
        torch.cuda.synchronize()
        start.elapsed_time(end), torch.cuda.max_memory_allocated(), torch.cuda.current_device()
""",
    "asks_about_the_gpu": """
import io, torch
from concurrent.futures import ThreadPoolExecutor
name = torch.cuda.get_device_name(0), torch.cuda.get_device_properties(0).name
major, minor = torch.cuda.get_device_capability()
free, total = torch.cuda.mem_get_info()
generator = torch.Generator(device="cuda").manual_seed(3)
torch.cuda.nvtx.range_push("x")
torch.cuda.nvtx.range_pop()
state = torch.cuda.get_rng_state()
torch.cuda.set_rng_state(state)
x = torch.randn(2, 4, device="cuda", generator=generator)
with ThreadPoolExecutor(1) as pool:
    assert pool.submit(torch.zeros, 2, device="cuda").result().tolist() == [0, 0]
def loaded(**where):
    file = io.BytesIO()
    torch.save(torch.nn.Linear(4, 4).state_dict(), file)
    file.seek(0)
    return torch.load(file, **where)
net = torch.nn.Linear(4, 4).cuda()
for where in "cuda", "cuda:0", torch.device("cuda"), {"cpu": "cuda:0"}, None, "cpu":
    net.load_state_dict(loaded(map_location=where))
assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] == 0
assert isinstance(torch.cuda.device(0), torch.cuda.device)
for i in range(20):
    with torch.no_grad(), torch.cuda.device(0), torch.cuda.device_of(net.weight):
        net(x)
""",
    "adamw": ADAMW,
    "draws_on_the_host": DRAWS,
    "draws_and_names_no_device": DRAWS.replace(".to(device)", "").replace(DEVICE, ""),
    "copies_to_the_host": """
import torch, launchscope
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = torch.nn.Linear(8, 8)
x = torch.randn(4, 8)
def take(tensor):
    for i in range(20):
        with launchscope.step():
            y = net(x.to(device).to("cuda" if torch.cuda.is_available() else "cpu")).detach()
            y.sum().tolist()
            y.tolist()
            y.cpu().numpy()
            y.to("cpu")
            y.to(device="cpu", dtype=torch.double)
            y.to(torch.device("cpu"), non_blocking=True)
            y.numpy(force=True)
            y[0, 0].item()
            y.sum().to("cpu").item()  # once
            y.mean().cpu().tolist()  # once
            there = y.cpu(), y.cpu()
            sum(there).add_(1)[0].tolist()  # of the host
            there[0].to(device).add(1).tolist()  # back again
take(x)
""",
}


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    folder = tmp_path_factory.mktemp("rehearsal")
    return Batch(
        {
            name: partial(recorded, folder / name, source, schedule=Schedule(inspect=2))
            for name, source in SCRIPTS.items()
        }
    )


def inspected(ran: PointResult) -> InspectResult:
    assert ran.outcome.problem is None, ran.outcome.problem
    assert ran.recording.inspect is not None
    return ran.recording.inspect


def test_a_script_that_names_cuda_everywhere_runs_on_the_cpu(batch: Batch) -> None:
    ran = batch["names_cuda"]
    result = inspected(ran)
    assert ran.recording.mode == "rehearsal"
    assert ran.recording.environment.device is None
    assert ran.recording.timing is None
    assert ran.recording.step is not None
    assert ran.recording.step.period == ("forward", "forward", "backward", "optimizer")
    assert any("autocast" in note for note in result.notes)
    assert any("cuda device" in note for note in result.notes)
    assert result.partial
    assert result.forwards == (2, 2)
    assert [ran.line(b.where) for b in result.blockers if b.inside == "grad_scaler"] == [
        "scaler.step(opt)"
    ]
    own = inspected(batch["adamw"])
    assert not own.partial
    assert not any("cuda device" in note for note in own.notes)


def test_other_ways_to_ask_for_a_gpu_are_answered(batch: Batch) -> None:
    assert inspected(batch["asks_about_the_gpu"]).device_ops[0] >= 1


def test_copies_to_the_host_are_blockers_as_on_a_gpu(batch: Batch) -> None:
    ran = batch["copies_to_the_host"]
    found = [(ran.line(b.where), b.op, b.category, b.count) for b in inspected(ran).blockers]
    copy = "aten._to_copy"
    assert found == [
        (
            'y = net(x.to(device).to("cuda" if torch.cuda.is_available() else "cpu")).detach()',
            *(copy, "host_copy", 1),
        ),
        ("y.sum().tolist()", copy, "sync", 1),
        ("y.tolist()", copy, "sync", 1),
        ("y.cpu().numpy()", copy, "sync", 1),
        ('y.to("cpu")', copy, "sync", 1),
        ('y.to(device="cpu", dtype=torch.double)', copy, "sync", 1),
        ('y.to(torch.device("cpu"), non_blocking=True)', copy, "host_copy", 1),
        ("y.numpy(force=True)", copy, "sync", 1),
        ("y[0, 0].item()", "aten._local_scalar_dense", "sync", 1),
        ('y.sum().to("cpu").item()  # once', copy, "sync", 1),
        ("y.mean().cpu().tolist()  # once", copy, "sync", 1),
        ("there = y.cpu(), y.cpu()", copy, "sync", 2),
        ("there[0].to(device).add(1).tolist()  # back again", copy, "host_copy", 1),
        ("there[0].to(device).add(1).tolist()  # back again", copy, "sync", 1),
    ]


def test_a_copy_to_the_host_counts_and_work_on_the_host_does_not(batch: Batch) -> None:
    ran = batch["copies_to_the_host"]
    ops = [(ran.line(op.where), op.op) for op in inspected(ran).ops]
    assert [op for line, op in ops if line == "y.cpu().numpy()"] == ["aten._to_copy"]
    assert not [op for line, op in ops if "of the host" in line]
    assert any(op == "aten.add" for line, op in ops if "back again" in line)


def test_random_numbers_on_the_host_are_no_blockers(batch: Batch) -> None:
    ran = batch["draws_on_the_host"]
    assert [ran.line(b.where) for b in inspected(ran).blockers] == ["loss.item()  # the step's own"]
    assert not [op for op in inspected(ran).ops if "rand" in op.op]


def test_everything_counts_as_on_the_device_if_the_script_names_none(batch: Batch) -> None:
    ran = batch["draws_and_names_no_device"]
    lines = [ran.line(b.where) for b in inspected(ran).blockers]
    assert "if torch.rand(1).item() < 0.5 and torch.randperm(3)[0] > 5:" in lines
