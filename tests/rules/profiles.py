"""Profiles for tests: one that would be adopted, changed by keyword into any other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from launchscope.model import (
    Blocker,
    Correctness,
    Environment,
    Facts,
    KernelRow,
    LibraryLine,
    Metric,
    OptimizerChange,
    OverheadRow,
    Profile,
    Reason,
    Replay,
    Shapes,
    ShapeSignature,
    SourceLine,
    StepBoundary,
    Target,
    WorkComparison,
)
from tests.shapes import tensors

ITERATION = (9.31, 9.35, 9.36, 9.38, 9.39, 9.40, 9.41, 9.43, 9.45, 9.60)
STEP = (8.98, 8.99, 9.00, 9.00, 9.01, 9.02, 9.02, 9.03, 9.05, 9.08)
REPLAY = (3.12, 3.13, 3.13, 3.14, 3.14, 3.14, 3.15, 3.15, 3.16, 3.18)

_METRICS: dict[str, Metric] = {
    "iteration_ms": Metric.of_samples(ITERATION, "ms"),
    "step_ms": Metric.of_samples(STEP, "ms"),
    "host_ms": Metric(8.95, "ms"),
    "launches_per_step": Metric(555, "1", exact=True, samples=(555, 555, 555, 555)),
    "syncs_per_step": Metric(0, "1", exact=True, samples=(0, 0, 0, 0)),
    "graph_launches_per_step": Metric(0, "1", exact=True, samples=(0, 0, 0, 0)),
    "launch_api_ms": Metric(2.1, "ms"),
    "launch_share_pct": Metric(23.3, "%"),
    "blocked_launch_ms": Metric(0.0, "ms"),
    "framework_ms": Metric(4.1, "ms"),
    "launch_call_ms": Metric(1.7, "ms"),
    "gpu_busy_ms": Metric(2.91, "ms"),
    "iteration_busy_ms": Metric(2.95, "ms"),
    "launch_overhead_ms": Metric(5.8, "ms"),
    "launch_overhead_pct": Metric(61.7, "%"),
    "step_overhead_pct": Metric(64.0, "%"),
    "sync_wait_ms": Metric(0.0, "ms"),
    "data_wait_ms": Metric(0.38, "ms"),
    "setup_ms": Metric(0.0, "ms"),
    "dispatch_gap_ms": Metric(0.21, "ms"),
    "unattributed_ms": Metric(0.055, "ms"),
    "predicted_replay_ms": Metric(3.1, "ms"),
    "replay_ms": Metric.of_samples(REPLAY, "ms"),
    "speedup": Metric(2.87, "x"),
    "host_replay_us": Metric(151.0, "us"),
    "capture_ms": Metric(31.0, "ms"),
    "instantiate_ms": Metric(8.2, "ms"),
    "graph_nodes": Metric(561, "1", exact=True),
    "graph_memory_mib": Metric(142.0, "MiB"),
    "break_even_steps": Metric(6.7, "steps"),
    "replayed_iteration_ms": Metric(3.52, "ms", source="measured"),
    "iteration_speedup": Metric(2.67, "x"),
    "removable_pct": Metric(62.5, "%", low=61.8, high=63.1),
    "shape_signatures": Metric(1, "1", exact=True),
    "device_ops_per_step": Metric(None, "1"),
    "exposed_communication_ms": Metric(None, "ms"),
}

PREDICTED = Metric(3.52, "ms", source="predicted")
SUBTRACTED = Metric(3.52, "ms", source="subtracted")
_UNMEASURED = {
    "replay_ms",
    "speedup",
    "host_replay_us",
    "capture_ms",
    "instantiate_ms",
    "graph_nodes",
    "graph_memory_mib",
    "break_even_steps",
}

_FACTS: dict[str, Any] = {
    "graph_kernel_share_pct": 0.0,
    "join_coverage_pct": 100.0,
    "legacy_stream_kernels": 0,
    "side_stream": True,
    "median_kernel_us": 3.4,
    "large_kernel_share_pct": 4.0,
    "iteration_check_pct": 0.3,
    "removable_step_pct": 65.1,
    "timing_steps": 30,
    "scheduler_live": False,
    "optimizer_classes": ("AdamW",),
    "has_pass_failures": False,
}


def share(value: float, low: float, high: float) -> Metric:
    """A share of the iteration between bounds."""
    return Metric(value, "%", low=low, high=high)


def profile(
    *,
    metrics: Mapping[str, float | Metric | None] | None = None,
    facts: dict[str, Any] | None = None,
    **changes: Any,
) -> Profile:
    """A step of 555 small kernels whose measured replay pays, with these values changed.

    `metrics` sets values without samples (None: not measured) or whole metrics; other keywords
    replace fields.
    """
    known = dict(_METRICS)
    for key, value in (metrics or {}).items():
        if isinstance(value, Metric):
            known[key] = value
        else:
            known[key] = replace(known[key], value=value, exact=False, samples=())
    base = Profile(
        target=Target("script", "train.py", ("--epochs", "1")),
        environment=Environment(
            device="NVIDIA H200", torch="2.11.0", cuda="13.0", driver="580.95", python="3.12.3"
        ),
        mode="gpu",
        step=StepBoundary(
            boundary="period",
            period=("forward", "backward", "optimizer"),
            names=("GPT", "", "AdamW"),
            scope="full_step",
            source=SourceLine("train.py", 41),
        ),
        metrics=known,
        shapes=Shapes(True, (ShapeSignature(3, tensors("(8, 256) int64, (8, 256) int64")),)),
        blockers=(),
        replay=Replay(
            status="measured",
            scope="full_step",
            changes=(OptimizerChange("AdamW", "capturable", True),),
            work=WorkComparison(True),
            correct=Correctness("verified", 4, 2e-7),
        ),
        kernels=(
            KernelRow(
                "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_tn",
                48,
                812.4,
                SourceLine("model.py", 61),
            ),
            KernelRow("void at::native::vectorized_elementwise_kernel<4, GeluCUDA>", 12, 231.0),
            KernelRow(
                "multi_tensor_apply_kernel<FusedAdam>", 6.5, 163.42, SourceLine("train.py", 47)
            ),
        ),
        facts=Facts(**(_FACTS | (facts or {}))),
    )
    return replace(base, **changes)


def predicted(
    *,
    metrics: Mapping[str, float | Metric | None] | None = None,
    facts: dict[str, Any] | None = None,
    **changes: Any,
) -> Profile:
    """The same step without a replay: its gain is a prediction from the trace."""
    unmeasured: dict[str, float | Metric | None] = dict.fromkeys(_UNMEASURED)
    return profile(
        metrics={**unmeasured, "replayed_iteration_ms": PREDICTED, **(metrics or {})},
        facts=facts,
        **({"replay": Replay("skipped", Reason("not_run"))} | changes),
    )


def blocked() -> Profile:
    """The same step with a value read on the host inside it."""
    return predicted(
        blockers=(item_blocker(),),
        replay=Replay("blocked", Reason("callable_with_blockers")),
    )


def item_blocker() -> Blocker:
    return Blocker(
        op="aten._local_scalar_dense",
        where=SourceLine("train.py", 52),
        count=1,
        category="sync",
        code="total += loss.item()",
    )


def library_blocker() -> Blocker:
    """The same in an installed library, below a line of the person's."""
    line = SourceLine("/env/lib/python3.12/site-packages/toymodels/encoder.py", 23)
    library = LibraryLine(line, "longest = mask.sum().item()", "toymodels", "1.2.0")
    return replace(item_blocker(), code="loss = model(x, mask)", library=library)


