"""What blocks inside an installed library names its line, and the person's that leads there."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from launchscope.model import Blocker, BlockerRecord, InspectResult
from tests.runner.children import PointResult, recorded

pytestmark = pytest.mark.child

ENCODER = textwrap.dedent(
    """
    import torch

    class Scale(torch.nn.Module):
        def forward(self, x):
            return x * torch.tensor([0.5], device="cuda")

    class Encoder(torch.nn.Module):
        def __init__(self, extra=None):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
            self.scales = torch.nn.ModuleList(Scale() for _ in range(16))
            self.extra = extra

        def forward(self, x, mask):
            longest = mask.sum().item()
            for scale in self.scales:
                x = scale(x)
            chosen = self.linear(x)[mask > 0]
            if self.extra is not None:
                chosen = self.extra(chosen)
            return chosen.sum() + longest

    class Read(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad * grad.sum().item()

    def run_backward(loss):
        loss.backward()
    """
)
SCRIPT = """
import sys
sys.path.insert(0, "SITE")
import torch
from toymodels.encoder import Encoder, Read, run_backward

class Own(torch.nn.Module):
    def forward(self, x):
        return x * x.detach().sum().item()

model = Encoder(Own()).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
mask = torch.ones(8, 4, device="cuda")
for _ in range(30):
    x = torch.randn(8, 4, device="cuda")
    loss = model(Read.apply(x.requires_grad_()), mask)
    optimizer.zero_grad()
    run_backward(loss)
    optimizer.step()
"""
CALL = "loss = model(Read.apply(x.requires_grad_()), mask)"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> PointResult:
    site = tmp_path_factory.mktemp("environment") / "site-packages"
    (site / "toymodels").mkdir(parents=True)
    (site / "toymodels" / "__init__.py").touch()
    (site / "toymodels" / "encoder.py").write_text(ENCODER)
    (site / "toymodels-1.2.0.dist-info").mkdir()
    (site / "toymodels-1.2.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: toymodels\nVersion: 1.2.0\n"
    )
    source = SCRIPT.replace("SITE", str(site))
    return recorded(tmp_path_factory.mktemp("project"), source)


@pytest.fixture(scope="module")
def inspected(run: PointResult) -> InspectResult:
    assert run.recording.inspect is not None
    return run.recording.inspect


def at(record: BlockerRecord | Blocker) -> str:
    """The file in the library, and the text of the line."""
    assert record.library is not None
    return f"{Path(record.library.where.file).name}: {record.library.code}"


@pytest.mark.parametrize(
    ("op", "line", "count"),
    [
        ("torch.tensor", 'return x * torch.tensor([0.5], device="cuda")', 16),
        ("aten._local_scalar_dense", "longest = mask.sum().item()", 1),
        ("aten.index", "chosen = self.linear(x)[mask > 0]", 1),
    ],
)
def test_a_blocker_in_a_library_has_its_line_and_the_persons(
    run: PointResult, inspected: InspectResult, op: str, line: str, count: int
) -> None:
    (found,) = (
        record
        for record in inspected.blockers
        if record.op == op and record.code == CALL and record.library is not None
    )
    assert at(found) == f"encoder.py: {line}"
    assert run.line(found.where) == CALL
    assert found.count == count
    assert found.library is not None
    assert (found.library.package, found.library.version) == ("toymodels", "1.2.0")


def test_a_call_of_the_step_names_the_package_that_makes_it(run: PointResult) -> None:
    assert run.recording.step is not None
    packages = {call.what: call.package for call in run.recording.step.calls}
    assert packages["backward"] == "toymodels"
    assert packages["forward"] is packages["step"] is None


def test_a_module_of_the_persons_that_a_library_calls_is_their_own(
    inspected: InspectResult,
) -> None:
    own = [record for record in inspected.blockers if record.code and "x.detach()" in record.code]
    assert [(record.library, record.count) for record in own] == [(None, 1)]


def test_a_library_that_starts_the_backward_is_not_blamed_for_it(
    run: PointResult, inspected: InspectResult
) -> None:
    found = {
        record.op.strip("_"): record.library and at(record)
        for record in inspected.blockers
        if run.line(record.where) == "run_backward(loss)"
    }
    assert found == {
        "aten.index_put": None,
        "aten._local_scalar_dense": "encoder.py: return grad * grad.sum().item()",
    }
