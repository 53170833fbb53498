"""What runs of two versions show, in real processes; CUDA graphs are emulated on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import pytest

from launchscope.adopt import verification
from launchscope.adopt.mirror import Project
from launchscope.adopt.patch import Patch
from launchscope.adopt.recorded_runs import RecordedRuns
from launchscope.adopt.verification import Verification, Verifier, _line_before
from launchscope.model import Target

pytestmark = pytest.mark.child

HEAD = """{head}
import logging
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
features = torch.randn(512, 16)
loader = DataLoader(TensorDataset(features, features[:, :4].argmax(1)), 32, shuffle=True)
model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Dropout(0.2), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused={fused})
loss_fn = nn.CrossEntropyLoss()
losses = []
"""
EMULATED = "import tests.adopt.emulated_gpu"
STEP = """optimizer.zero_grad()
{0}loss = loss_fn(model(x), y)
{0}loss.backward()
{0}optimizer.step()"""
LOOP = """for epoch in range(30):
    for at, (x, y) in enumerate(loader):
        {step}
        {host}
"""
HOST = "losses.append(loss.item())"
LATER = """
        if at == 9 and epoch == 0:
            print(epoch)
        if epoch > 100:
            print("never")"""
Checks = Callable[..., Verification]


def original(head: str = "", host: str = HOST) -> str:
    made = HEAD.format(head=head, fused=bool(head))
    return made + LOOP.format(step=STEP.format(" " * 8), host=host)


def patched(head: str = "", host: str = HOST, step: str = STEP) -> str:
    made = HEAD.format(head=head, fused=bool(head)) + "from launchscope import graphed\n@graphed\n"
    made += f"def step(x, y):\n    {step.format(' ' * 4)}\n    return loss.detach()\n"
    return made + LOOP.format(step="loss = step(x, y)", host=host)


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Checks]:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    # Another seed for hashes would need an interpreter of its own, which takes seconds.
    monkeypatch.setattr(verification, "environment", lambda scratch: {"TMPDIR": str(scratch)})
    monkeypatch.setattr(verification, "ENVIRONMENT", {})
    folder = tmp_path / "project"
    folder.mkdir()
    with RecordedRuns(lambda event: None) as runs:

        def checked(before: str, after: str, beside: str = "") -> Verification:
            file = folder / "train.py"
            file.write_text(before)
            first = next(n for n, line in enumerate(before.splitlines(), 1) if "zero_grad" in line)
            patch = Patch(file, before.encode(), after.encode(), "step", first, first + 3, "step")
            patch = replace(patch, reference=beside.encode())
            target = Target("script", "train.py")
            project = Project.of(target, folder)
            base = Path(mkdtemp(dir=tmp_path))
            verifier = Verifier(runs, target, project, base, lambda text: None, steps=6)
            return verifier.verify(patch)

        yield checked


def test_an_equal_source_is_compared_until_all_lines_have_run(check: Checks) -> None:
    sources = original(host=HOST + LATER), patched(host=HOST + LATER)
    found = check(*(source.replace("range(30)", "range(2)") for source in sources))
    assert found.reason is None
    assert not found.graphs
    assert found.comparison.exact
    assert found.comparison.reads == found.comparison.iterations >= 10
    source = original(host=HOST + LATER).splitlines()
    assert [source[line - 1].strip() for line in found.unreached] == ['print("never")']
    assert found.printed == 1
    assert not found.seeded


@pytest.mark.parametrize(
    ("host", "wrong", "kind", "name"),
    [
        ("losses.append(loss.item())", "losses.append(2 * loss.item())", "end", "losses[0]"),
        ("logging.info('%s', at)", "logging.info('%s', at + 1)", "given", "info(args)[0]"),
        ("at = loss.item()", "at = float(2 * loss)", "read", "aten._local_scalar_dense"),
    ],
)
def test_a_wrong_host_line_is_found_where_it_is_kept_or_given_away(
    check: Checks, host: str, wrong: str, kind: str, name: str
) -> None:
    reason = check(original(host=host), patched(host=wrong)).reason
    assert reason is not None
    assert reason.code == "value_differs"
    assert (reason.details["kind"], reason.details["name"]) == (kind, name)


def test_another_update_is_found_in_the_state(check: Checks) -> None:
    wrong = STEP.replace("loss.backward()", "(2 * loss).backward()")
    reason = check(original(), patched(step=wrong)).reason
    assert reason is not None
    assert reason.details["kind"] == "state"
    assert reason.details["unit"] == 1


def test_what_the_patch_changes_beside_the_step_is_changed_in_the_original(check: Checks) -> None:
    """Here a line above the step, and an argument that the loader holds at the end."""

    def beside(source: str) -> str:
        return source.replace("loader = ", "torch.set_num_threads(1)\nloader = ").replace(
            "shuffle=True", "shuffle=True, pin_memory=torch.cuda.is_available(), timeout=0.0"
        )

    assert check(original(), beside(patched()), beside(original())).reason is None
    reason = check(original(), beside(patched())).reason
    assert reason is not None
    assert reason.details["name"] == "loader.timeout"


def test_a_faster_patch_is_verified(check: Checks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "_FASTER_PCT", -1e6)  # a CPU emulates the other graphs only
    found = check(original(EMULATED), patched(EMULATED))
    assert found.reason is None
    assert found.after is not None
    assert found.replayed_pct == 100.0


def test_a_line_of_the_changed_file_is_shown_as_that_of_the_persons() -> None:
    before, after = b"a\nstep\nb\nstep\n", b"import graphed\nstep\ncall()\na\nb\nstep\n"
    patch = Patch(Path("train.py"), before, after, "train_step", 3, 4, "step")
    lines = [_line_before(patch, after, line) for line in range(1, 7)]
    assert lines == [3, 2, 3, 1, 3, 4]


def test_replays_are_checked_and_both_versions_timed(check: Checks) -> None:
    found = check(original(EMULATED), patched(EMULATED))
    assert found.reason is not None
    assert found.reason.code == "not_faster"  # nor can it be, on a CPU
    assert found.runs >= 10


def test_a_script_that_fails_or_writes_elsewhere_is_not_verified(
    check: Checks, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "result.txt"
    writes = original(host=f"open({str(elsewhere)!r}, 'w').write('x')")
    reason = check(writes, patched()).reason
    assert reason is not None
    assert reason.code == "writes_outside"
    assert not elsewhere.exists()
    reason = check(original(host="1 / 0"), patched()).reason
    assert reason is not None
    assert "ZeroDivisionError" in str(reason.details["error"])
