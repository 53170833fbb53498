"""Truths of scripts that were captured by hand, and verdicts that are held against them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.benchmarks.corpus import __main__ as corpus
from tests.benchmarks.corpus import accuracy, by_hand, campaign, edits
from tests.benchmarks.corpus.by_hand import Plan
from tests.benchmarks.corpus.edits import ByHand, Edit, EditError
from tests.benchmarks.corpus.recorded_graph import RecordedGraph

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
    "plain",
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
    lead=1,
)
SCRIPT = corpus.Script(
    "a-script", "vision", "plain", "owner/name", "inside", ["run.py"], {}, [], True
)
PLAN = Plan(compared=8, windows=(2, 2), limit_s=200)


def fake_repository(folder: Path, source: str = SOURCE) -> Path:
    inside = folder / "owner+name" / "inside"
    inside.mkdir(parents=True)
    (inside / "run.py").write_text(source)
    return inside


def run(ms: float, *, replays: int | None = None, **more: Any) -> dict[str, Any]:
    """What the stopwatch writes; of a captured step if `replays` is given."""
    return {
        "device": "a GPU", "torch": "2.11.0", "losses": [2.0, 1.0], "iterations": 20,
        "blocks_ms": [ms, ms, 9 * ms], "aside": [],
        "replays": [] if replays is None else [replays],
        "replay_ms": None if replays is None else 0.48,
    } | more  # fmt: skip


def compared(eager: Any, captured: Any, again: Any = None, uncaptured: Any = None) -> Any:
    """`again` and `uncaptured` are like `eager`."""
    return by_hand.compared(eager, captured, again or run(2.0), uncaptured or run(2.0))


def test_every_script_with_edits_is_known_and_names_a_step_to_capture() -> None:
    found, scripts = edits.available(), edits.scripts()
    assert len(found) >= 25
    assert set(found) <= set(scripts)
    assert len({each.kind for each in found.values()}) >= 12
    for each in found.values():
        put = ["\n".join(line for edit in part for line in edit.put) for part in each[3:5]]
        assert "step_done(" in put[0], each.id
        assert "Captured" in put[1], each.id
    assert "--gradient_accumulation_steps=4" in scripts["nanogpt-accumulation"].command


def test_a_campaign_begins_with_one_script_of_each_kind() -> None:
    found = edits.available()
    order = campaign.varied(list(edits.scripts().values()), found)
    kinds = {each.kind for each in found.values()}
    assert {found[script.id].kind for script in order[: len(kinds)]} == kinds
    assert {script.id for script in order} == set(found)


@pytest.mark.parametrize(
    "name", [name for name, script in edits.scripts().items() if script.kind == "sample"]
)
def test_the_edits_of_a_sample_workload_apply(name: str, tmp_path: Path) -> None:
    if found := edits.available().get(name):
        inside = corpus.prepare(edits.scripts()[name], tmp_path, tmp_path)
        edits.apply([*found.both, *found.captured], inside)


def test_an_edit_takes_the_place_of_the_only_lines_that_match() -> None:
    assert edits.edited("a\nb\nc\n", Edit("run.py", ["a", "b"], ["d"])) == "d\nc\n"
    for find in (["x"], ["b", "a"], ["c"], [""]):
        with pytest.raises(EditError, match=r"run\.py: \d places"):
            edits.edited("a\nb\nc\nc\n", Edit("run.py", find, ["d"]))


def test_an_edit_that_leaves_no_python_is_refused(tmp_path: Path) -> None:
    inside = fake_repository(tmp_path)
    edits.apply([*BY_HAND.both, *BY_HAND.captured], inside)
    with pytest.raises(EditError, match=r"run\.py, line 2"):
        edits.apply([Edit("run.py", ["import torch"], ["import torch", "def"])], inside)


@pytest.mark.child
def test_both_loops_are_timed_in_turns(tmp_path: Path) -> None:
    fake_repository(tmp_path)
    found = by_hand.truth(SCRIPT, BY_HAND, tmp_path, PLAN)
    assert [len(found["blocks_ms"][how]) for how in ("eager", "captured")] == [2, 2]
    assert found["losses"]["iterations"] == 8
    assert found["losses"]["agree"]


@pytest.mark.child
def test_a_number_that_a_graph_would_freeze_shows_in_the_losses(tmp_path: Path) -> None:
    scaled = "(model(batch) * (number + 1))"
    fake_repository(tmp_path, SOURCE.replace("model(batch)", scaled))

    def frozen(edit: Edit) -> Edit:
        lines = [[line.replace("model(batch)", scaled) for line in part] for part in edit[1:]]
        return Edit(edit.file, *lines)

    changed = BY_HAND._replace(captured=[frozen(edit) for edit in BY_HAND.captured])
    assert not by_hand.truth(SCRIPT, changed, tmp_path, PLAN)["losses"]["agree"]


@pytest.mark.child
def test_a_script_that_ends_too_early_is_shown_by_its_last_lines(tmp_path: Path) -> None:
    fake_repository(tmp_path)
    failing = [Edit("run.py", ["import torch"], ["raise OSError('no such data')"])]
    with pytest.raises(RuntimeError, match="no such data"):
        by_hand.truth(SCRIPT, BY_HAND._replace(both=failing, captured=[]), tmp_path, PLAN)


def test_a_recorded_step_is_run_again_without_its_python() -> None:
    weight, batch = torch.ones(3, requires_grad=True), torch.zeros(3)
    factor = 2.0
    with (graph := RecordedGraph()):
        (weight * batch * factor).sum().backward()
    factor = 9.0
    batch.fill_(1.0)
    graph.replay()
    assert weight.grad is not None
    assert weight.grad.tolist() == [2.0, 2.0, 2.0]
    with RecordedGraph(), pytest.raises(RuntimeError, match="on the host"):
        weight.sum().item()


def test_a_capture_that_was_not_replayed_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="3 replays in 20 iterations"):
        compared(run(2.0), run(1.0, replays=3))
    with pytest.raises(RuntimeError, match="should run eagerly"):
        compared(run(2.0, replays=20), run(1.0, replays=20))


def test_the_share_removed_is_that_of_the_median_windows() -> None:
    found = compared(run(2.0), run(1.5, replays=20))
    assert found["removed_pct"] == pytest.approx(25)
    assert found["removed_between_pct"] == pytest.approx([25, 25])
    assert found["losses"]["agree"]


def test_losses_may_differ_as_far_as_those_of_two_eager_runs_do() -> None:
    captured, noisy = run(1.0, replays=20, losses=[2.0, 1.03]), run(2.0, losses=[2.0, 1.01])
    assert not compared(run(2.0), captured)["losses"]["agree"]
    assert compared(run(2.0), captured, again=noisy)["losses"]["agree"]
    lost = run(1.0, replays=20, losses=[2.0, float("nan")])
    with pytest.raises(RuntimeError, match="not a number"):
        compared(run(2.0), lost)


def test_an_optimizer_that_rounds_differently_is_no_error_of_the_graph() -> None:
    for loss, agree in ((1.05, True), (1.5, False)):
        captured = run(1.0, replays=20, losses=[2.0, loss])
        found = compared(run(2.0), captured, uncaptured=run(2.0, losses=[2.0, loss]))
        assert found["losses"]["agree"] is agree


def row(verdict: str, removed_pct: float, said_pct: float | None = None, **more: Any) -> Any:
    said = {
        "verdict": verdict, "removable_pct": said_pct, "source": "measured", "replay_ms": 1.0,
        "removable_between_pct": [1.0, 2.0],
    } | more  # fmt: skip
    truth = compared(run(100.0), run(100.0 - removed_pct, replays=20))
    return {"id": verdict, "kind": "plain", "said": said, "at_once": 1, **truth}


@pytest.mark.parametrize(
    ("verdict", "removed_pct", "is_right"),
    [
        ("adopt", 50.0, True),
        ("adopt_after_fixes", 12.0, False),
        ("unsafe", 50.0, True),
        ("stay_eager", 50.0, False),
        ("stay_eager", 16.0, True),
        ("inconclusive", 50.0, None),
    ],
)
def test_a_verdict_is_right_only_if_it_decides(
    verdict: str, removed_pct: float, is_right: bool | None
) -> None:
    assert accuracy.right(row(verdict, removed_pct)) is is_right


def test_coverage_stands_beside_accuracy_and_sources_apart() -> None:
    rows = [
        row("adopt", 50.0, 48.0),
        row("stay_eager", 5.0, 11.0),
        row("inconclusive", 40.0, 30.0, source="subtracted"),
        {"id": "failed", "kind": "plain", "error": "it\nended", "said": None, "at_once": None},
    ]
    found = accuracy.score(rows)
    assert (found["scripts"], found["decided"], found["right"]) == (3, 2, 2)
    assert (found["measured"], found["at_once"]) == (2, [1])
    assert (found["mean_error"], found["largest_error"]) == pytest.approx((4.0, 6.0))
    lines = accuracy.markdown(rows, rows[:3]).splitlines()
    tables = [line for line in lines if line.startswith("|")]
    assert {line.count("|") for line in tables} == {len(accuracy.HEADER) + 1}
    assert "- failed: ended" in lines
    assert any("Undecided where" in line and "1 of 2" in line for line in lines)


def test_a_truth_that_is_not_known_well_judges_nothing() -> None:
    unsure = row("stay_eager", 50.0, 5.0) | {"removed_between_pct": [-10.0, 60.0]}
    assert accuracy.right(unsure) is None
    found = accuracy.score([unsure, row("adopt", 50.0, 47.0)])
    assert (found["decided"], found["with_truth"], found["measured"]) == (2, 1, 1)
    assert found["largest_error"] == pytest.approx(3.0)
    assert "## The truth is not known well enough" in accuracy.markdown([unsure], [])
