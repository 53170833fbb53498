"""Rewrites that go wrong, one for each way to go wrong: the comparison finds them.

A value that is wrong is printed, kept in a list, or given to a library.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from launchscope.adopt import verification
from launchscope.adopt.comparison import Difference, compare, compare_lines
from launchscope.adopt.marks import marked_at, marked_patched
from launchscope.adopt.mirror import Project
from launchscope.adopt.patch import Patch
from launchscope.adopt.record import RunTask
from launchscope.adopt.recorded_runs import RecordedRun, RecordedRuns
from launchscope.adopt.verification import Verifier
from launchscope.model import Target

pytestmark = pytest.mark.child

SETUP = """
import collections, copy, logging, random
import numpy
import torch
from torch import nn
torch.manual_seed(0)
log = logging.getLogger("run")
model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
kept, losses, last, best = [], [], collections.deque(maxlen=2), None
stats = {"steps": 0, "largest": 0.0}
average = model[0].weight.detach().clone()
count, seen, total = torch.zeros(()), 0, 0.0
class Meter:
    total = 0.0
    def __init__(self):
        self.last = 0.0
    def update(self, value):
        self.last = value
        Meter.total += value
meter = Meter()
def counter():
    number = 0
    def add():
        nonlocal number
        number += 1
    return add
add = counter()
def smooth(value):
    global total
    total = 0.9 * total + value
"""
STEP = """optimizer.zero_grad()
loss = nn.functional.cross_entropy(model(x + noise), y)
loss.backward()
nn.utils.clip_grad_norm_(model.parameters(), 0.5)
optimizer.step()"""
BEFORE = """x, y = torch.randn(16, 8), torch.randint(4, (16,))
noise = 0.1 * torch.randn(16, 8)
pick = random.random() + numpy.random.rand()"""
AFTER = """value = loss.item()
norm = model[0].weight.norm().item()
slope = model[0].weight.grad.norm().item()
rate = optimizer.param_groups[0]["lr"]
kept.append((at, value, norm, slope, rate))
losses.append(loss.detach())
last.append(pick)
log.info("step %d: %s", at, {"norm": norm})
print(at, f"{value:.5f} {slope:.5f}")
scheduler.step()
stats["steps"] += 1
stats["largest"] = max(stats["largest"], value)
average.lerp_(model[0].weight.detach(), 0.1)
count += 1
seen += len(x)
meter.update(value)
add()
smooth(value)
best = copy.deepcopy(model.state_dict())
with open("log.txt", "a") as file:
    file.write(f"{norm:.5f}\\n")"""
NORM = "norm = model[0].weight.norm().item()"
# By the way to go wrong: what is in the place of some lines. Of a moved line, nothing is left where
# it was. "call" is the call of the step.
CALL = "loss = step(x, y, noise)"
WRONG: dict[str, dict[str, str]] = {
    "a read that moves in front of the step": {f"{NORM}\n": "", CALL: f"{NORM}\n{CALL}"},
    "gradients that are zeroed before they are read": {
        "slope =": "optimizer.zero_grad(False)\nslope ="
    },
    "a rate that is read behind the scheduler": {
        "rate =": "scheduler.step()\nrate =",
        "\nscheduler.step()\nstats": "\nstats",
    },
    "random numbers in another order": {
        BEFORE.splitlines()[1]: "",
        BEFORE.splitlines()[0]: "\n".join(reversed(BEFORE.splitlines()[:2])),
    },
    "an average that is taken before the update": {
        CALL: f"average.lerp_(model[0].weight.detach(), 0.1)\n{CALL}",
        "average.lerp_(model[0].weight.detach(), 0.1)\ncount": "count",
    },
    "one tensor for all steps": {"losses.append(loss.detach())": "losses.append(same(loss))"},
    "a batch that is read after it changed": {CALL: f"{CALL}\nx.zero_()", "len(x)": "len(x) + 0"},
    "a name that became another variable": {"    global total\n": "    total = 0.0\n"},
    "an attribute of an object left out": {"        self.last = value\n": ""},
    "a variable of a closure left out": {"        number += 1\n": "        pass\n"},
    "an attribute of a class left out": {"        Meter.total += value\n": ""},
    "two statements of the host in another order": {
        "last.append(pick)\n": "",
        "pick = ": "last.append(pick if at else 0)\npick = ",
    },
    "an argument of a library from another step": {'{"norm": norm}': '{"norm": kept[-1][1]}'},
    "a line of a file left out": {"    file.write(": "    str("},
    "statistics of a layer that stand still": {
        "def step(x, y, noise):\n": "def step(x, y, noise):\n    model[1].eval()\n"
    },
    "a step that is skipped": {CALL: f"{CALL} if at != 3 or 'loss' not in globals() else loss"},
}
SAME = """def same(value, holder=[]):
    holder or holder.append(value.detach().clone())
    return holder[0].copy_(value.detach())
