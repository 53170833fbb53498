"""What runs of two versions show, in real processes; CUDA graphs are emulated on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from launchscope.adopt import agreement, verification
from launchscope.adopt.agreement import Disagreement
from launchscope.adopt.comparison import Comparison
from launchscope.adopt.mirror import Project
from launchscope.adopt.observation import FORCED, Stretches
from launchscope.adopt.observed_runs import ObservedRun, ObservedRuns
from launchscope.adopt.patch import Patch, Place, rewrite
from launchscope.adopt.verification import NotVerifiedError, Verifier, units_per_call
from launchscope.model import Metric, Mutant, Target
from tests.adopt.running import observed

pytestmark = pytest.mark.child

HEAD = """
{head}
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
features = torch.randn(512, 16)
loader = DataLoader(TensorDataset(features, features[:, :4].argmax(1)), 32, shuffle=True)
model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Dropout(0.2), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused={fused})
loss_fn = nn.CrossEntropyLoss()
"""
EMULATED = "import tests.adopt.emulated_gpu"
STEP = """
optimizer.zero_grad()
loss = loss_fn(model(x), y)
loss.backward()
optimizer.step()
"""
LOOP = """
for epoch in range(30):
    for x, y in loader:
        {step}
        print(loss.item())
"""


def indented(text: str, spaces: int) -> str:
    return text.strip().replace("\n", "\n" + " " * spaces)


def original(head: str = "") -> str:
    made = HEAD.format(head=head, fused=bool(head))
    return made + LOOP.format(step=indented(STEP, 8))


def patched(head: str = "", step: str = STEP) -> str:
    made = HEAD.format(head=head, fused=bool(head)) + "from launchscope import graphed\n@graphed\n"
    made += f"def step(x, y):\n    {indented(step, 4)}\n    return loss.detach()\n"
    return made + LOOP.format(step="loss = step(x, y)")


def patch_in(folder: Path, before: str, after: str) -> Patch:
    file = folder / "train.py"
    folder.mkdir(exist_ok=True)
    file.write_text(before)
    return Patch(file, before.encode(), after.encode(), "step", 13, 16, "step")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("project")


@pytest.fixture(scope="module")
def patch(project: Path) -> Patch:
    saving = "        torch.save(model.state_dict(), 'model.pt')\n"
    return patch_in(project, original(EMULATED) + saving, patched(EMULATED) + saving)


@pytest.fixture(scope="module")
def verifiers(
    patch: Patch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Verifier]]:
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("CUDA_VISIBLE_DEVICES", "")
        # Another seed for hashes would need an interpreter of its own, which takes seconds.
        changed.setattr(verification, "environment", lambda scratch: {})
        with ObservedRuns(lambda event: None) as runs:
            target = Target("script", "train.py")
            project = Project.of(target, patch.file.parent)

            def make() -> Verifier:
                base = tmp_path_factory.mktemp("s")
                return Verifier(runs, target, project, base, lambda text: None)

            yield make


@pytest.fixture(scope="module")
def verifier(verifiers: Callable[[], Verifier]) -> Verifier:
    return verifiers()


@pytest.fixture(scope="module")
def eager(verifier: Verifier, project: Path) -> ObservedRun:
    (project / "model.pt").write_bytes(b"mine")
    return verifier.original()


def difference(eager: ObservedRun, other: ObservedRun, expected: int = 0) -> Disagreement | None:
    return Comparison.of_runs(eager, compared=Stretches().compared)(other, expected).found


def test_a_replayed_step_is_equal_through_everything_that_is_forced(
    verifier: Verifier, patch: Patch, eager: ObservedRun
) -> None:
    replayed = verifier.run(patch, 1)
    assert replayed.result is not None
    assert replayed.result.graphs
    assert replayed.result.forced == FORCED
    assert replayed.result.calls[-1].replayed > 120
    assert replayed.result.draws_random
    assert len(replayed.result.window_ms) >= 8
    found = Comparison.of_runs(eager, compared=Stretches().compared)(replayed)
    assert (found.exact, found.found) == (True, None)


@pytest.mark.parametrize("kind", ["frozen_rate", "stale_batch", "repeated_random", "left_out"])
def test_a_wrong_version_is_noticed(
    verifier: Verifier, patch: Patch, eager: ObservedRun, kind: Mutant
) -> None:
    mutant = verifier.run(patch, 1, kind)
    assert mutant.units == Stretches().mutant_until
    assert difference(eager, mutant)


@pytest.mark.parametrize(("between", "begins_steps"), [("model(features)", True), ("pass", False)])
def test_a_forward_between_two_steps_begins_none(
    verifiers: Callable[[], Verifier], project: Path, between: str, begins_steps: bool
) -> None:
    """In training mode it changes a running mean: the states before and behind it differ."""
    was = (project / "train.py").read_bytes()
    more = f"        {between}\n"
    patch = patch_in(project, original() + more, patched() + more)
    line = patch.before.decode().splitlines().index("        optimizer.zero_grad()") + 1
    patch = replace(patch, first_line=line, last_line=line + 3)
    verifier = verifiers()
    first, other = verifier.original(), verifier.run(patch, 1)
    assert (difference(first, other) is not None) == begins_steps
    aligned = verifier.suitable(patch, first)
    assert (aligned is not first) == begins_steps
    assert difference(aligned, other) is None
    (project / "train.py").write_bytes(was)


def test_another_gradient_is_noticed_in_the_first_step(
    verifier: Verifier, patch: Patch, eager: ObservedRun
) -> None:
    wrong = patched(EMULATED, STEP.replace("loss.backward()", "(2 * loss).backward()"))
    wrong = wrong.replace("range(30)", "range(1)")  # one difference is enough
    found = difference(eager, verifier.run(replace(patch, after=wrong.encode()), 1))
    assert found is not None
    assert (found.what, found.unit) == ("state", 1)


@pytest.mark.parametrize("read", ["float(weight.norm())", "weight.tolist()", "weight.cpu()"])
def test_a_value_that_is_read_behind_another_update_is_noticed(
    verifiers: Callable[[], Verifier], project: Path, read: str
) -> None:
    was = (project / "train.py").read_bytes()
    kept = f"weight = model[0].weight.detach(); kept = {read}"
    before = original().replace("optimizer.step()", f"{kept}\n        optimizer.step()")
    after = patched() + f"        {kept}\n"
    patch = patch_in(project, before, after.replace("range(30)", "range(1)"))
    verifier = verifiers()
    found = difference(verifier.original(), verifier.run(patch, 1))
    assert found is not None
    assert found.what == "read"
    (project / "train.py").write_bytes(was)


def test_a_run_writes_nothing_beside_the_script(project: Path, eager: ObservedRun) -> None:
    assert (project / "model.pt").read_bytes() == b"mine"
    assert sorted(path.name for path in project.iterdir()) == ["model.pt", "train.py"]
    assert eager.result is not None
    assert not eager.result.seeds_itself


def test_a_run_that_would_write_elsewhere_is_stopped(
    verifier: Verifier, patch: Patch, tmp_path: Path
) -> None:
    kept = tmp_path / "kept.pt"
    kept.write_bytes(b"mine")
    writing = patch.before.replace(b"'model.pt'", repr(str(kept)).encode())
    run = verifier.run(replace(patch, after=writing), None)
    assert run.first_to_fail.end.refused_write == str(kept)
    assert kept.read_bytes() == b"mine"


INFERENCE = """
{head}
import torch
from torch import nn
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))
inputs = torch.randn(32, 8, 16)
counts = torch.zeros(4)
with torch.inference_mode():
    for i in range(200):
        scores = model(inputs[i % 32])
        counts += scores.softmax(1).sum(0)
        best = model(scores.new_ones(1, 16)).argmax(1).tolist()
