from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.corpus import __main__ as corpus
from tests.benchmarks.corpus import by_hand
from tests.benchmarks.corpus.by_hand import ByHand, Edit, EditError

SOURCE = """\
import torch
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(1000):
    batch = torch.rand(2 if number == 4 else 5, 3)
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
"""
STEP = """\
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()"""
BY_HAND = ByHand(
    "a-script",
    "nothing else",
    [
        Edit(
            "run.py",
            ["import torch"],
            ["import torch", "from tests.benchmarks.corpus.stopwatch import Captured, step_done"],
        ),
        Edit("run.py", ["    optimizer.step()"], ["    optimizer.step()", "    step_done(loss)"]),
    ],
    [
        Edit(
            "run.py",
            ["for number in range(1000):"],
            [
                "@Captured",
                "def train_step(batch):",
                *STEP.splitlines(),
                "    return loss.detach()",
                "for number in range(1000):",
            ],
        ),
        Edit(
            "run.py",
            ["3)", *STEP.splitlines(), "    step_done(loss)"],
            ["3)", "    loss = train_step(batch)", "    step_done(loss)"],
        ),
    ],
    block=5,
)
SCRIPT = corpus.Script(
    "a-script", "vision", "plain", "owner/name", "inside", ["run.py"], {}, [], True
)
PLAN = by_hand.Plan(rounds=1, compared=8, timed=20, limit_s=5, process_s=60)
SAID = {"verdict": "adopt", "removable_pct": 40.0, "replay_ms": 0.5}


def fake_repository(folder: Path) -> Path:
    inside = folder / "owner+name" / "inside"
    inside.mkdir(parents=True)
    (inside / "run.py").write_text(SOURCE)
    return inside


def run(ms: float, *, replays: int | None = None, **more: Any) -> dict[str, Any]:
    """What the stopwatch writes; of a captured step if `replays` is given."""
    return {
        "device": "a GPU", "torch": "2.11.0", "losses": [2.0, 1.0], "iterations": 20,
        "blocks_ms": [ms, ms, 9 * ms], "overall_ms": ms, "aside": [],
        "replays": [] if replays is None else [replays],
        "replay_ms": None if replays is None else 0.48,
    } | more  # fmt: skip


def test_there_are_edits_for_scripts_of_the_sample() -> None:
    scripts = {script.id for script in corpus.sample()}
    paths = sorted(by_hand.EDITS.glob("*.json"))
    assert len(paths) >= 10
    for path in paths:
        found = by_hand.read(path)
        assert found.id in scripts
        assert found.note
        put = ["\n".join(line for edit in edits for line in edit.put) for edits in found[2:4]]
        assert "step_done(" in put[0]
        assert "capturable=True" in put[1], found.id
        assert "Captured" in put[1]


def test_an_edit_takes_the_place_of_the_only_lines_that_match() -> None:
    assert by_hand.edited("a\nb\nc\n", Edit("run.py", ["a", "b"], ["d"])) == "d\nc\n"
    for find in (["x"], ["b", "a"], ["c"], [""]):
        with pytest.raises(EditError, match=r"run\.py: \d places"):
            by_hand.edited("a\nb\nc\nc\n", Edit("run.py", find, ["d"]))


def test_an_edit_that_leaves_no_python_is_refused(tmp_path: Path) -> None:
    inside = fake_repository(tmp_path)
    by_hand.apply([*BY_HAND.both, *BY_HAND.captured], inside)
    with pytest.raises(EditError, match=r"run\.py, line 2"):
        by_hand.apply([Edit("run.py", ["import torch"], ["import torch", "def"])], inside)


@pytest.mark.child
def test_a_script_is_timed_with_and_without_its_captured_step(tmp_path: Path) -> None:
    fake_repository(tmp_path)
    result = by_hand.measured(SCRIPT, BY_HAND, tmp_path, SAID, PLAN)
    eager, captured = (result["runs"][how][0] for how in ("eager", "captured"))
    assert (eager["iterations"], len(eager["blocks_ms"]), eager["replays"]) == (20, 4, [])
    assert len(captured["losses"]) == 8
    assert captured["aside"] == [1]  # the batch of another size
    assert result["losses"]["agree"]
    if result["device"] == "CPU":
        assert (result["verdict_agrees"], result["replay_agrees"]) == (None, None)
    else:
        assert captured["replays"] == [20]


@pytest.mark.child
def test_a_script_that_ends_too_early_is_shown_by_its_last_lines(tmp_path: Path) -> None:
    fake_repository(tmp_path)
    edits = [Edit("run.py", ["import torch"], ["raise OSError('no such data')"])]
    with pytest.raises(RuntimeError, match="no such data"):
        by_hand.one_run(SCRIPT, tmp_path / "owner+name", edits, 5, PLAN)


def test_a_capture_that_was_not_replayed_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="3 replays in 20 iterations"):
        by_hand.compared([run(2.0)], [run(1.0, replays=3)], SAID)
    with pytest.raises(RuntimeError, match="0 replays"):
        by_hand.compared([run(2.0)], [run(1.0)], SAID)
    with pytest.raises(RuntimeError, match="should run eagerly"):
        by_hand.compared([run(2.0, replays=20)], [run(1.0, replays=20)], SAID)


def test_the_gain_is_that_of_the_median_block() -> None:
    result = by_hand.compared([run(2.0)] * 2, [run(1.5, replays=20)] * 2, SAID)
    assert result["removed_pct"] == pytest.approx(25)
    assert result["removed_in_each_round_pct"] == pytest.approx([25, 25])
    assert (result["verdict_agrees"], result["replay_agrees"]) == (True, True)
    assert result["losses"]["agree"]
    row = by_hand.cells({"id": "a-script"} | result)
    assert len(row) == len(by_hand.HEADER)
    assert len(by_hand.cells({"id": "a-script", "error": "it failed"})) == len(by_hand.HEADER)


def test_losses_may_differ_as_far_as_those_of_two_eager_runs_do() -> None:
    far = {"losses": [2.0, 1.03]}
    steady, noisy = [run(2.0), run(2.0)], [run(2.0), run(2.0, losses=[2.0, 1.01])]
    captured = [run(1.0, replays=20, **far)]
    assert not by_hand.compared(steady, captured, SAID)["losses"]["agree"]
    assert by_hand.compared(noisy, captured, SAID)["losses"]["agree"]
    lost = [run(1.0, replays=20, losses=[2.0, float("nan")])]
    with pytest.raises(RuntimeError, match="not a number"):
        by_hand.compared(steady, lost, SAID)


@pytest.mark.parametrize(
    ("verdict", "removed_pct", "agrees"),
    [
        ("adopt", 15.0, True),
        ("adopt_after_fixes", 14.9, False),
        ("stay_eager", 14.9, True),
        ("stay_eager", 15.0, False),
        ("inconclusive", 10.0, True),
        ("inconclusive", 31.0, False),
        ("unsafe", 50.0, None),
    ],
)
def test_a_verdict_is_compared_with_what_the_capture_removes(
    verdict: str, removed_pct: float, agrees: bool | None
) -> None:
    said = {"verdict": verdict, "removable_between_pct": [-5.0, 30.0]}
    assert by_hand.within(removed_pct, said) is agrees
    unbounded = {"verdict": "inconclusive", "removable_between_pct": None}
    assert by_hand.within(removed_pct, unbounded) is None
