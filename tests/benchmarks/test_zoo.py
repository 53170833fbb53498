"""How the zoo judges: right, wrong, near, failed; its catalogue; its processes."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from launchscope.analysis.replay_model.prediction import StepWork, predict
from launchscope.model import Schedule
from tests.benchmarks.zoo import fit, measure, runner, table, truth
from tests.benchmarks.zoo.catalog import FAMILIES, chosen, find
from tests.benchmarks.zoo.score import judged, score
from tests.benchmarks.zoo.truth import Truth
from tests.benchmarks.zoo.workload import Step

SMALL = ("mlp-train-b64", "mlp-inference-b1", "dqn-train-b64", "pinn-train-n4096",
         "lstm-train-b32", "lstm-both-ways-train-b32", "branches-2-matmul-512",
         "dlrm-inference-b64", "encoder-train-b32")  # fmt: skip


def row(
    name: str = "a", removed: float = 50.0, measured: str = "adopt", predicted: str = "adopt",
    share: float | None = 30.0, error: float = 0.0, **more: Any,
) -> dict[str, Any]:  # fmt: skip
    said = {
        "launch_share_pct": share,
        "replay_ms": 1.0,
        "predicted_replay_ms": 1.0 + error,
        "predicted_replay_low_ms": 0.95 + error,
        "predicted_replay_high_ms": 1.05 + error,
        "gpu_busy_ms": 0.98,
        "kernels_per_step": 100,
        "memcpys_per_step": 0,
        "memsets_per_step": 2,
    }
    return {
        "name": name,
        "truth": {
            "eager_ms": 2.0,
            "replay_ms": 1.0,
            "removed_pct": removed,
            "removed_low_pct": removed - 1,
            "removed_high_pct": removed + 1,
        },
        "measured": {**said, "recommendation": measured},
        "predicted": {**said, "recommendation": predicted},
        "work_same": True,
        **more,
    }


def test_adopting_what_gains_and_leaving_what_does_not_is_right() -> None:
    assert judged(row()) == {"measured": True, "predicted": True, "literal": True}
    stays = row(removed=3.0, measured="stay_eager", predicted="stay_eager", share=54.0)
    assert judged(stays) == {"measured": True, "predicted": True, "literal": False}


@pytest.mark.parametrize("answer", ["inconclusive", "stay_eager", "unsafe"])
def test_no_answer_or_the_other_one_is_wrong(answer: str) -> None:
    assert not judged(row(measured=answer))["measured"]


def test_unsafe_is_right_where_the_capture_changes_the_work() -> None:
    changed = row(measured="unsafe", changed_work=True, work_same=False)
    assert judged(changed)["measured"]
    assert not judged({**changed, "work_same": True})["measured"]


def test_steps_near_the_threshold_and_failures_are_counted_apart() -> None:
    found = score([row("a"), row("b", removed=16.5), {"name": "c", "failed": "died"}])
    assert (found.near, found.failed) == (["b"], ["c"])
    assert found.right["measured"] == ["a"]


def test_a_restless_truth_still_counts() -> None:
    restless = row("a", removed=11.0)
    restless["truth"] |= {"removed_low_pct": 7.0, "removed_high_pct": 28.0}
    found = score([restless])
    assert (found.near, found.wrong["measured"]) == ([], ["a"])
    assert "7.0 to 28.0" in table.cells(restless, found)


def visit(eager_ms: float) -> truth.Pairs:
    return [(eager_ms + shift, 1.0) for shift in (-0.1, 0.0, 0.1)]


def test_a_truth_that_is_the_same_before_the_verdict_and_behind_it_stands() -> None:
    assert truth.held_still(visit(1.2), visit(1.22))
    assert not truth.held_still(visit(1.05), visit(1.2))


def test_far_from_the_threshold_the_moods_of_the_machine_do_not_matter() -> None:
    assert truth.held_still(visit(2.0), visit(4.0))
    assert truth.held_still(visit(1.0), visit(1.04))
    assert not truth.held_still(visit(1.3), visit(1.4))


def test_a_verdict_is_made_again_where_the_machine_changed_around_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    visits = iter([visit(1.05), visit(1.25), visit(1.26), visit(9.0)])
    verdicts = iter([5.0, 20.0, 99.0])
    monkeypatch.setattr(truth, "bursts", lambda step: next(visits))
    monkeypatch.setattr(
        measure,
        "_advised",
        lambda *_: {"measured": {"replay_status": "measured", "removable_pct": next(verdicts)}},
    )
    made = measure._held_against_truth(Step(lambda: None, ()), Schedule(), None)
    assert made["measured"]["removable_pct"] == 20.0
    assert made["truth"]["eager_ms"] == pytest.approx(1.255)
    assert (made["held_still"], made["verdicts_removable_pct"]) == (True, [5.0, 20.0])
    assert len(made["visits"]) == 3


@pytest.mark.parametrize(
    ("shares", "apart"), [((4.0, 20.0, 14.0), True), ((4.0, 12.0, 9.0), False)]
)
def test_a_machine_that_never_held_still_leaves_the_truth_open_if_it_tells_either_answer(
    shares: tuple[float, ...], apart: bool
) -> None:
    visits = [{"removed_pct": share} for share in shares]
    restless = row("a", removed=11.0, held_still=False, visits=visits)
    found = score([restless])
    assert (found.unknown, found.wrong["measured"]) == ((["a"], []) if apart else ([], ["a"]))
    assert any(line.endswith("the other: a") for line in table.summary(found)) is apart
    assert (table.cells(restless, found)[-1] == "unknown") is apart


def test_the_truth_is_the_ratio_of_medians_with_the_interval_of_its_bursts() -> None:
    removed = [10.0, 12.0, 14.0, 20.0, 21.0, 22.0, 23.0, 24.0, 25.0, 26.0, 30.0, 60.0]
    found = Truth.of([(2.0, 2.0 * (1 - share / 100)) for share in removed])
    assert found.eager_ms == 2.0
    assert found.removed_pct == pytest.approx(22.5)
    assert (found.removed_low_pct, found.removed_high_pct) == pytest.approx((14.0, 30.0))


def test_the_error_is_told_of_steps_with_the_same_work_only() -> None:
    rows = [row("a", error=0.02), row("b", error=-0.1), row("c", error=0.5, work_same=False)]
    found = score(rows)
    assert set(found.errors_pct) == {"a", "b"}
    assert found.median_error_pct == pytest.approx(6)
    assert found.inside_bounds == 1


def test_the_summary_names_what_is_wrong() -> None:
    rows = [row("a"), row("b", predicted="inconclusive")]
    found = score(rows)
    assert "predicted: 1 of 2 right (50 %); wrong: b" in table.summary(found)
    assert "| b |" in table.markdown(rows, found)


def test_a_row_without_a_result_keeps_its_place_in_the_table() -> None:
    lost = {"name": "c", "failed": "no result within 60 s"}
    assert table.cells(lost, score([lost]))[-1] == "no result within 60 s"
    assert len(table.cells(lost, score([lost]))) == len(table.HEADER)


def test_the_fit_finds_the_constants_that_made_the_rows() -> None:
    rows = []
    for kernels, copies in np.random.default_rng(0).integers(10, 900, (12, 2)):
        made = row(str(kernels))
        made["measured"] |= {"kernels_per_step": int(kernels), "memsets_per_step": int(copies)}
        made["measured"]["replay_ms"] = 0.98 + (0.1 * kernels + 0.5 * copies + 2) / 1e3
        work = StepWork(0.98, 0.98, int(kernels), int(copies))
        made["measured"]["predicted_replay_ms"] = predict(work).ms
        rows.append(made)
    (line,) = fit.fitted_constants(rows)
    assert "0.100 us a kernel, 0.50 us a copy or set, 2.0 us a replay" in line
    assert fit.fitted_constants(rows[:3]) == []


def test_the_zoo_has_enough_steps_each_named_once() -> None:
    names = [w.name for family in FAMILIES for w in family.workloads]
    assert len(names) == len(set(names)) >= 44
    assert {w.kind for family in FAMILIES for w in family.workloads} == {"train", "inference"}


def test_steps_are_chosen_by_family_or_by_name() -> None:
    ((library, workloads),) = chosen(["graphs"])
    assert library == "torch_geometric"
    assert len(workloads) == 5
    assert [w.name for _, group in chosen(["mlp-train-b64"]) for w in group] == ["mlp-train-b64"]
    with pytest.raises(ValueError, match="no such family or workload: moth"):
        chosen(["moth"])


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_step_of_torch_alone_can_be_built_and_run(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Many CPUs have no instructions for bfloat16 and take half a minute.
    monkeypatch.setattr(torch, "autocast", lambda *args, **named: contextlib.nullcontext())
    step = find(name).build(torch.device("cpu"), 2)
    step.run(*step.inputs)
    step.run(*step.inputs)


def test_a_step_that_fails_becomes_a_row_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    settled = iter([["a"], ["b", "c"]])

    def process(names: list[str], options: runner.Options, say: Any) -> list[str]:
        done = next(settled)
        for name in done:
            (tmp_path / f"{name}.json").write_text(json.dumps({"name": name, "failed": "x"}))
        return done

    monkeypatch.setattr(runner, "_process", process)
    workloads = [
        type(find("mlp-train-b64"))(name, "train", 1, find("mlp-train-b64").build)
        for name in ("a", "b", "c")
    ]
    rows = runner.run([(None, workloads)], runner.Options(tmp_path), said.append)
    assert [r["name"] for r in rows] == ["a", "b", "c"]
