"""Every rule fires where it should and stays silent where it should."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pytest

from launchscope.model import (
    Cause,
    Correctness,
    Facts,
    KernelChange,
    LibraryStep,
    Metric,
    Profile,
    Reason,
    Replay,
    ReplayStatus,
    ScopeReplay,
    Shapes,
    ShapeSignature,
    SourceLine,
    StepGroup,
    StepKind,
    TensorShape,
    WorkComparison,
)
from launchscope.rules import Rule, advise, all_rules, find_rule
from tests.rules.profiles import (
    blocked,
    gpu_bound,
    item_blocker,
    library_blocker,
    predicted,
    profile,
    rehearsal,
    share,
)
from tests.shapes import tensors

TWO_SHAPES = Shapes(
    False,
    (ShapeSignature(2, tensors("(8, 97) float32")), ShapeSignature(1, tensors("(8, 101) float32"))),
)
TWO_PATHS = Shapes(
    False,
    (ShapeSignature(2, tensors("(8, 97) float32")), ShapeSignature(1, tensors("(8, 97) float32"))),
)
WIDE = Metric.of_samples([8.0, 8.5, 9.0, 12.0, 14.0, 14.5], "ms")
DIFFERENT_WORK = replace(
    profile().replay,
    work=WorkComparison(
        False, (KernelChange("softmax_warp", 247, 3100.0),), (KernelChange("flash", 12, 90),)
    ),
)
ERROR = {"kind": "RuntimeError", "error": "the text of an error"}
VARIANTS = {"variants": 2, "steps": 3}
WRONG = replace(profile().replay, correct=Correctness("different", 4, 0.44))
PARTS = replace(
    profile().replay,
    status="what_if",
    scopes=(
        ScopeReplay("forward_backward", "measured", None, 6.2, 2.4, 40.0),
        ScopeReplay(
            "forward",
            "failed",
            Reason("out_of_memory", {"kind": "OutOfMemoryError", "error": "CUDA out of memory"}),
        ),
    ),
)
UNCHECKED = replace(
    profile().replay,
    correct=Correctness("not_checked", reason=Reason("few_compared", {"compared": 2, "wanted": 4})),
)


def with_kinds() -> Profile:
    base = profile()
    assert base.step is not None
    kinds = (
        StepKind("prefill", tensors("(1, 512) int64")[0], 1.0),
        StepKind("decode", tensors("(1, 1) int64")[0], 99.0),
    )
    return replace(base, step=replace(base.step, kinds=kinds))


def with_wide_spread() -> Profile:
    base = profile()
    return replace(base, metrics=base.metrics | {"iteration_ms": WIDE})


@dataclass(frozen=True)
class Case:
    fires: Profile
    silent: Profile
    says: str


def within_spread() -> Profile:
    return profile(
        metrics={"removable_pct": share(20.0, -3.0, 43.0)},
    )


_STEP = profile().step
assert _STEP is not None
HEADLESS = replace(_STEP, period=("backward", "optimizer"), names=("", "AdamW"))
COMPILED = replace(_STEP, compiled=True)
STEP_GROUPS = (
    StepGroup("bs=8", 17, 0.0, 1.0, 0.232),
    StepGroup("bs=12", 6, 67.0, 0.0, 0.249, 0.270),
)

CASES: dict[str, Case] = {
    "LS001": Case(profile(), profile(metrics={"removable_pct": None}), "removes 62 % of the"),
    "LS002": Case(
        gpu_bound(),
        profile(metrics={"launch_share_pct": 8.0, "removable_pct": 3.0}),
        "54 % of the step",
    ),
    "LS003": Case(profile(), gpu_bound(), "5.80 ms of 9.39 ms"),
    "LS004": Case(with_wide_spread(), profile(), "very widely"),
    "LS005": Case(within_spread(), profile(), "between -3.0 % and 43 %"),
    "LS006": Case(profile(metrics={"iteration_busy_ms": 12.0}), profile(), "28 % longer"),
    "LS007": Case(gpu_bound(), profile(), "(median of all kernels: 910 us)"),
    "LS008": Case(
        profile(metrics={"graph_launches_per_step": 3}, facts={"graph_kernel_share_pct": 97.0}),
        profile(),
        "97 % of the kernels in a step already run inside CUDA graphs (3 graph launches per step)",
    ),
    "LS009": Case(
        profile(metrics={"break_even_steps": 900.0}, expected_steps=500),
        profile(metrics={"break_even_steps": 900.0}),
        "after 900 steps, and you expect 500",
    ),
    "LS010": Case(profile(shapes=TWO_SHAPES), profile(shapes=TWO_PATHS), "2 different ones in 3"),
    "LS011": Case(profile(shapes=TWO_PATHS), profile(shapes=TWO_SHAPES), "control flow"),
    "LS012": Case(with_kinds(), profile(), "decode (99 %) and prefill (1.0 %)"),
    "LS013": Case(
        replace(
            profile(metrics={"more_graphs_pct": share(17.0, 6.6, 54.0)}), step_groups=STEP_GROUPS
        ),
        replace(profile(), step_groups=STEP_GROUPS[:1]),
        "6 of 23 steps launch no CUDA graph: bs=12 (6)",
    ),
    "LS022": Case(
        profile(metrics={"exposed_communication_ms": 4.0}),
        profile(metrics={"exposed_communication_ms": 0.1}),
        "nothing but collectives for 4.00 ms per iteration (43 %)",
    ),
    "LS020": Case(
        profile(metrics={"data_wait_ms": 4.0}),
        profile(),
        "waits for data for 4.00 ms per iteration (43 %)",
    ),
    "LS021": Case(
        profile(metrics={"sync_wait_ms": 2.0}), profile(), "costs 2.00 ms per iteration (21 %)"
    ),
    "LS030": Case(blocked(), profile(), "total += loss.item()"),
    "LS031": Case(blocked(), profile(), "cannot be captured yet: launchscope replaces"),
    "LS032": Case(
        profile(replay=DIFFERENT_WORK),
        profile(),
        "adds 247 kernels (3,100 us) and leaves out 12 (90.0 us)",
    ),
    "LS033": Case(profile(replay=WRONG), profile(), "by up to 44 % of an update over 4 batches"),
    "LS042": Case(
        profile(replay=PARTS),
        profile(),
        "forward and backward passes alone takes 2.40 ms instead of 6.20 ms",
    ),
    "LS034": Case(profile(replay=UNCHECKED), profile(), "not checked: only 2 of 4"),
    "LS035": Case(
        profile(facts={"scheduler_live": True, "scheduler_where": "train.py:60"}),
        profile(),
        "a capture freezes it",
    ),
    "LS036": Case(profile(), profile(replay=replace(profile().replay, changes=())), "capturable"),
    "LS037": Case(
        profile(step=COMPILED),
        profile(step=COMPILED, facts={"graph_kernel_share_pct": 97.0}),
        "figures are of the compiled step",
    ),
    "LS038": Case(
        profile(facts={"legacy_stream_kernels": 2, "legacy_kernels_names": ("their_kernel",)}),
        profile(facts={"legacy_stream_kernels": 2, "side_stream": False}),
        "2 kernels ran on the legacy default stream (their_kernel)",
    ),
    "LS043": Case(profile(step=HEADLESS), profile(), "begins with its backward"),
    "LS039": Case(profile(metrics={"graph_memory_mib": 8806.0}), profile(), "8.60 GiB"),
    "LS040": Case(profile(facts={"timing_steps": 4}), profile(), "Only 4 steps"),
    "LS041": Case(rehearsal(), profile(), "71 device operations"),
}


def titles(code: str, of: Profile) -> list[str]:
    rule = find_rule(code)
    assert rule is not None
    return [finding.title for finding in rule.check(of)]


def test_every_rule_has_a_case() -> None:
    assert set(CASES) == {rule.code for rule in all_rules()}


@pytest.mark.parametrize("code", CASES)
def test_rule_fires(code: str) -> None:
    found = titles(code, CASES[code].fires)
    assert found
    assert CASES[code].says in found[0]


@pytest.mark.parametrize("code", CASES)
def test_rule_stays_silent(code: str) -> None:
    assert titles(code, CASES[code].silent) == []


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: str(rule.code))
def test_rule_survives_a_profile_in_which_nothing_was_measured(rule: object) -> None:
    known = {key: Metric(None, metric.unit) for key, metric in profile().metrics.items()}
    bare = replace(profile(), metrics=known, facts=Facts(), step=None, shapes=Shapes(None))
    found = find_rule(rule.code)  # type: ignore[attr-defined]
    assert found is not None
    for finding in found.check(bare):
        assert "None" not in finding.title


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: str(rule.code))
def test_findings_carry_their_rule_s_code_and_a_page_explains_them(rule: object) -> None:
    found = find_rule(rule.code)  # type: ignore[attr-defined]
    assert found is not None
    assert {finding.code for finding in found.check(CASES[found.code].fires)} == {found.code}
    assert found.page.startswith("# ")
    assert [line for line in found.page.splitlines() if line.startswith("## ")] == [
        f"## {section}"
        for section in (
            *("What it finds", "Why it matters", "Example", "Before", "After"),
            *("When it does not apply", "Reference"),
        )
    ]


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: str(rule.code))
def test_a_page_links_to_a_source_and_refers_to_what_exists(rule: Rule) -> None:
    reference = rule.page.partition("## Reference")[2]
    named = {
        name
        for kind in re.findall(r"(?:metric|fact)s?((?:\s*`\w+`,?)+)", reference, re.IGNORECASE)
        for name in re.findall(r"`(\w+)`", kind)
    }
    assert named <= profile().metrics.keys() | vars(Facts()).keys()
    assert re.search(r"\[[^]]+\]\(https://[^)\s]+\)", reference)
    assert set(re.findall(r"LS\d+", rule.page)) <= {known.code for known in all_rules()}


def test_launch_share_explains_back_pressure_when_a_replay_would_not_pay() -> None:
    rule = find_rule("ls002")
    assert rule is not None
    (finding,) = rule.check(gpu_bound())
    assert "27.5 ms of the 28.1 ms in launch calls is back-pressure" in finding.advice
    assert finding.evidence["agrees"] is False


def test_launch_share_explains_python_between_launches_when_a_replay_pays() -> None:
    rule = find_rule("LS002")
    assert rule is not None
    (finding,) = rule.check(profile(metrics={"launch_share_pct": 8.0}))
    assert "4.10 ms for Python and the dispatcher" in finding.advice


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ({"data_wait_ms": 20.0, "gpu_idle_ms": 22.0}, "waits for data for 20.0 ms per iteration"),
        ({"sync_wait_ms": 20.0, "gpu_idle_ms": 22.0}, "waits in synchronizations for 20.0 ms"),
        ({"data_wait_ms": 3.0, "gpu_idle_ms": 22.0}, "is back-pressure"),
        ({"blocked_launch_ms": 1.0, "gpu_idle_ms": 0.2}, "idle for only 0.200 ms of the 52.1 ms"),
        ({"blocked_launch_ms": 1.0, "gpu_idle_ms": 22.0}, "do not show the cause"),
    ],
    ids=["data", "sync", "data is the smaller part", "little idle", "unknown"],
)
def test_a_high_launch_share_that_would_not_pay_is_explained_by_the_largest_cause(
    metrics: dict[str, float], said: str
) -> None:
    rule = find_rule("LS002")
    assert rule is not None
    base = gpu_bound()
    measured = base.metrics | {key: Metric(value, "ms") for key, value in metrics.items()}
    (finding,) = rule.check(replace(base, metrics=measured))
    assert said in finding.advice


@pytest.mark.parametrize(
    ("status", "reason", "said"),
    [
        ("failed", Reason("out_of_memory", ERROR), "smaller batch"),
        ("failed", Reason("cuda_error", ERROR), "CUDA_LAUNCH_BLOCKING=1"),
        ("failed", Reason("time_limit"), "Raise --timeout"),
        ("failed", Reason("error", ERROR), "Fix the cause and profile again."),
        ("skipped", Reason("not_run"), "Profile with --replay 30"),
        ("skipped", Reason("legacy_stream"), "LS038"),
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
    rule = find_rule("LS031")
    assert rule is not None
    (finding,) = rule.check(predicted(replay=Replay(status, reason), shapes=TWO_SHAPES))
    assert said in finding.advice


def test_workers_that_a_replay_waits_for_are_found() -> None:
    slow = {"loader_ms": 7.25, "loader_workers": 4}
    (title,) = titles("LS020", profile(metrics={"replayed_iteration_ms": 7.25}, facts=slow))
    assert title == (
        "An iteration with a replay waits for data: the data loader's 4 workers take 7.25 ms per "
        "step, in parallel"
    )
    assert titles("LS020", profile(metrics={"replayed_iteration_ms": 7.5}, facts=slow)) == []


@pytest.mark.parametrize("code", ["LS020", "LS021"])
@pytest.mark.parametrize("removable", [2.0, 20.0], ids=["first", "pays all the same"])
def test_a_wait_is_to_be_fixed_first_if_the_verdict_says_so(code: str, removable: float) -> None:
    wait = {"LS020": "data_wait_ms", "LS021": "sync_wait_ms"}[code]
    gain = share(removable, removable - 1, removable + 1)
    of = advise(profile(metrics={"removable_pct": gain, wait: 6.0}))
    assert of.verdict is not None
    advice = next(finding.advice for finding in of.findings if finding.code == code)
    first = removable < 15
    assert advice.startswith("Fix this before you adopt a graph") is first
    assert of.verdict.headline.startswith("Fix the ") is first


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
    assert titles("LS038", on_legacy) == ["Part of the step runs on the legacy default stream"]


def test_each_blocker_is_a_finding_with_its_line() -> None:
    second = replace(item_blocker(), where=SourceLine("train.py", 60), count=3)
    rule = find_rule("LS030")
    assert rule is not None
    found = rule.check(predicted(blockers=(item_blocker(), second)))
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
    rule = find_rule("LS030")
    assert rule is not None
    blocker = replace(item_blocker(), op=op, inside=inside)
    (finding,) = rule.check(predicted(blockers=(blocker,)))
    assert said in finding.advice


def test_a_blocker_in_a_library_has_both_lines_and_advice_from_outside() -> None:
    rule = find_rule("LS030")
    assert rule is not None
    blocker = library_blocker()
    assert blocker.library is not None
    (finding,) = rule.check(predicted(blockers=(blocker,)))
    assert (finding.where, finding.library) == (blocker.where, blocker.library.where)
    assert ".item() at toymodels/encoder.py:23 stops" in finding.title
    assert finding.title.endswith("`longest = mask.sum().item()`")
    for said in ("toymodels 1.2.0", "`loss = model(x, mask)`", "argument", "newer", "patch"):
        assert said in finding.advice


def test_a_library_without_a_line_of_the_persons_is_named_once() -> None:
    rule = find_rule("LS030")
    assert rule is not None
    library = library_blocker().library
    assert library is not None
    blocker = replace(
        library_blocker(), where=library.where, library=replace(library, version=None)
    )
    (finding,) = rule.check(predicted(blockers=(blocker,)))
    assert "encoder.py" not in finding.title
    assert "(toymodels). Look for" in finding.advice


def test_the_flags_of_an_optimizer_are_the_advice_also_where_a_library_steps_it() -> None:
    rule = find_rule("LS030")
    assert rule is not None
    blocker = replace(library_blocker(), inside="grad_scaler")
    (finding,) = rule.check(predicted(blockers=(blocker,)))
    assert "fused=True" in finding.advice
    assert "patch" not in finding.advice


def test_the_name_of_a_function_begins_a_title_as_it_is_written() -> None:
    rule = find_rule("LS030")
    assert rule is not None
    blockers = [replace(item_blocker(), op=op) for op in ("aten.nonzero", "aten.index")]
    blockers.append(replace(item_blocker(), code="if loss > 3:"))
    titles = [finding.title for finding in rule.check(predicted(blockers=tuple(blockers)))]
    assert [title.split(" stops")[0] for title in titles] == [
        "nonzero()",
        "Indexing",
        "An implicit .item()",
    ]


def test_advice_on_boolean_indexing_is_not_given_for_an_index_on_the_host() -> None:
    rule = find_rule("LS030")
    assert rule is not None
    mask = replace(item_blocker(), op="aten.index", category="dynamic_shape")
    first, second = rule.check(predicted(blockers=(mask, replace(mask, category="host_copy"))))
    assert "boolean mask" in first.advice
    assert "Create them on the GPU once" in second.advice


def test_advice_on_a_product_with_a_sparse_matrix_that_is_not_coalesced() -> None:
    rule = find_rule("LS030")
    assert rule is not None
    product = replace(item_blocker(), op="aten._sparse_addmm", category="sync")
    (finding,) = rule.check(predicted(blockers=(product,)))
    assert finding.title.startswith("torch.sparse.mm() stops a capture")
    assert "coalesce() once before the loop" in finding.advice


@pytest.mark.parametrize(
    ("inside", "between", "said"),
    [(1, 0, "inside the step"), (0, 1, "between the steps"), (1, 1, "also stops a capture")],
)
def test_synchronization_advice_depends_on_where_the_host_waits(
    inside: int, between: int, said: str
) -> None:
    rule = find_rule("LS021")
    assert rule is not None
    facts = {"inside_step_syncs": inside, "between_step_syncs": between}
    (finding,) = rule.check(profile(metrics={"sync_wait_ms": 2.0}, facts=facts))
    assert said in finding.advice


@pytest.mark.parametrize(
    ("optimizer", "said"),
    [
        ("AdamW", "capturable=True"),
        ("SGD", "fused=True"),
        ("Adagrad", "only forward and backward"),
        ("RMSprop", "capturable=True"),
    ],
)
def test_scheduler_advice_is_given_per_optimizer(optimizer: str, said: str) -> None:
    rule = find_rule("LS035")
    assert rule is not None
    facts = {"scheduler_live": True, "optimizer_classes": (optimizer,)}
    (finding,) = rule.check(profile(facts=facts))
    assert said in finding.advice


def test_figures_that_contradict_each_other_are_each_named() -> None:
    facts = {"iteration_check_pct": 5.0, "join_coverage_pct": 80.0}
    assert len(titles("LS006", profile(facts=facts))) == 2


def test_a_trace_that_contradicts_the_timings_is_information_beside_a_measured_replay() -> None:
    metrics: dict[str, float | None] = {"iteration_busy_ms": 12.0}
    rule = find_rule("LS006")
    assert rule is not None
    (found,) = rule.check(predicted(metrics=metrics))
    assert found.severity == "warning"
    (found,) = rule.check(profile(metrics=metrics))
    assert found.severity == "info"
    assert "the replays, which ran without a trace" in found.advice


def test_a_failed_capture_is_reported_with_its_reason_and_line() -> None:
    rule = find_rule("LS031")
    assert rule is not None
    replay = Replay(
        "failed",
        reason=Reason("out_of_memory", {"kind": "OutOfMemoryError", "error": "CUDA out of memory"}),
        where=SourceLine("train.py", 44),
    )
    (finding,) = rule.check(predicted(replay=replay))
    assert (finding.severity, finding.where) == ("warning", SourceLine("train.py", 44))
    assert "CUDA out of memory" in finding.title


FROZEN = (
    Cause("learning_rate", SourceLine("train.py", 30), 0.1, 0.09, "SGD", "lr"),
    Cause("scalar", SourceLine("train.py", 25), 1.0, 0.5, op="aten.mul"),
    Cause(
        "cross_step_state",
        SourceLine("train.py", 22),
        tensor=TensorShape((8,), "float32"),
        origin="previous_step",
    ),
)


def test_each_cause_of_a_wrong_result_is_named_with_its_line_and_remedy() -> None:
    rule = find_rule("LS033")
    assert rule is not None
    correct = Correctness("different", 4, 0.44, causes=FROZEN)
    found = rule.check(profile(replay=replace(profile().replay, correct=correct)))
    assert [finding.where for finding in found] == [
        SourceLine("train.py", 30),
        SourceLine("train.py", 25),
        SourceLine("train.py", 22),
    ]
    assert found[0].title == (
        "The learning rate of SGD changes (from 0.1 to 0.09), and a capture freezes it"
    )
    assert "fused=True" in found[0].advice
    assert "fill_()" in found[1].advice
    assert "in place" in found[2].advice


def test_scopes_that_could_not_be_captured_are_no_advice() -> None:
    assert len(titles("LS042", profile(replay=PARTS))) == 1


def test_a_batch_that_the_step_selects_is_reported_once_with_what_to_do() -> None:
    picked = [Cause("scalar", SourceLine("t.py", 9), 7.0, n, op="aten.select") for n in (0.0, 1.0)]
    wrong = replace(WRONG, correct=replace(WRONG.correct, causes=tuple(picked)))
    rule = find_rule("LS033")
    assert rule is not None
    found = rule.check(profile(replay=wrong))
    assert [finding.where for finding in found] == [SourceLine("t.py", 9)]
    assert "Select it before the step" in found[0].advice


def test_scheduler_advice_names_each_of_several_optimizers() -> None:
    rule = find_rule("LS035")
    assert rule is not None
    facts = {"scheduler_live": True, "optimizer_classes": ["SGD", "AdamW", "AdamW"]}
    (finding,) = rule.check(profile(facts=facts))
    assert "SGD: Construct the optimizer as SGD(" in finding.advice
    assert finding.advice.count("AdamW: ") == 1
