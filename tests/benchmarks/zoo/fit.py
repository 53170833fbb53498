"""The constants of the prediction's model, fitted again on the zoo's own rows.

For comparison only: if they differ much from the constants in
`launchscope.analysis.replay_model.prediction`, another machine or version needs others. The
error comes from fits that leave out each step in turn, so that a few steps with unusual kernels
do not flatter it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from launchscope.analysis.replay_model.prediction import COPY_MS, KERNEL_MS, START_MS

__all__ = ["fitted_constants"]

Floats = npt.NDArray[np.float64]
_FEWEST = 8
_NOW = np.array([KERNEL_MS, COPY_MS, START_MS])


def fitted_constants(rows: Sequence[dict[str, Any]]) -> list[str]:
    """One line with the constants and their error; none with too few steps."""
    chosen = [row for row in rows if row.get("work_same") and _all_known(row)]
    if len(chosen) < _FEWEST:
        return []
    parts, excess, replay = _system(chosen)
    cost = _solved(parts, excess, replay)
    errors = []
    for out in range(len(chosen)):
        kept = np.arange(len(chosen)) != out
        without = _solved(parts[kept], excess[kept], replay[kept])
        errors.append(100 * abs(parts[out] @ without - excess[out]) / replay[out])
    return [
        f"constants fitted on these steps: {1e3 * cost[0]:.3f} us a kernel, "
        f"{1e3 * cost[1]:.2f} us a copy or set, {1e3 * cost[2]:.1f} us a replay; each step left "
        f"out in turn: median error {np.median(errors):.1f} %, "
        f"90th percentile {np.percentile(errors, 90):.1f} %"
    ]


def _all_known(row: dict[str, Any]) -> bool:
    said = row["measured"]
    keys = ("predicted_replay_ms", "replay_ms", "kernels_per_step")
    return all(said[key] is not None for key in keys)


def _system(rows: Sequence[dict[str, Any]]) -> tuple[Floats, Floats, Floats]:
    """Nodes by kind, what a replay takes beyond the rest of its prediction, and its time in ms."""
    said = [row["measured"] for row in rows]
    copies = [(s["memcpys_per_step"] or 0) + (s["memsets_per_step"] or 0) for s in said]
    parts = np.array([[s["kernels_per_step"], n, 1.0] for s, n in zip(said, copies)], np.float64)
    replay = np.array([s["replay_ms"] for s in said], np.float64)
    predicted = np.array([s["predicted_replay_ms"] for s in said], np.float64)
    return parts, replay - (predicted - parts @ _NOW), replay


def _solved(parts: Floats, excess: Floats, replay: Floats) -> Floats:
    """Least absolute relative error, by weighing least squares a few times."""
    weight = np.ones(len(replay))
    cost: Floats = np.zeros(parts.shape[1])
    for _ in range(20):
        scale = weight / replay
        cost = np.asarray(np.linalg.lstsq(parts * scale[:, None], excess * scale)[0], np.float64)
        weight = 1 / np.sqrt(np.maximum(np.abs(parts @ cost - excess) / replay, 1e-3))
    return cost
