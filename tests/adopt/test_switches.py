"""Branches that a short run never takes: both versions take them once, in real processes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from launchscope.adopt import verification
from launchscope.adopt.marks import iterating_original, iterating_patched, switches_of
from launchscope.adopt.mirror import Project
from launchscope.adopt.observation import EVENT_EVERY, WINDOW, WINDOWS, Stretches
from launchscope.adopt.observed_runs import ObservedRuns
from launchscope.adopt.patch import Patch
from launchscope.adopt.switches import candidates
from launchscope.adopt.verification import Verification, Verifier
from launchscope.model import Metric, Target

HEAD = """
import tests.adopt.emulated_gpu
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
x, labels = torch.randn(32, 8), torch.arange(32) % 2
clip, rounds, smooth, shown, worst = 5.0, 1, False, [], 0.0
"""
STEP = """
optimizer.zero_grad()
loss = nn.functional.cross_entropy(model(x), labels)
if smooth:
    loss = loss + 0.1 * model[0].weight.pow(2).sum()
for _ in range(rounds):
    loss = loss + model[2].weight.pow(2).sum()
loss.backward()
if clip:
    nn.utils.clip_grad_norm_(model.parameters(), clip / 100)
optimizer.step()
"""
BEHIND = """
if (step + 1) % 1000 == 0:
    shown.append(loss.item())
    print("loss", loss.item())
