"""The replay in place: it computes what eager computes, and leaves no trace of itself."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import launchscope
from launchscope.model import OptimizerChange
from tests.gpu.conftest import ProfileScript, loop

pytestmark = pytest.mark.gpu

# Trains on a different batch each step, and saves its state when it is ended from outside.
SAVING = """
import sys
import torch
from torch import nn

limit, *without = map(int, sys.argv[2:])
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 8)).cuda()
optimizer = torch.optim.{optimizer}(model.parameters(), lr=1e-3)
batches = torch.randn(4000, 32, 64, device="cuda")
done, replayed = 0, []
try:
    for step in range(limit):
        if "step" in vars(optimizer):  # replaced: a replay whose state is put back
            replayed.append(step)
        if step in without:
            continue
        optimizer.zero_grad()
        loss = model(batches[step]).square().mean()
        loss.backward()
        optimizer.step()
        done += 1
finally:
    # A step that ended the run from within optimizer.step() was made all the same.
    counts = [s["step"] for s in optimizer.state.values() if "step" in s]
    torch.save(
        {{
            "params": [p.detach().cpu() for p in model.parameters()],
            "counts": [float(c) for c in counts],
            "on_host": [not c.is_cuda for c in counts],
            "capturable": [g.get("capturable") for g in optimizer.param_groups],
            "done": done,
            "replayed": replayed,
        }},
        sys.argv[1],
    )
"""


@pytest.mark.parametrize("optimizer", ["AdamW", "NAdam", "SGD"])
def test_training_goes_on_as_if_nothing_had_been_replayed(
    optimizer: str, tmp_path: Path, profile_script: ProfileScript
) -> None:
    saved = tmp_path / "state.pt"
    source = SAVING.format(optimizer=optimizer)
    ran = profile_script(source, args=(str(saved), "4000"))
    assert ran.measured.replay.status == "measured", ran.stdout
    under = torch.load(saved)
    steps, replayed = under["done"] + 1, under["replayed"]

    plain = tmp_path / "plain.pt"
    script = tmp_path / "plain.py"
    script.write_text(textwrap.dedent(source), encoding="utf-8")
    subprocess.run(
        [sys.executable, str(script), str(plain), str(steps), *map(str, replayed)], check=True
    )
    alone = torch.load(plain)
    assert steps > 60 + len(replayed) > 80
    for measured, expected in zip(under["params"], alone["params"], strict=True):
        torch.testing.assert_close(measured, expected, rtol=1e-5, atol=1e-7)
    for key in ("counts", "on_host", "capturable"):
        assert under[key] == alone[key]


def test_a_launch_bound_step_is_replayed_and_adopted(
    profile_script: ProfileScript,
) -> None:
    ran = profile_script(loop())
    profile = ran.measured
    assert ran.code == 0
    assert profile.replay.status == "measured"
    assert profile.replay.work.same is True
    assert profile.replay.changes == (OptimizerChange("AdamW", "capturable", True),)
    assert ran.verdict.recommendation == "adopt"
    assert ran.verdict.basis == "measured"
    assert ran.metric("speedup") > 2
    assert ran.metric("graph_nodes") > 20
    assert ran.metric("capture_ms") > 0
    assert ran.metric("break_even_steps") > 0


def test_a_batch_that_the_script_drops_is_kept_for_the_replays(
    profile_script: ProfileScript,
) -> None:
    """Labels out of range would trip a device assertion if their memory were reused."""
    between = "x, y = torch.randn(64, 128).cuda(), torch.randint(0, 10, (64,)).cuda()"
    ran = profile_script(loop(between=between))
    assert ran.measured.replay.status == "measured", ran.measured.replay.reason
    assert "assert" not in ran.stderr


def test_compiled_code_is_measured_compiled(profile_script: ProfileScript) -> None:
    source = loop().replace(
        ".cuda()\noptimizer", ".cuda()\nmodel = torch.compile(model)\noptimizer"
    )
    ran = profile_script(source)
    profile = ran.measured
    assert ran.step.compiled
    assert any("triton" in kernel.name for kernel in profile.kernels)
    assert profile.replay.status == "measured", profile.replay.reason
    assert [note for note in profile.notes if "run again" in note] == []


def test_a_value_that_is_read_beside_compiled_code_gives_a_what_if(
    profile_script: ProfileScript,
) -> None:
    source = (
        loop(inside="value = loss.item()", optimizer="SGD")
        .replace("nn.ReLU()", "nn.Softplus(), nn.Tanh(), nn.Sigmoid(), nn.Softsign(), nn.ELU()")
        .replace(".cuda()\noptimizer", ".cuda()\nmodel = torch.compile(model)\noptimizer")
    )
    ran = profile_script(source)
    replay = ran.measured.replay
    assert replay.status == "what_if", ran.replay_reason
    assert replay.work.added == ()
    # Eager kernels would be many more: the graph holds the compiled ones.
    assert ran.metric("graph_nodes") < ran.metric("launches_per_step") + 5


def test_measure_gives_the_same_profile_for_a_callable() -> None:
    model = torch.nn.Linear(64, 64).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    profile = launchscope.measure(step, torch.randn(8, 64, device="cuda"))
    assert profile.step is not None
    assert profile.step.boundary == "callable"
    assert profile.replay.status == "measured", profile.replay.reason
    assert profile.value("speedup") is not None
    again = launchscope.measure(step, torch.randn(8, 64, device="cuda"), replay=False)
    assert again.value("replay_ms") is None
    assert again.value("launches_per_step") == profile.value("launches_per_step")


def test_the_loop_of_a_notebook_is_replayed_and_goes_on_to_its_own_end() -> None:
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    shell.history_manager.enabled = False
    shell.run_cell("%load_ext launchscope").raise_error()
    for option, status in (("", "measured"), ("--no-replay", "skipped")):
        result = shell.run_cell(f"""%%launchscope {option}
import torch
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(8, 64, device="cuda")
for passes in range(300):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
stream = torch.cuda.current_stream()""")
        result.raise_error()
        assert result.result.profile.replay.status == status, result.result.profile.replay.reason
        assert shell.user_ns["passes"] == 299
        assert shell.user_ns["stream"] == torch.cuda.default_stream()