"""


@pytest.fixture
def inference(project: Path) -> Iterator[Patch]:
    file = project / "train.py"
    before = file.read_bytes()
    places = observed(INFERENCE.format(head="").encode(), file)[2]
    source = INFERENCE.format(head=EMULATED).encode()
    file.write_bytes(source)
    patch = rewrite(places, lambda path: source)
    assert isinstance(patch, Patch)
    yield patch
    file.write_bytes(before)


def test_an_inference_step_is_compared_by_its_outputs(
    verifiers: Callable[[], Verifier], inference: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier = verifiers()
    monkeypatch.setattr(Verifier, "_require_faster", lambda self, before, after: None)
    found = verifier.verify(inference, 1, verifier.original())
    assert found.step_by_step
    assert found.reason is None
    assert found.graphs
    assert found.agreement.exact
    assert found.replayed_pct == 100
    assert found.forced == ("state_dict",)
    outcomes = {mutant.kind: mutant.outcome for mutant in found.mutants}
    assert outcomes == {
        "stale_batch": "noticed",
        "repeated_random": "noticed",
    }


def test_another_output_of_an_inference_step_is_noticed(
    verifiers: Callable[[], Verifier], inference: Patch
) -> None:
    verifier = verifiers()
    wrong = inference.after.replace(b"return scores, best", b"return scores + 1e-5, best")
    found = verifier.verify(replace(inference, after=wrong), 1, verifier.original())
    assert found.reason is not None
    assert (found.reason.code, found.reason.details["unit"]) == ("state_differs", 1)
    assert found.reason.details["name"] == "output scores"


ADVERSARIES = """
{head}
import torch
from torch import nn
from torch.nn.functional import softplus
torch.manual_seed(0)
noise, real = torch.randn(200, 8, 4), torch.randn(200, 8, 16)
generator = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 16))
critic = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
critical = torch.optim.Adam(critic.parameters(), fused={fused})
generating = torch.optim.Adam(generator.parameters(), fused={fused})
{patch}
for i in range(200):
    {step}
