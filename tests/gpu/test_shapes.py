"""Steps whose input shapes vary: those that come back are captured and measured one by one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.gpu.conftest import Profiled, recommends

pytestmark = pytest.mark.gpu

SAMPLES = Path(__file__).parents[2] / "sample_workloads"

HEAD = """
import torch
from torch import nn
torch.manual_seed(0)
blocks = [nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True) for _ in range(4)]
net = nn.Sequential(nn.Embedding(100, 64), *blocks, nn.Linear(64, 8)).cuda()
LENGTHS = {lengths}
"""
SERVES = """
net.eval()
with torch.inference_mode():
    for step in range(1500):
        ids = torch.randint(0, 100, (8, LENGTHS[step % len(LENGTHS)]), device="cuda")
        out = net(ids)
"""
TRAINS = """
optimizer = torch.optim.AdamW(net.parameters())
for step in range(1500):
    ids = torch.randint(0, 100, (8, LENGTHS[step % len(LENGTHS)]), device="cuda")
    optimizer.zero_grad()
    loss = net(ids).square().mean()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("loop", [SERVES, TRAINS], ids=["serves", "trains"])
@pytest.mark.parametrize("lengths", [[16, 16, 32, 48, 64, 128], [16, 16, 64]], ids=["5", "2"])
def test_lengths_that_come_back_are_measured_and_weighted(
    profiled: Profiled, loop: str, lengths: list[int]
) -> None:
    profile = profiled(HEAD.format(lengths=lengths) + loop)
    shapes = profile.replay.shapes
    assert len(shapes) == min(4, len(set(lengths))), profile.replay.reason
    assert 80.0 < sum(shape.share_pct for shape in shapes) <= 100.0
    assert all(shape.replay_ms < shape.eager_ms for shape in shapes)
    assert shapes[0].inputs[0].dims == (8, 16)
    assert shapes[0].share_pct == pytest.approx(100 * 2 / len(lengths), abs=10)
    assert profile.verdict is not None
    assert profile.verdict.basis == "measured"
    recommends(profile, "adopt_bucketed")


@pytest.mark.parametrize("loop", [SERVES, TRAINS], ids=["serves", "trains"])
def test_lengths_that_never_come_back_are_measured_at_a_few_sizes(
    profiled: Profiled, loop: str
) -> None:
    lengths = random.Random(0).sample(range(16, 416), 400)
    profile = profiled(HEAD.format(lengths=lengths) + loop)
    padded = profile.replay.padded
    assert profile.replay.shapes == ()
    assert 1 <= len(padded) <= 4, profile.notes
    sizes = [shape.inputs[0].dims[1] for shape in padded]
    assert sizes == sorted(sizes)
    assert sizes[-1] > 300
    assert 80.0 < sum(shape.share_pct for shape in padded) <= 100.0
    assert all(0.0 < shape.replay_ms < shape.eager_ms for shape in padded)
    assert profile.replay.padding_pct is not None
    assert 0.0 < profile.replay.padding_pct < 70.0
    assert profile.verdict is not None
    assert profile.verdict.basis == "measured"
    recommends(profile, "adopt_bucketed", "stay_eager")


def test_lengths_that_come_back_are_measured_beside_what_the_step_reads(
    profiled: Profiled,
) -> None:
    reads = TRAINS.replace("loss.backward()", "loss.backward()\n    value = loss.item()")
    profile = profiled(HEAD.format(lengths=[16, 16, 64]) + reads)
    assert len(profile.replay.shapes) == 2, profile.notes
    assert profile.replay.status == "what_if"
    recommends(profile, "adopt_after_fixes")


def test_a_growing_cache_is_measured_at_its_longest(profiled: Profiled) -> None:
    profile = profiled((SAMPLES / "generate.py").read_text())
    (padded,) = profile.replay.padded
    assert padded.inputs[1].dims[2] >= 70  # of a cache that grows from 48 to 79
    assert 80.0 < padded.share_pct < 99.0  # a prompt stays eager
    assert 0.0 < padded.replay_ms < padded.eager_ms
    assert profile.verdict is not None
    assert profile.verdict.basis == "measured"
    if recommends(profile, "adopt_after_fixes"):
        assert "static cache" in profile.verdict.instructions[0]


GENERATES = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=100, hidden_size=128, intermediate_size=256, num_hidden_layers=4,
    num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=512,
)
model = LlamaForCausalLM(config).cuda().eval()
for prompt in range(40):
    ids = torch.randint(2, 100, (2, 16), device="cuda")
    out = model.generate(
        ids, max_new_tokens=32, min_new_tokens=32, do_sample=False, pad_token_id=0, eos_token_id=1
    )
"""


def test_a_growing_cache_of_transformers_is_measured_at_its_longest(profiled: Profiled) -> None:
    pytest.importorskip("transformers")
    profile = profiled(GENERATES)
    (padded,) = profile.replay.padded
    assert max(tensor.dims[-2] for tensor in padded.inputs if len(tensor.dims) == 4) >= 40
    assert 80.0 < padded.share_pct < 99.0
    assert 0.0 < padded.replay_ms < padded.eager_ms
    advice = [finding.advice for finding in profile.findings if finding.code == "LS010"]
    assert any('cache_implementation="static"' in text for text in advice)
    if recommends(profile, "adopt_after_fixes"):
        assert profile.verdict is not None
        assert "static cache" in profile.verdict.headline