"""
GRAPHED = (
    "from launchscope import graphed\n@graphed\ndef train_step():\n{step}\n    return loss.detach()"
)

LOOP = "for _ in range(rounds)"


def indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.strip().splitlines())


def original(step: str = STEP, behind: str = BEHIND) -> str:
    return f"{HEAD}for step in range(250):\n{indented(step)}\n{indented(behind)}\n"


def patched(step: str = STEP, behind: str = BEHIND, call: str = "loss = train_step()") -> str:
    made = GRAPHED.format(step=indented(step))
    return f"{HEAD}{made}\nfor step in range(250):\n    {call}\n{indented(behind)}\n"


def patch_of(folder: Path, before: str, after: str) -> Patch:
    file = folder / "train.py"
    file.write_text(before)
    lines = before.splitlines()
    first = lines.index("    optimizer.zero_grad()") + 1
    last = lines.index("    optimizer.step()") + 1
    return Patch(file, before.encode(), after.encode(), "train_step", first, last, "step")


MUTANTS = Verifier._mutants
Verify = Callable[[str, str], Verification]


@pytest.fixture(scope="module")
def runs() -> Iterator[ObservedRuns]:
    with ObservedRuns(lambda event: None) as made:
        yield made


@pytest.fixture
def verify(runs: ObservedRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verify:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(verification, "environment", lambda scratch: {})
    monkeypatch.setattr(Verifier, "_require_faster", lambda self, before, after: None)
    times = Metric(2.0, "ms"), Metric(1.0, "ms")
    monkeypatch.setattr(Verifier, "_times", lambda self, *of: times)
    monkeypatch.setattr(Verifier, "_mutants", lambda self, *of, bits: ())

    def verified(before: str, after: str) -> Verification:
        (tmp_path / "s").mkdir()
        patch = patch_of(tmp_path, before, after)
        target = Target("script", "train.py")
        project = Project.of(target, tmp_path)
        verifier = Verifier(runs, target, project, tmp_path / "s", lambda text: None, steps=6)
        return verifier.verify(patch, 1, verifier.original())

    return verified


@pytest.mark.child
def test_a_right_patch_stays_equal_through_all_branches(verify: Verify) -> None:
    found = verify(original(), patched())
    assert found.reason is None
    assert found.switched == ("smooth", LOOP, "clip", "(step + 1) % 1000 == 0")
    assert found.not_switched == ()
    assert (found.printed, found.agreement.exact, found.replayed_pct) == (6, True, 100.0)


CLIPS = "if clip:\n    nn.utils.clip_grad_norm_(model.parameters(), clip / 100)"
ALWAYS = "nn.utils.clip_grad_norm_(model.parameters(), clip / 100)\nif clip:\n    pass"
ROUND = "    loss = loss + model[2].weight.pow(2).sum()"
SHOWS = 'print("loss", loss.item())'


@pytest.mark.child
@pytest.mark.parametrize(
    ("step", "behind", "code"),
    [
        (STEP.replace(CLIPS, ALWAYS), BEHIND, "state_differs"),
        (STEP.replace(ROUND, f"    pass\n{ROUND.strip()}"), BEHIND, "state_differs"),
        (STEP, BEHIND.replace(SHOWS, 'print("loss", loss.item() + 1)'), "printed_differs"),
        (STEP, BEHIND.replace("shown.append(loss.item())", "shown.append(loss.item() + 1)"),
         "held_value_differs"),
        (STEP, BEHIND.replace(SHOWS, 'print("loss", scores)'), "patched_failed"),
    ],
    ids=["clips", "has_a_round", "prints_another_value", "keeps_another_value", "loses_a_name"],
)  # fmt: skip
def test_what_goes_wrong_only_in_a_branch_that_a_short_run_never_takes_is_noticed(
    verify: Verify, step: str, behind: str, code: str
) -> None:
    found = verify(original(), patched(step, behind))
    assert found.reason is not None
    assert found.reason.code == code


@pytest.mark.child
def test_a_branch_in_which_the_original_fails_is_left_out(verify: Verify) -> None:
    fails = STEP.replace("0.1 * model[0]", "0.1 * model.missing")
    found = verify(original(fails), patched(fails))
    assert found.reason is None
    assert found.switched == (LOOP, "clip", "(step + 1) % 1000 == 0")
    assert found.not_switched == ("smooth",)


@pytest.mark.child
def test_a_branch_that_makes_the_state_nan_is_left_out(verify: Verify) -> None:
    """What comes behind it could not be compared."""
    spoils = STEP.replace("loss + 0.1 * model[0].weight.pow(2).sum()", "loss / 0.0")
    found = verify(original(spoils), patched(spoils))
    assert found.reason is None
    assert found.switched == (LOOP, "clip", "(step + 1) % 1000 == 0")
    assert found.not_switched == ("smooth",)


@pytest.mark.child
def test_a_test_that_is_never_made_is_not_said_to_have_been_switched(verify: Verify) -> None:
    inner = STEP.replace("if smooth:\n    loss =", "if smooth:\n    if shown:\n        loss =")
    inner = inner.replace("if smooth", "if smooth is True")
    found = verify(original(inner), patched(inner))
    assert found.reason is None
    assert found.switched == ("smooth is True", LOOP, "clip")
    assert found.not_switched == ("shown",)


@pytest.mark.child
def test_a_step_in_another_branch_may_draw_compute_inputs_and_call_the_model_beside_itself(
    verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of that is a part of the usual step, in which mutants of the patch must be noticed."""
    step = STEP.replace("model(x)", "model(x + torch.randn_like(x) if smooth else x)")
    behind = BEHIND.replace("loss.item())\n", "held[0](x).sum().item())\n", 1)
    head = "shown, worst = [nn.BatchNorm1d(2)], 0.0\nheld = [model.append(shown.pop())]\n"
    before, after = (text.replace("for step", head + "for step") for text in
                     (original(step, behind), patched(step, behind)))  # fmt: skip
    monkeypatch.setattr(Verifier, "_mutants", MUTANTS)
    found = verify(before, after)
    assert found.reason is None
    assert found.switched == ("smooth", LOOP, "clip", "(step + 1) % 1000 == 0")
    assert [(mutant.kind, mutant.outcome) for mutant in found.mutants] == [
        ("frozen_rate", "noticed"),
        ("stale_batch", "not_applicable"),
        ("repeated_random", "not_applicable"),
    ]


@pytest.mark.child
def test_a_script_that_is_too_short_for_all_branches_takes_the_first_ones(verify: Verify) -> None:
    lasts = Stretches.of(6).switched_from + WINDOW * WINDOWS + 2 * EVENT_EVERY
    short = (text.replace("range(250)", f"range({lasts})") for text in (original(), patched()))
    found = verify(*short)
    assert found.reason is None
    assert found.switched == ("smooth", LOOP)
    assert found.not_switched == ("clip", "(step + 1) % 1000 == 0")


