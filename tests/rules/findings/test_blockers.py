from __future__ import annotations

import pytest
from msgspec.structs import replace

from launchscope.model import (
    Blocker,
    LibraryStep,
    Profile,
    Reason,
    Replay,
    ReplayStatus,
    ScopeReplay,
    SourceLine,
)
from launchscope.rules.findings.blockers import RULE
from tests.rules.cases import Case, replayed, shapes, titled, with_step
from tests.rules.profiles import blocked, item_blocker, library_blocker, predicted, profile

ERROR = {"kind": "RuntimeError", "error": "the text of an error"}
VARIANTS = {"variants": 2, "steps": 3}
COPY = Blocker("aten._to_copy", None, 3, "host_copy")
NO_STUB = Replay("blocked", Reason("no_stub", {"op": "cudaStreamSynchronize"}))
PARTS = replayed(
    status="what_if",
    scopes=(
        ScopeReplay("forward_backward", "measured", None, 6.2, 2.4, 40.0),
        ScopeReplay("forward", "failed", Reason("out_of_memory", ERROR)),
    ),
)
LOSS = ScopeReplay("forward", "measured", None, 1.0, 1.2, -3.0)
LEGACY = {"legacy_stream_kernels": 2}
CASES = (
    Case("total += loss.item()", blocked(), profile()),
    Case("cannot be captured yet: launchscope replaces", blocked(), profile()),
    Case(
        ".to() or .cpu() (3 times per step)",
        predicted(blockers=(COPY, item_blocker()), replay=NO_STUB),
        profile(),
    ),
    Case(
        "`.item()` and other blocking operations skipped",
        profile(replay=replayed(status="what_if"), blockers=(item_blocker(),)),
        profile(),
    ),
    Case(
        "forward and backward passes alone takes 2.40 ms instead of 6.20 ms",
        profile(replay=PARTS),
        profile(),
    ),
    Case("removes nothing", profile(replay=replayed(status="what_if", scopes=(LOSS,))), profile()),
    Case(
        "2 kernels ran on the legacy default stream",
        profile(facts=LEGACY),
        profile(facts=LEGACY | {"side_stream": False}),
    ),
    Case(
        "begins with its backward",
        with_step(predicted(), period=("backward", "optimizer"), names=("", "AdamW")),
        profile(),
    ),
)
SAME = ("mean",)


@pytest.mark.parametrize(
    ("status", "reason", "said"),
    [
        ("failed", Reason("out_of_memory", ERROR), "smaller batch"),
        ("failed", Reason("cuda_error", ERROR), "CUDA_LAUNCH_BLOCKING=1"),
        ("failed", Reason("time_limit"), "Raise --timeout"),
        ("failed", Reason("error", ERROR), "Fix the cause and profile again."),
        ("skipped", Reason("not_run"), "Profile with --replay 30"),
        ("skipped", Reason("legacy_stream"), "Launch the work of that stream on another one"),
        ("skipped", Reason("already_graphed"), "already replays graphs"),
        ("skipped", Reason("ops_change", VARIANTS), "inputs are padded to a few sizes"),
        (
            "blocked",
            Reason("ops_change_beside_blockers", VARIANTS),
            "inputs are padded to a few sizes",
        ),
    ],
)
def test_the_advice_on_a_missing_replay_follows_its_reason(
    status: ReplayStatus, reason: Reason, said: str
) -> None:
    two = shapes("(8, 97) float32", "(8, 101) float32", steps=2)
    *_, finding = RULE.check(predicted(replay=Replay(status, reason), shapes=two))
    assert said in finding.advice


def test_a_failed_capture_is_reported_with_its_reason_and_line() -> None:
    line = SourceLine("train.py", 44)
    (finding,) = RULE.check(predicted(replay=Replay("failed", Reason("error", ERROR), line)))
    assert (finding.severity, finding.where) == ("warning", line)
    assert "the text of an error" in finding.title


@pytest.mark.parametrize(
    "of",
    [
        predicted(replay=Replay("skipped", Reason("legacy_stream"))),
        predicted(facts={"needs_legacy_stream": True}),
    ],
    ids=["reason", "fact"],
)
def test_a_script_measured_on_the_legacy_stream_for_some_kernels_is_reported(of: Profile) -> None:
    on_legacy = replace(of, facts=replace(of.facts, side_stream=False, legacy_stream_kernels=400))
    assert titled(RULE, on_legacy, "Part of the step runs on the legacy default stream")


def test_each_blocker_is_a_finding_with_its_line() -> None:
    second = replace(item_blocker(), where=SourceLine("train.py", 60), count=3)
    found = titled(RULE, predicted(blockers=(item_blocker(), second)), "stops a capture")
    assert [finding.where for finding in found] == [
        SourceLine("train.py", 52),
        SourceLine("train.py", 60),
    ]
    assert "3 times per step" in found[1].title


@pytest.mark.parametrize(
    ("op", "inside", "said"),
    [
        ("aten._local_scalar_dense", None, "Keep it in a tensor"),
        ("aten._local_scalar_dense", "grad_scaler", "fused=True"),
        ("aten._local_scalar_dense", "lbfgs", "no graph can hold its step"),
        ("aten._local_scalar_dense", "optimizer", "The optimizer's step reads"),
        ("aten._to_copy", "optimizer", "The host waits for the GPU here"),
        ("aten.nonzero", None, "torch.where with three arguments"),
        ("something.new", None, "The host waits for the GPU here"),
    ],
)
def test_advice_on_a_blocker_depends_on_its_op_and_on_whose_step_runs_it(
    op: str, inside: LibraryStep | None, said: str
) -> None:
    blocker = replace(item_blocker(), op=op, inside=inside)
    (finding,) = titled(RULE, predicted(blockers=(blocker,)), "stops a capture")
    assert said in finding.advice


def test_a_blocker_in_a_library_has_both_lines_and_advice_from_outside() -> None:
    blocker = library_blocker()
    assert blocker.library is not None
    (finding,) = titled(RULE, predicted(blockers=(blocker,)), "stops a capture")
    assert (finding.where, finding.library) == (blocker.where, blocker.library.where)
    assert ".item() at toymodels/encoder.py:23 stops" in finding.title
    assert finding.title.endswith("`longest = mask.sum().item()`")
    for said in ("toymodels 1.2.0", "`loss = model(x, mask)`", "argument", "newer", "patch"):
        assert said in finding.advice


def test_the_flags_of_an_optimizer_are_the_advice_also_where_a_library_steps_it() -> None:
    blocker = replace(library_blocker(), inside="grad_scaler")
    (finding,) = titled(RULE, predicted(blockers=(blocker,)), "stops a capture")
    assert "fused=True" in finding.advice
    assert "patch" not in finding.advice


def test_advice_on_boolean_indexing_is_not_given_for_an_index_on_the_host() -> None:
    mask = replace(item_blocker(), op="aten.index", category="dynamic_shape")
    both = predicted(blockers=(mask, replace(mask, category="host_copy")))
    first, second = titled(RULE, both, "stops a capture")
    assert "boolean mask" in first.advice
    assert "Create them on the GPU once" in second.advice


def test_parts_that_could_not_be_captured_are_no_advice() -> None:
    assert len(titled(RULE, profile(replay=PARTS), "alone takes")) == 1