"""
TWO_STEPS = """
critical.zero_grad()
fake = generator(noise)
(softplus(critic(fake.detach())) + softplus(-critic(real))).mean().backward()
critical.step()
generating.zero_grad()
softplus(-critic(fake)).mean().backward()
generating.step()
"""


@pytest.fixture
def adversaries(project: Path) -> Iterator[Patch]:
    """Two updates in one step, which the patch rounds in another way."""
    file = project / "train.py"
    before = file.read_bytes()
    inline = indented(TWO_STEPS, 4).replace("(noise)", "(noise[i])").replace("(real)", "(real[i])")
    graphed = "from launchscope import graphed\n@graphed\n"
    graphed += f"def step(noise, real):\n    {indented(TWO_STEPS, 4)}"
    one = ADVERSARIES.format(head=EMULATED, fused=False, patch="", step=inline)
    other = ADVERSARIES.format(
        head=EMULATED, fused=True, patch=graphed, step="step(noise[i], real[i])"
    )
    yield patch_in(project, one, other)
    file.write_bytes(before)


def test_steps_begin_with_the_states_of_the_original_where_no_backward_spans_two(
    verifiers: Callable[[], Verifier], adversaries: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each run, and then only the rounding of single steps is left."""
    verifier = verifiers()
    stretches = Stretches(0)
    monkeypatch.setattr(verifier, "_stretches", stretches)
    last = stretches.timed_from - 2
    verifier.states_every = 2
    kept = verifier.run(None, states="kept")
    rounded = verifier.run(None, perturbed=True, states="restored")
    other = verifier.run(adversaries, 2, states="restored")
    assert kept.result is not None
    assert kept.result.keeps_states
    for run in (rounded, other):
        assert run.first_to_fail.end.went_well, run.first_to_fail.said_last
        assert run.result is not None
        assert run.result.restored == tuple(range(2, last + 1, 2))
    found = Comparison.of_steps(kept, rounded, compared=stretches.compared)(other, last)
    assert (found.exact, found.found) == (False, None)


