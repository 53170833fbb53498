"""What is known of a measurement beside its metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from launchscope.model.reason import Reason
from launchscope.model.source_line import SourceLine


@dataclass(frozen=True)
class Facts:
    """What rules, reports and the gate need that is no metric of its own; None: not known.

    Shares are of GPU time unless they say otherwise; counts are per step.
    """

    # Of the run.
    timing_steps: int | None = None  # of the timing pass
    timing_window_iteration_ms: tuple[float, ...] | None = (
        None  # median at each moment it was timed
    )
    unsteady: bool | None = None  # these disagree, and the times are those of the fastest
    iteration_check_pct: float | None = None  # |wall time - event clock| of the timing pass
    has_pass_failures: bool | None = None
    side_stream: bool | None = None  # whether the traced steps ran on a stream of ours
    rank: int | None = None  # of the trace's process in a run of several

    # Of the step.
    scheduler_live: bool | None = None
    scheduler_where: SourceLine | None = None
    optimizer_classes: tuple[str, ...] | None = None
    amp_left_out: bool | None = None  # of a rehearsal: autocast or GradScaler did nothing in it
    input_tensors: int | None = None  # to be copied in before a replay
    input_bytes: int | None = None

    # Of the trace.
    join_coverage_pct: float | None = None  # of the device work, joined to its launch
    sync_names: tuple[str, ...] | None = None  # calls that wait
    inside_step_syncs: float | None = None
    between_step_syncs: float | None = None
    median_kernel_us: float | None = None
    large_kernel_share_pct: float | None = None
    graph_kernel_share_pct: float | None = None  # of the kernels, launched by graphs
    needs_legacy_stream: bool | None = None
    legacy_stream_kernels: int | None = None
    legacy_kernels_names: tuple[str, ...] | None = None
    busy_exceeds_interval_pct: float | None = None  # traced busy time over the untraced iteration

    # Of the gain.
    gain_unknown: Reason | None = None  # why none can be told
    replay_ms_source: Literal["measured", "predicted"] | None = None
    removable_step_pct: float | None = None  # of the step
    simulation_error_pct: float | None = None  # of the iteration that the queue simulation gives
    projected_from_bursts: bool | None = None  # without a trace, or against a stretched one

    # Of several processes, or of a baseline.
    processes: int | None = None
    ranges: dict[str, tuple[float, float]] | None = None  # by metric, where processes differed
    blocker_ranges: dict[str, tuple[int, int]] | None = None  # by op, likewise