def gpu_bound() -> Profile:
    """A step of few large kernels, in which a replay gains nothing."""
    return profile(
        metrics={
            "iteration_ms": 52.1,
            "replayed_iteration_ms": 52.0,
            "iteration_speedup": 1.0,
            "iteration_busy_ms": 51.9,
            "gpu_busy_ms": 51.7,
            "launch_overhead_ms": 0.05,
            "launch_overhead_pct": 0.1,
            "launch_share_pct": 54.0,
            "launch_api_ms": 28.1,
            "blocked_launch_ms": 27.5,
            "data_wait_ms": 0.0,
            "step_ms": 51.9,
            "replay_ms": 51.8,
            "predicted_replay_ms": 51.8,
            "speedup": 1.0,
            "removable_pct": share(0.2, -0.6, 1.0),
        },
        facts={
            "removable_step_pct": 0.3,
            "large_kernel_share_pct": 97.0,
            "median_kernel_us": 910.0,
        },
    )


def rehearsal(**changes: Any) -> Profile:
    """What is known without a GPU."""
    known = {key: Metric(None, metric.unit) for key, metric in _METRICS.items()}
    known["device_ops_per_step"] = Metric(71, "1", exact=True)
    known["shape_signatures"] = Metric(1, "1", exact=True)
    base = profile(
        mode="rehearsal",
        environment=Environment(torch="2.13.0", python="3.11.9"),
        replay=Replay("skipped", Reason("not_run")),
        kernels=(),
    )
    facts = Facts(scheduler_live=False, optimizer_classes=("AdamW",))
    return replace(base, metrics=known, facts=facts, **changes)


def launched() -> Profile:
    """The Profile that would be adopted, with what a closer look at its trace shows."""
    line = SourceLine("train.py", 21)
    return replace(
        profile(),
        overhead_by_line=(
            OverheadRow("train.py:21", 400, 4.1, line),
            OverheadRow("model/[bold]net.py:8", 150, 1.2, SourceLine("model/[bold]net.py", 8)),
            OverheadRow("", 2.5, 0.3, part="between_steps"),
            OverheadRow("", 5, 0.2, part="unknown"),
        ),
        overhead_by_module=(
            OverheadRow("Linear_0", 300, 3.0, stack=("Net_0", "Linear_0")),
            OverheadRow("Net_0", 255, 2.8, stack=("Net_0",)),
        ),
        launches_by_operator=(OverheadRow("aten::linear", 555, 5.8),),
    )