NORMALIZED = """{head}
import torch
from torch import nn
torch.manual_seed(0)
inputs = torch.randn(200, 64, 16)
model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters())
{patch}
for i in range(200):
    {step}
"""
ANY_ORDER = """
optimizer.zero_grad()
model(x{flip}).square().mean().backward()
optimizer.step()
"""


def test_a_gradient_that_is_nothing_but_rounding_may_be_another_one(
    verifiers: Callable[[], Verifier], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a bias in front of a batch normalization; runs of the original repeat its bits."""
    verifier = verifiers()
    stretches = Stretches(0)
    monkeypatch.setattr(verifier, "_stretches", stretches)
    file = project / "train.py"
    unchanged = file.read_bytes()
    inline = indented(ANY_ORDER.format(flip="").replace("(x", "(inputs[i]"), 4)
    graphed = "from launchscope import graphed\n@graphed\n"
    graphed += f"def step(x):\n    {indented(ANY_ORDER.format(flip='.flip(0)'), 4)}"
    patch = patch_in(
        project,
        NORMALIZED.format(head=EMULATED, patch="", step=inline),
        NORMALIZED.format(head=EMULATED, patch=graphed, step="step(inputs[i])"),
    )
    try:
        kept = verifier.run(None, states="kept")
        rounded = verifier.run(None, perturbed=True, states="restored")
        other = verifier.run(patch, 1, states="restored")
        stale = verifier.run(patch, 1, "stale_batch", states="restored")
    finally:
        file.write_bytes(unchanged)
    compare = Comparison.of_steps(kept, rounded, compared=stretches.compared)
    biases = [run.ranks[0].states[9].digests["Adam: exp_avg of 0.bias"] for run in (kept, other)]
    assert len(set(biases)) == 2
    found = compare(other, stretches.timed_from - 2)
    assert (found.exact, found.found) == (False, None)
    assert compare(stale, 0).found is not None


AN_UPDATE_MORE = """
    tuning.zero_grad()
    critic(generator(noise[i])).square().mean().backward()
    tuning.step()
"""


def test_steps_of_which_the_patch_moves_a_part_begin_with_the_same_states_in_all_runs(
    verifiers: Callable[[], Verifier],
    adversaries: Patch,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of three updates stays outside of the graphed function."""
    made = "\nboth = [*critic.parameters(), *generator.parameters()]\n"
    made += "tuning = torch.optim.SGD(both, lr=0.01)\nfor i in"
    before, after = (
        (text.decode() + AN_UPDATE_MORE).replace("\nfor i in", made)
        for text in (adversaries.before, adversaries.after)
    )
    (project / "train.py").write_text(before)
    lines = before.splitlines()
    patch = replace(
        adversaries,
        before=before.encode(),
        after=after.encode(),
        covered="part",
        first_line=lines.index("    critical.zero_grad()") + 1,
        last_line=lines.index("    generating.step()") + 1,
    )
    monkeypatch.setattr(Verifier, "_require_faster", lambda self, before, after: None)
    monkeypatch.setattr(agreement, "_FLOOR_EPSILONS", 0)  # other rounding is a difference
    compared: list[ObservedRun] = []
    monkeypatch.setattr(Comparison, "of_steps", partial(_noting, Comparison.of_steps, compared))
    verifier = verifiers()
    found = verifier.verify(patch, 2, verifier.original())
    assert found.reason is None
    assert (found.agreement.exact, found.agreement.units) == (False, 81)
    assert verifier.states_every == 3
    # The rates of the updates in the part.
    assert "frozen_rate" in {m.kind for m in found.mutants if m.outcome == "noticed"}
    restored = [run.result.restored for run in compared if run.result is not None]
    assert restored == [(), tuple(range(3, 82, 3))]


def _noting(
    make: Callable[..., Comparison], runs: list[ObservedRun], *args: Any, **more: Any
) -> Any:
    runs += args
    return make(*args, **more)


def _with_loss_times(factor: float, verifier: Verifier, patch: Patch) -> ObservedRun:
    """A wrong version of the patch."""
    text = patch.after.decode().replace("loss.backward", f"({factor} * loss).backward")
    return verifier.run(replace(patch, after=text.encode()), 1)


def test_a_difference_counts_only_if_it_is_there_again(
    verifier: Verifier, patch: Patch, eager: ObservedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A right version that differs once differs by chance; a wrong one differs in each run."""
    compared = Stretches().compared
    wrong, other = (_with_loss_times(factor, verifier, patch) for factor in (2, 3))
    right, runs = verifier.run(patch, 1), list[ObservedRun]()
    monkeypatch.setattr(verifier, "_patched", lambda patch, units: runs.pop(0))
    monkeypatch.setattr(verifier, "original", lambda **_: eager)
    for later in ([right], [other, right]):
        runs[:] = later
        compare = Comparison.of_runs(eager, compared=compared)
        found, _ = verifier._equal(patch, 1, wrong, [eager], compare)
        assert (found.found, runs) == (None, [])
    for later, left in ([wrong, right], 1), ([other, wrong, right], 1):
        runs[:] = later
        compare = Comparison.of_runs(eager, compared=compared)
        with pytest.raises(NotVerifiedError) as refused:
            verifier._equal(patch, 1, wrong, [eager], compare)
        assert refused.value.reason.code == "state_differs"
        assert len(runs) == left


def test_a_difference_that_a_perturbed_original_shows_too_is_that_of_a_tie(
    verifier: Verifier, patch: Patch, eager: ObservedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that are exact repeat what rounding decides; the patch may be on its other side."""
    compared = Stretches().compared
    far, near = (_with_loss_times(factor, verifier, patch) for factor in (2, 1.9))
    made: list[ObservedRun] = []
    originals = [eager, near]

    def original(**options: Any) -> ObservedRun:
        assert options["perturbed"]
        made.append(originals[len(made)])
        return made[-1]

    monkeypatch.setattr(verifier, "_patched", lambda patch, units: far)
    monkeypatch.setattr(verifier, "original", original)
    compare = Comparison.of_runs(eager, compared=compared)
    found, _ = verifier._equal(patch, 1, far, [eager], compare)
    assert (found.found, made) == (None, [eager, near])


def test_originals_are_perturbed_in_both_directions(verifier: Verifier) -> None:
    verifier._perturbed = 0
    plain, larger, smaller, again = (
        verifier.run(None, perturbed=perturbed) for perturbed in (False, True, True, True)
    )

    def weights(run: ObservedRun) -> list[float]:
        state = run.ranks[0].states[10]
        return [part for name in sorted(state.sketches) for part in state.sketches[name]]

    distances = [math.dist(weights(run), weights(plain)) for run in (larger, smaller)]
    assert min(distances) > 0
    assert math.dist(weights(larger), weights(smaller)) > max(distances)
    assert weights(again) == weights(larger)


BY_HAND = """
{head}
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
inputs = torch.randn(32, 8, 4)
for i in range(200):
    loss = model(inputs[{which}]).square().mean()
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.01 * p.grad
            p.grad = None
"""


@pytest.mark.parametrize(("which", "fault"), [("i % 32", "stale_batch"), ("0", "left_out")])
def test_a_step_with_updates_by_hand_is_compared_where_it_begins(
    verifiers: Callable[[], Verifier],
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    which: str,
    fault: str,
) -> None:
    file = project / "train.py"
    before = file.read_bytes()
    source = BY_HAND.format(head=EMULATED, which=which).encode()
    plain = BY_HAND.format(head="", which=which).encode()
    patch = rewrite(observed(plain, file)[2], lambda path: source)
    assert isinstance(patch, Patch)
    file.write_bytes(source)
    monkeypatch.setattr(Verifier, "_require_faster", lambda self, before, after: None)
    verifier = verifiers()
    found = verifier.verify(patch, 1, verifier.original())
    file.write_bytes(before)
    assert found.reason is None
    assert (found.agreement.exact, found.replayed_pct) == (True, 100)
    assert found.forced == ("evaluation", "state_dict")
    assert [(m.kind, m.outcome) for m in found.mutants if m.outcome != "not_applicable"] == [
        (fault, "noticed")
    ]


def test_the_steps_of_a_call_are_those_of_its_region(patch: Patch) -> None:
    def place(line: int) -> Place:
        return Place("step", ((str(patch.file), line, "<module>"),))

    assert units_per_call(patch, (place(14), place(16), place(20))) == 2


STALE = """value = loss.item()
        print(f"epoch {epoch} loss {shown:.4f}")
        shown = value"""


def test_a_patch_that_prints_the_value_of_the_step_before_is_refused(
    verifiers: Callable[[], Verifier], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the same values at the same times, and ends with the same parameters."""
    file = project / "train.py"
    was = file.read_bytes()
    read, right = "print(loss.item())", 'print(f"epoch {epoch} loss {loss.item():.4f}")'
    before, after = (text(EMULATED).replace(read, right) for text in (original, patched))
    stale = after.replace(right, STALE).replace("for epoch", "shown = 0.0\nfor epoch")
    patch = patch_in(project, before, after)
    lines = before.splitlines()
    first_line = lines.index("        optimizer.zero_grad()") + 1
    patch = replace(patch, first_line=first_line, last_line=first_line + 3)
    monkeypatch.setattr(Verifier, "_require_faster", lambda self, before, after: None)
    monkeypatch.setattr(
        Verifier, "_times", lambda self, *of: (Metric(2.0, "ms"), Metric(1.0, "ms"))
    )
    verifier = verifiers()
    first = verifier.original()
    found = verifier.verify(replace(patch, after=stale.encode()), 1, first)
    assert found.reason is not None
    assert found.reason.code == "printed_differs"
    wanted, printed = (str(found.reason.details[of]) for of in ("original", "patched"))
    assert wanted == first.ranks[0].printed.splitlines()[0]
    assert printed == "epoch 0 loss 0.0000"
    monkeypatch.setattr(Verifier, "_mutants", lambda self, *of, bits: ())
    found = verifier.verify(patch, 1, first)
    file.write_bytes(was)
    assert found.reason is None
    assert found.printed is not None
    assert found.printed >= Stretches().last - 1


def test_a_patch_that_writes_the_value_of_the_step_before_to_a_file_is_refused(
    verifiers: Callable[[], Verifier], project: Path
) -> None:
    file = project / "train.py"
    was = file.read_bytes()
    opening, right = "log = open('log.csv', 'w')", "print(loss.item(), file=log)"
    before, after = (
        text(EMULATED).replace("print(loss.item())", right).replace("for ep", f"{opening}\nfor ep")
        for text in (original, patched)
    )
    stale = after.replace(right, "value = loss.item(); print(shown, file=log); shown = value")
    stale = stale.replace(opening, f"{opening}\nshown = 0.0")
    patch = patch_in(project, before, stale)
    lines = before.splitlines()
    first_line = lines.index("        optimizer.zero_grad()") + 1
    patch = replace(patch, first_line=first_line, last_line=first_line + 3)
    (project / "notes.txt").write_text("as it was")
    verifier = verifiers()
    first = verifier.original()
    assert list(first.files) == ["log.csv"]
    found = verifier.verify(patch, 1, first)
    (project / "notes.txt").unlink()
    file.write_bytes(was)
    assert found.reason is not None
    assert (found.reason.code, found.reason.details["file"]) == ("printed_differs", "log.csv")


PREFETCHED = """
import torch
from torch import nn
{head}
data = torch.randn(400)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def get_batch():
    return torch.stack([data[i : i + 8] for i in torch.randint(392, (4,))])

x = get_batch()
for step in range(200):
    {step}
    if step % 2 == 0:
        print(loss.item(), bool(loss > 0))
"""


def test_an_index_that_a_batch_draws_is_no_value_of_the_step(
    verifiers: Callable[[], Verifier], project: Path
) -> None:
    """A patch draws it a step earlier than the original, before the forward."""
    was = (project / "train.py").read_bytes()
    step = ["loss = model(x).square().mean()", "x = get_batch()", "loss.backward()",
            "optimizer.step()", "optimizer.zero_grad()"]  # fmt: skip
    body = [step[0], *step[2:], "return loss.detach()"]
    graphed = "\n    ".join(["@graphed\ndef step_of(x):", *body])
    before = PREFETCHED.format(head="", step="\n    ".join(step))
    head = f"from launchscope import graphed\n{graphed}\n"
    calls = "held, x = x, get_batch()\n    loss = step_of(held)"
    after = PREFETCHED.format(head=head, step=calls)
    patch = replace(patch_in(project, before, after), first_line=14, last_line=18)
    verifier = verifiers()
    first, other = verifier.original(), verifier.run(patch, 1)
    found = Comparison.of_runs(first, compared=Stretches().compared)(other)
    assert (found.found, found.reads) == (None, 84)
    (project / "train.py").write_bytes(was)


@pytest.mark.parametrize(
    ("originals", "patched", "medians"),
    [
        ([3.0, 3.1], [2.0, 2.1], (3.05, 2.05)),
        ([3.0, 3.1, 3.2], [2.0, 2.6, 2.1], (3.1, 2.1)),  # one run of the patch was slow
        ([3.0, 3.0, 3.0, 3.0], [3.0, 3.1, 2.0, 2.0], (3.0, 2.5)),  # not faster at first
    ],
)
def test_both_versions_are_timed_again_where_their_runs_differ(
    verifier: Verifier,
    patch: Patch,
    eager: ObservedRun,
    monkeypatch: pytest.MonkeyPatch,
    originals: list[float],
    patched: list[float],
    medians: tuple[float, float],
) -> None:
    def timed(ms: float) -> ObservedRun:
        [rank] = eager.ranks
        assert rank.result is not None
        result = replace(rank.result, window_ms=(ms,) * 9, graphs=True)
        return ObservedRun((replace(rank, result=result),))

    before, after = ([timed(ms) for ms in times] for times in (originals, patched))
    more = {"original": before[2:], "patched": after[2:]}
    monkeypatch.setattr(verifier, "original", lambda: more["original"].pop(0))
    monkeypatch.setattr(verifier, "_patched", lambda patch, units: more["patched"].pop(0))
    found = verifier._times(patch, 1, before[:2], after[:2])
    assert tuple(metric.value for metric in found) == pytest.approx(medians)
    assert more == {"original": [], "patched": []}


PHASES = """
{head}
import torch
from torch import nn
torch.manual_seed(0)
data = {{"train": torch.randn(8, 16, 4), "val": torch.randn(3, 16, 4)}}
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
for epoch in range(30):
    for phase in ("train", "val"):
        model.train(phase == "train")
        total = 0.0
        for x in data[phase]:
            optimizer.zero_grad()
            with torch.set_grad_enabled(phase == "train"):
                scores = model(x)
                loss = nn.functional.cross_entropy(scores, (x.sum(1) > 0).long())
                if phase == "train":
                    loss.backward()
                    optimizer.step()
            total += loss.item()
        print(phase, total)
"""


def test_a_step_that_is_also_called_to_evaluate_is_compared_where_it_trains(
    verifiers: Callable[[], Verifier], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the loop of PyTorch's tutorial on transfer learning is."""
    file = project / "train.py"
    before = file.read_bytes()
    source = PHASES.format(head=EMULATED).encode()
    patch = rewrite(observed(PHASES.format(head="").encode(), file)[2], lambda path: source)
    assert isinstance(patch, Patch)
    file.write_bytes(source)
    monkeypatch.setattr(Verifier, "_require_faster", lambda self, before, after: None)
    monkeypatch.setattr(
        Verifier, "_times", lambda self, *of: (Metric(2.0, "ms"), Metric(1.0, "ms"))
    )
    verifier = verifiers()
    found = verifier.verify(patch, 1, verifier.original())
    file.write_bytes(before)
    assert found.reason is None
    assert found.agreement.exact
    assert found.printed