def found_in(text: str, first: int = 1, last: int = 99) -> tuple[str, ...]:
    return candidates(ast.parse(dedent(text)).body, first, last)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("if a and not b: f()", ("a", "b")),
        ("x = y if a > 3 else z", ("a > 3",)),
        ("if a: f()\nelif b: g()", ("a", "b")),
        ("if a: f()\nif a: g()", ("a",)),
        ("if a: raise ValueError", ()),
        ("if a:\n    f()\n    if b: exit()", ()),
        ("if a: f()\nfor p in q:\n    if a: break", ()),
        ("if a: optimizer.step()", ()),
        ("x = x.cuda() if use_cuda else x", ()),
        ("if isinstance(x, dict): f()", ()),
        ("if 'label' in x: f()", ()),
        ("if x is not None: f()", ("x is not None",)),
        ("for p in a: p.f()", ("for p in a",)),
        ("for x in a: f(x).backward()", ()),
        ("for p in net.parameters(): p.f()", ()),
        ("def inner():\n    if a: f()", ()),
    ],
)
def test_which_tests_of_a_step_may_be_switched(text: str, found: tuple[str, ...]) -> None:
    assert found_in(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("if a: print(x)", ("a",)),
        ("if a: writer.add_scalar('loss', loss.item(), step)", ("a",)),
        ("if a: evaluate(model)", ()),
        ("if a:\n    for x in xs: print(x)", ()),
        ("if a: trainer.validate()", ()),
        ("for x in xs: print(x)", ()),
        ("if a:\n    for x in xs: print(x)\n    if b: print(x)", ()),
        ("if a:\n    print(x)\n    if b: print(y)", ("a",)),
    ],
)
def test_beside_the_step_only_what_takes_no_time_is_tried(
    text: str, found: tuple[str, ...]
) -> None:
    assert found_in(text, 90) == found


def test_a_test_that_the_patch_does_not_have_is_left_out(tmp_path: Path) -> None:
    patch = patch_of(tmp_path, original(), patched(STEP.replace("if clip", "if clip > 0")))
    assert switches_of(patch, marked=False) == ("smooth", LOOP, "(step + 1) % 1000 == 0")


TESTS = """
if a is not None and (a if b else c).d(
    1,  # a comment
) > 3:
    e = f if not g.h else f"{1 if i else 2}"
elif j is None or k(): pass
"""


def test_tests_keep_their_meaning_and_their_lines(tmp_path: Path) -> None:
    step = f"optimizer.zero_grad()\n{TESTS.strip()}\noptimizer.step()"
    before, after = original(step), patched(step)
    patch = patch_of(tmp_path, before, after)
    names = switches_of(patch, marked=False)
    assert names == ("a is not None", "(a if b else c).d(1) > 3", "b", "g.h")
    plain = [iterating_original(patch, marked=False), iterating_patched(patch)]
    changed = [iterating_original(patch, marked=False, switches=names),
               iterating_patched(patch, names)]  # fmt: skip
    for one, two, text in zip(plain, changed, (before, after)):
        assert one.content.count(b"\n") == two.content.count(b"\n")
        assert (one.first, one.added) == (two.first, two.added)
        compile(two.content, "train.py", "exec")
        assert two.content.count(b"setdefault") == len(names)
        assert text.encode() != two.content


@pytest.mark.child
@pytest.mark.parametrize(
    ("since", "zeroed", "code"),
    [(0, "", None), (0, "model[0].bias", "state_differs"), (20, "", None),
     (20, "model[0].bias", "state_differs")],
)  # fmt: skip
def test_a_model_that_trains_in_eval_mode_is_compared(
    verify: Verify, since: int, zeroed: str, code: str | None
) -> None:
    """For good, or since an evaluation that has left it on."""
    behind = f"if step >= {since}:\n    model.eval()"
    step = STEP.replace("optimizer.step()", f"{zeroed}.grad.zero_()\noptimizer.step()")
    texts = original(STEP, behind), patched(step if zeroed else STEP, behind)
    found = verify(*(text.replace("nn.ReLU()", "nn.BatchNorm1d(16)") for text in texts))
    assert (found.reason and found.reason.code) == code


def test_a_test_for_given_steps_may_be_switched() -> None:
    step = "if step in (250, 500):\n    shown.append(1)\nif name in known:\n    shown.append(known)"
    assert candidates(ast.parse(step).body, 1, 4) == ("step in (250, 500)",)