"""


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def original(after: str = AFTER) -> str:
    body = indented(f"{BEFORE}\n{STEP}\n{after}")
    return f"{SETUP}for at in range(5):\n{body}"


def patched(after: str = AFTER) -> str:
    step = f"@graphed\ndef step(x, y, noise):\n{indented(STEP)}    return loss.detach()\n"
    body = f"{BEFORE}\n{CALL}\n{after}"
    return f"{SETUP}from launchscope import graphed\n{step}for at in range(5):\n{body}\n"


def changed(text: str, edits: dict[str, str]) -> str:
    """The body of the loop is indented at the end, so that edits need not be."""
    for old, new in edits.items():
        assert text.count(old) == 1, (old, text.count(old))
        text = text.replace(old, new)
    head, loop, body = text.partition("for at in range(5):\n")
    return SAME + head + loop + indented(body)


class Runs:
    """Of one original script, recorded twice, and of its patched versions."""

    def __init__(self, verifier: Verifier, file: Path, source: str):
        self._verifier, self._file, self._source = verifier, file, source
        self._task = RunTask("record", 6)
        self._originals = [self._run(source, is_patch=False) for _ in range(2)]

    def _run(self, source: str, *, is_patch: bool) -> RecordedRun:
        before = self._source
        at = next(n for n, line in enumerate(before.splitlines(), 1) if "zero_grad" in line)
        patch = Patch(self._file, before.encode(), source.encode(), "step", at, at + 4, "step")
        marked = marked_patched(patch) if is_patch else marked_at(patch.before, at)
        assert marked is not None
        return self._verifier._recorded("", {self._file: marked.content}, self._task)[0]

    def difference(self, source: str) -> Difference | None:
        runs = (*self._originals, self._run(source, is_patch=True))
        found = compare(*(run.iterations for run in runs)).difference
        if found is not None:
            return found
        for _, *texts in verification._texts(*runs):
            lines = compare_lines(*texts)
            if isinstance(lines, Difference):
                return lines
        return None


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verifier]:
    folder, base = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("runs")
    (folder / "train.py").touch()
    with pytest.MonkeyPatch.context() as patch, RecordedRuns(lambda event: None) as runs:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        patch.setattr(verification, "environment", lambda scratch: {"TMPDIR": str(scratch)})
        patch.setattr(verification, "ENVIRONMENT", {})
        target = Target("script", "train.py")
        project = Project.of(target, folder)
        yield Verifier(runs, target, project, base, lambda text: None, steps=6)


@pytest.fixture(scope="module")
def runs(verifier: Verifier) -> Runs:
    return Runs(verifier, verifier._project.root / "train.py", original())


def test_the_right_rewrite_is_equal(runs: Runs) -> None:
    assert runs.difference(changed(patched(), {})) is None


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rewrite_is_found(runs: Runs, name: str) -> None:
    assert runs.difference(changed(patched(), WRONG[name])) is not None
