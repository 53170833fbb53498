"""Steps with a line that a capture cannot contain: what mending it would give, measured."""

from __future__ import annotations

import pytest

from tests.gpu.conftest import Profiled, recommends
from tests.gpu.scripts import line_of, loop

pytestmark = pytest.mark.gpu

EVERY_OTHER = "mask = torch.arange(32, device='cuda') % 2 == 0"

# The one line that blocks, by kind, and what the loop needs for it.
BLOCKERS: dict[str, tuple[str, dict[str, str]]] = {
    "item": ("total += loss.item()", {"setup": "total = 0.0"}),
    "equal": ("same = torch.equal(x, y)", {}),
    "synchronize": ("torch.cuda.synchronize()", {}),
    "unpinned copy": ("loss = loss * one.to('cuda')", {"setup": "one = torch.ones(1)"}),
    "copy into": (
        "held.copy_(fresh)",
        {"setup": "held = torch.zeros(8, device='cuda')\nfresh = torch.ones(8)"},
    ),
    "nonzero": ("loss = loss + 0.0 * mask.nonzero().sum()", {"setup": EVERY_OTHER}),
    "mask": ("loss = loss + 0.0 * (x * loss)[mask].sum()", {"setup": EVERY_OTHER}),
    "mask assigned": ("y[mask] = x[mask]", {"setup": EVERY_OTHER}),
    "indices on the host": (
        "loss = loss + 0.0 * (x * loss)[:, columns].sum()",
        {"setup": "columns = torch.tensor([0, 3])"},
    ),
    "repeat_interleave": (
        "loss = loss + 0.0 * x.repeat_interleave(counts, 0).sum()",
        {"setup": "counts = torch.full((32,), 2, device='cuda')"},
    ),
    "generator": (
        "loss = loss * torch.rand((), device='cuda', generator=mine).add(1.0)",
        {"setup": "mine = torch.Generator('cuda')"},
    ),
    "rng state": ("state = torch.cuda.get_rng_state()", {}),
}


@pytest.mark.parametrize("kind", BLOCKERS)
def test_the_line_is_named_and_what_mending_it_gives_is_measured(
    profiled: Profiled, kind: str
) -> None:
    line, places = BLOCKERS[kind]
    source = loop(middle=line, **places)
    profile = profiled(source)
    assert line_of(source, line) in [blocker.where for blocker in profile.blockers]
    assert profile.replay.status == "what_if", profile.replay.reason

    work = profile.replay.work
    assert sum(change.count for change in (*work.added, *work.removed)) <= 2, work
    assert profile.verdict is not None
    assert profile.verdict.basis == "what_if"
    assert (profile.verdict.speedup or 0.0) > 1.0
    if recommends(profile, "adopt_after_fixes"):
        assert str(line_of(source, line)) in profile.verdict.instructions[0]


def test_checkpointing_that_keeps_the_random_state(profiled: Profiled) -> None:
    source = loop(
        before="from torch.utils.checkpoint import checkpoint",
        forward="x = nn.functional.dropout(x, 0.1)",
        after="x = checkpoint(self.layers[0], x, use_reentrant=False)",
    )
    profile = profiled(source)
    assert profile.replay.status == "what_if", profile.replay.reason


def test_values_that_steer_what_runs_cannot_be_stubbed(profiled: Profiled) -> None:
    source = loop(middle="for _ in range(int(x[0, 0] > 0) + 1): loss = loss * 1.0")
    profile = profiled(source)
    assert profile.replay.status in ("blocked", "skipped")
    assert profile.replay.reason is not None
    assert profile.replay.reason.code in ("ops_change_beside_blockers", "ops_change")


GRAPH = """
import torch
from torch import nn
torch.manual_seed(0)
entries = torch.randint(0, 512, (2, 4096))
matrix = torch.sparse_coo_tensor(entries, torch.rand(4096), (512, 512)).cuda()FORMAT
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 8)
    def forward(self, x):
        x = torch.sparse.mm(matrix, self.first(x)).relu()
        return torch.sparse.mm(matrix, self.second(x))
net = Net().cuda()
x, y = torch.randn(512, 32, device="cuda"), torch.randint(0, 8, (512,), device="cuda")
"""
TRAINS = """
optimizer = torch.optim.Adam(net.parameters())
for step in range(300):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
"""
INFERS = """
with torch.no_grad():
    for step in range(300):
        out = net(x)
"""


