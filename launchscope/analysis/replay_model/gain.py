"""What replaying the step would take off the iteration, and after how many steps it pays."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import numpy as np

from launchscope.analysis.measured import BUSY_TOLERANCE_PCT, Measured, Value, middle
from launchscope.analysis.metrics import UNITS, exactly
from launchscope.analysis.replay_model.prediction import Prediction
from launchscope.analysis.replay_model.projection import Model, ReplayCost, host_replay_us
from launchscope.analysis.replay_model.replay import ReplayTimes
from launchscope.analysis.timing import StepTimes
from launchscope.model import Facts, Metric, ReplayResult

__all__ = ["from_replay", "project", "project_from_bursts", "timed_again"]

# Inputs to copy in per step where the recording does not say: a batch and its targets.
_USUAL_INPUTS = 2


def from_replay(
    result: ReplayResult | None,
    bursts: ReplayTimes | None,
    times: StepTimes | None,
    whole_step: bool = True,
) -> Measured:
    """What the replay pass measured.

    `speedup` is against the person's own eager: the step of the timing pass, as with every other
    figure of the gain, and for a part of the step, or untimed, the bursts beside the replays.
    """
    if result is None:
        return Measured()
    metrics: dict[str, Value] = {
        "capture_ms": result.capture_ms,
        "instantiate_ms": result.instantiate_ms,
        "graph_nodes": exactly("graph_nodes", result.graph_nodes),
        "graph_memory_mib": result.graph_memory_mib,
        "host_replay_us": Metric.of_samples(result.host_replay_us, UNITS["host_replay_us"]),
    }
    if bursts is not None:
        metrics["replay_ms"] = Metric.of_samples(bursts.replay, UNITS["replay_ms"])
        eager = middle(times.step) if times is not None and whole_step else None
        if eager is None and bursts.eager:
            eager = median(bursts.eager)
        replay = median(bursts.replay)
        if eager is not None and replay > 0:
            metrics["speedup"] = eager / replay
    facts = Facts(input_tensors=result.input_tensors, input_bytes=result.input_bytes)
    return Measured(metrics, facts)


def project(
    model: Model,
    times: StepTimes,
    result: ReplayResult | None,
    bursts: ReplayTimes | None,
    predicted: Prediction | None,
    operations: float,
    whole_step: bool = True,
    moved_inputs: int = 0,
) -> Measured:
    """Projected iteration, share removed with its bounds, cost of synchronising, break-even.

    The bounds take the slowest burst, or the prediction's upper bound, and the fastest usual
    iteration (`_usual`) together, and the reverse. A replay of forward and backward leaves what
    follows them as it is; for a smaller part of the step nothing is projected.
    """
    iteration, step = middle(times.iteration), middle(times.step)
    if iteration is None or step is None or predicted is None:
        return Measured()
    error = 100 * (model.iteration_ms / iteration - 1)
    waits = model.without_waits_ms()
    metrics: dict[str, Value] = {"sync_cost_ms": max(model.iteration_ms - waits, 0.0)}
    facts = Facts(simulation_error_pct=error)
    measured = bursts is not None
    keeps_rest = (
        measured and not whole_step and result is not None and result.scope == "forward_backward"
    )
    if result is not None and measured and not whole_step and not keeps_rest:
        note = f"the replay covers only the step's {result.scope}: the iteration is not projected"
        return Measured(metrics, facts, (note,))
    if bursts is not None:
        gpu, low, high = median(bursts.replay), bursts.low_ms, bursts.high_ms
    else:
        gpu, low, high = predicted.ms, predicted.low_ms, predicted.high_ms
    host = host_replay_us(operations)
    if result is not None and result.host_replay_us:
        host = median(result.host_replay_us)
    inputs, size = _USUAL_INPUTS, 0
    if result is not None and result.input_tensors is not None:
        inputs, size = result.input_tensors, result.input_bytes or 0

    def projected(replay_ms: float) -> float:
        cost = ReplayCost(replay_ms, host, inputs, size, keeps_rest, moved_inputs)
        return model.replayed_ms(cost)

    whole = projected(gpu)
    fast, slow = _usual(times, iteration, step, result, bursts if whole_step else None)
    metrics |= {
        "projected_iteration_ms": whole,
        "iteration_speedup": iteration / whole if whole > 0 else None,
        "removable_pct": Metric(
            100 * (1 - whole / iteration),
            "%",
            low=100 * (1 - max(projected(high), whole) / fast),
            high=100 * (1 - min(projected(low), whole) / slow),
        ),
    }
    facts = replace(
        facts,
        replay_ms_source="measured" if measured else "predicted",
        removable_step_pct=100 * (1 - gpu / step) if not keeps_rest else None,
    )
    if measured:
        metrics |= _break_even(result, iteration - whole)
    return Measured(metrics, facts)


def project_from_bursts(
    times: StepTimes,
    result: ReplayResult | None,
    bursts: ReplayTimes,
    whole_step: bool,
    stretched: bool = False,
) -> Measured:
    """The iteration where a replay was measured and no trace says what lies between the steps,
    or only one whose kernels were `stretched` beyond the iteration that they are of.

    The replay takes off the iteration what it takes off the step, nothing more and nothing less:
    a host that is behind, or waits between the steps, would change that. Bounds as in `project`.
    Of a replay of a part of the step nothing is said.
    """
    iteration, step = middle(times.iteration), middle(times.step)
    if iteration is None or step is None or iteration <= 0 or not whole_step:
        return Measured()
    replay = median(bursts.replay)
    fast, slow = _usual(times, iteration, step, result, bursts)
    whole = max(iteration - (step - replay), replay)
    most = max(iteration - (step - bursts.high_ms), whole)
    least = max(min(iteration - (step - bursts.low_ms), whole), 0.0)
    metrics: dict[str, Value] = {
        "projected_iteration_ms": whole,
        "iteration_speedup": iteration / whole if whole > 0 else None,
        "removable_pct": Metric(
            100 * (1 - whole / iteration),
            "%",
            low=100 * (1 - most / fast),
            high=100 * (1 - least / slow),
        ),
        **_break_even(result, iteration - whole),
    }
    facts = Facts(
        replay_ms_source="measured",
        projected_from_bursts=True,
        removable_step_pct=100 * (1 - replay / step) if step > 0 else None,
    )
    why = "the trace stretched the GPU's work" if stretched else "there is no trace"
    note = (
        f"{why}: the iteration with a replay is the measured one less what the replay takes off "
        "the step"
    )
    return Measured(metrics, facts, (note,))


def timed_again(
    times: StepTimes | None, result: ReplayResult | None, bursts: ReplayTimes | None
) -> bool:
    """Whether the eager steps beside the replays took what the timing pass had measured.

    Then the steps had not changed meanwhile, and a trace that says otherwise was disturbed by
    its own recording. Under changes that the capture asked for it cannot be told.
    """
    step = None if times is None else middle(times.step)
    if not step or bursts is None or not bursts.eager or result is None or result.changes:
        return False
    return 100 * abs(median(bursts.eager) / step - 1) <= BUSY_TOLERANCE_PCT


def _usual(
    times: StepTimes,
    iteration_ms: float,
    step_ms: float,
    result: ReplayResult | None,
    bursts: ReplayTimes | None,
) -> tuple[float, float]:
    """How fast and how slow an iteration usually is: its quartiles, and what other moments say.

    Those are the looks that the quartiles are not of, and the eager bursts beside the replays. On
    a shared host they differ by more than the quartiles within either, so what reaches furthest
    counts. Under changes that the capture asked for bursts are not the person's eager.
    """
    quartiles = (float(ms) for ms in np.percentile(times.iteration, (25, 75)))
    fast, *_, slow = sorted((*quartiles, *(times.looks_ms if times.unsteady else ())))
    if bursts is not None and bursts.eager and result is not None and not result.changes:
        later = median(bursts.eager) + max(iteration_ms - step_ms, 0.0)
        fast, slow = min(fast, later), max(slow, later)
    return fast, slow


def _break_even(result: ReplayResult | None, saved_ms: float) -> dict[str, Value]:
    """Steps after which what the capture took is saved again; nothing if that is not known."""
    spent = [result.capture_ms, result.instantiate_ms, result.first_replay_ms] if result else []
    known = [ms for ms in spent if ms is not None]
    if not known or saved_ms <= 0:
        return {}
    return {"break_even_steps": int(np.ceil(sum(known) / saved_ms))}
