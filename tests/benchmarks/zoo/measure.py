"""One workload: the truth, launchscope's verdict with the replay, and without looking at it."""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import asdict, fields, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from launchscope.analysis import build_profile
from launchscope.model import Profile, Recording, Schedule
from launchscope.parser import read_recording
from launchscope.reason_text import reason_text
from launchscope.rules import advise
from launchscope.runner.parent.in_process import record_steps
from tests.benchmarks.zoo import truth
from tests.benchmarks.zoo.workload import Step, Workload

__all__ = ["row_of"]

_KEPT = (
    "iteration_ms", "step_ms", "host_ms", "gpu_busy_ms", "kernels_per_step", "memcpys_per_step",
    "memsets_per_step", "launch_share_pct", "launch_overhead_pct", "predicted_replay_ms",
    "replay_ms", "graph_nodes", "replayed_iteration_ms", "removable_pct",
)  # fmt: skip
_FACTS = ("median_kernel_us",)


def row_of(
    workload: Workload,
    device: torch.device,
    batch: int,
    schedule: Schedule,
    keep: Path | None = None,
) -> dict[str, Any]:
    """Everything about one workload, as plain JSON values.

    The truth comes first: a capture that fails inside launchscope can leave CUDA unusable. The
    verdict is measured between two visits of it, and all is made again until these agree. The
    recording that counts goes to `keep`, if that is given.
    """
    begun = time.perf_counter()
    torch.manual_seed(0)
    step = workload.build(device, batch)
    row: dict[str, Any] = {
        "name": workload.name,
        "kind": workload.kind,
        "batch": batch,
        "changed_work": step.same_work is not None,
        "build_s": time.perf_counter() - begun,
    }
    if device.type != "cuda":
        row |= _advised(step, schedule, keep)
    else:
        row |= _held_against_truth(step, schedule, keep)
    row["seconds"] = time.perf_counter() - begun
    return row


def _held_against_truth(step: Step, schedule: Schedule, keep: Path | None) -> dict[str, Any]:
    """Verdict and truth of a machine that held still meanwhile; the last try if it never did."""
    until = time.perf_counter() + truth.LONGEST_S
    visits, shares = [truth.bursts(step)], []
    while True:
        row = _advised(step, schedule, keep)
        if row["measured"]["replay_status"] != "measured":
            return row | {"truth": asdict(truth.Truth.of(visits[-1]))}
        shares.append(row["measured"]["removable_pct"])
        visits.append(truth.bursts(step))
        still = truth.held_still(*visits[-2:])
        if still or time.perf_counter() > until:
            return row | {
                "truth": asdict(truth.Truth.of(visits[-2] + visits[-1])),
                "held_still": still,
                "visits": [asdict(truth.Truth.of(visit)) for visit in visits],
                "verdicts_removable_pct": shares,
            }


def _advised(step: Step, schedule: Schedule, keep: Path | None) -> dict[str, Any]:
    """What `launchscope.measure` would return, and the same recording without its replay."""
    with tempfile.TemporaryDirectory(prefix="zoo-") as directory:
        for mark in record_steps("step", schedule, Path(directory)):
            with mark:
                step.run(*step.inputs)
        recording = read_recording(directory)
        if keep is not None:
            shutil.rmtree(keep, ignore_errors=True)
            shutil.copytree(directory, keep)
        measured = advise(build_profile(recording))
        predicted = advise(build_profile(without_replay(recording)))
    return {
        "measured": _said(measured),
        "predicted": _said(predicted),
        "bursts_eager_ms": _eager_ms(recording),
        "work_same": measured.replay.work.same,
        "shapes_stable": measured.shapes.stable,
        "blockers": [f"{b.op} {b.where}" for b in measured.blockers],
        "notes": list(measured.notes),
    }


def _eager_ms(recording: Recording) -> float | None:
    """Median of the eager steps beside the replays, under the flags of the capture."""
    bursts = recording.replay.eager_bursts if recording.replay else ()
    steps = [ms for burst in bursts for ms in burst]
    return median(steps) if steps else None


def without_replay(recording: Recording) -> Recording:
    """The recording as if nothing had been captured: all that rests on a replay is gone."""
    starts = ("replay", "scope_", "verify")
    gone: dict[str, Any] = {f.name: None for f in fields(recording) if f.name.startswith(starts)}
    failures = tuple(f for f in recording.failures if not f.name.startswith(starts))
    return replace(recording, failures=failures, **gone)


def _said(profile: Profile) -> dict[str, Any]:
    verdict = profile.verdict
    assert verdict is not None
    return {
        "recommendation": verdict.recommendation,
        "basis": verdict.basis,
        "confidence": verdict.confidence,
        "headline": verdict.headline,
        "replay_status": profile.replay.status,
        "replay_reason": profile.replay.reason and reason_text(profile.replay.reason),
        **{key: profile.value(key) for key in _KEPT},
        "predicted_replay_low_ms": profile.metrics["predicted_replay_ms"].low,
        "predicted_replay_high_ms": profile.metrics["predicted_replay_ms"].high,
        "removable_low_pct": profile.metrics["removable_pct"].low,
        "removable_high_pct": profile.metrics["removable_pct"].high,
        **{key: getattr(profile.facts, key) for key in _FACTS},
    }