@pytest.mark.parametrize("form", ["", ".coalesce()"])
def test_a_graph_network_on_a_sparse_matrix_gets_a_what_if_with_its_lines(
    profiled: Profiled, form: str
) -> None:
    source = GRAPH.replace("FORMAT", form) + TRAINS
    profile = profiled(source)
    assert profile.replay.status == "what_if", profile.replay.reason
    assert line_of(source, "loss.backward()") in [blocker.where for blocker in profile.blockers]
    recommends(profile, "adopt_after_fixes")
    # With its entries in order, the forward needs no fix.
    measured = [scope.scope for scope in profile.replay.scopes if scope.status == "measured"]
    assert measured == (["forward"] if form else [])


@pytest.mark.parametrize("form", [".coalesce()", ".to_sparse_csr()"])
def test_a_product_with_a_matrix_in_order_is_captured(profiled: Profiled, form: str) -> None:
    profile = profiled(GRAPH.replace("FORMAT", form) + INFERS)
    assert profile.blockers == ()
    assert profile.replay.status == "measured", profile.replay.reason
    assert profile.replay.correct.status == "verified"


def test_the_error_check_of_a_solver_is_named_whether_or_not_its_capture_works(
    profiled: Profiled,
) -> None:
    source = loop(
        middle="loss = loss + 0.0 * torch.linalg.inv(torch.eye(4, device='cuda') + loss).sum()"
    )
    profile = profiled(source)
    found = [(blocker.op, blocker.where) for blocker in profile.blockers]
    assert ("aten._linalg_check_errors", line_of(source, "loss = loss + 0.0")) in found
    assert profile.replay.status in ("what_if", "failed")
    recommends(profile, "adopt_after_fixes")


def test_an_op_that_waits_inside_is_named_and_has_no_what_if(profiled: Profiled) -> None:
    """torch.histc reads the smallest and the largest value on the host."""
    source = loop(middle="counts = torch.histc(x, 4)")
    profile = profiled(source)
    assert profile.replay.reason is not None
    assert (profile.replay.status, profile.replay.reason.code) == ("blocked", "no_stub")
    (blocker,) = profile.blockers
    assert (blocker.op, blocker.where) == ("aten.histc", line_of(source, "counts ="))


BERT = """
import torch
from transformers import BertConfig, BertModel
torch.manual_seed(0)
config = BertConfig(num_hidden_layers=12)
model = BertModel(config).to(device="cuda", dtype=torch.bfloat16).eval()
ids = torch.randint(0, 30000, (4, 128), device="cuda")  # so few that eager waits for the host
MASK
with torch.no_grad():
    for step in range(300):
        out = model(ids, attention_mask=mask)
"""


def test_bert_without_a_mask_does_other_work_when_captured(profiled: Profiled) -> None:
    pytest.importorskip("transformers")
    profile = profiled(BERT.replace("MASK", "mask = None"))
    replay, verdict = profile.replay, profile.verdict
    assert verdict is not None
    assert replay.work.same is False
    assert sum(change.count for change in replay.work.added) > 100
    assert verdict.basis == "predicted"
    # Beside other processes the kernels take longer, and nothing may be left to gain.
    gain = profile.metrics["removable_pct"].value
    assert gain is not None
    assert verdict.recommendation == ("unsafe" if gain >= profile.threshold_pct else "stay_eager")
    assert "LS033" in verdict.because or gain < profile.threshold_pct


# A mask of ones alone is found out and dropped by eager, not by a capture.
PADDED = "mask = torch.ones_like(ids)\nmask[:, 100:] = 0"


def test_bert_with_a_mask_does_the_same_work(profiled: Profiled) -> None:
    pytest.importorskip("transformers")
    profile = profiled(BERT.replace("MASK", PADDED))
    assert profile.replay.status in ("measured", "what_if"), profile.replay.reason
    assert profile.replay.work.same is True, profile.replay.work
