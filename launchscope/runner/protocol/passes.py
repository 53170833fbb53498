"""What the parent knows of each pass. The child finds their code in `child/passes`, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from launchscope import model

# Of the pass that replays each shape: steps to count the shapes; then so many shapes, with eager
# steps and replays of each.
SHAPES_COUNTED, MOST_SHAPES, SHAPE_TIMED = 12, 4, 10


@dataclass(frozen=True)
class PassInfo:
    """One pass. `cut_off` makes the result of one whose process died; without it the pass has
    failed."""

    name: str
    label: str  # what it does, for people who wait: "tracing the replay"
    result_type: Any  # what the child writes as pass-NAME.json
    steps: Callable[[model.Schedule], int]  # that it takes; 0 leaves it out
    on_cpu: bool = False  # runs in a rehearsal too
    worth_another_run: bool = True  # the script is run again for it if it could not run yet
    depends_on_stream: bool = False  # its result depends on whether the script runs on our stream
    follows: str | None = None  # a pass that gave a result in the same process
    part_of: str | None = None  # a pass that measures more, and could not here
    fewest_steps: int | None = None  # for a script with few steps; None: always all
    cut_off: Callable[[model.Reason], Any] | None = None


_ROWS = (
    PassInfo("strategy", "adopting graphs", model.StrategyResult, lambda plan: plan.strategy,
             on_cpu=True),
    PassInfo("timing", "timing", model.TimingResult, lambda plan: plan.timing,
             depends_on_stream=True, fewest_steps=3),
    PassInfo("trace", "tracing", model.TraceResult, lambda plan: plan.trace,
             depends_on_stream=True, fewest_steps=2),
    PassInfo("inspect", "inspecting", model.InspectResult, lambda plan: plan.inspect,
             on_cpu=True, fewest_steps=2),
    PassInfo("replay", "replaying", model.ReplayResult, lambda plan: plan.replay,
             fewest_steps=10, cut_off=partial(model.ReplayResult, "failed")),
    PassInfo("replay_shapes", "replaying each shape", model.ShapesResult,
             lambda plan: SHAPES_COUNTED + 2 * MOST_SHAPES * SHAPE_TIMED if plan.replay else 0,
             part_of="replay"),
    PassInfo("replay_trace", "tracing the replay", model.ReplayTraceResult,
             lambda plan: 1 if plan.replay else 0, follows="replay"),
    PassInfo("verify", "comparing results", model.VerifyResult,
             lambda plan: plan.verify + 1 if plan.verify else 0,
             follows="replay", cut_off=partial(model.VerifyResult, "skipped")),
    PassInfo("scope_forward_backward", "replaying forward and backward", model.ReplayResult,
             lambda plan: plan.replay, part_of="replay",
             cut_off=partial(model.ReplayResult, "failed", scope="forward_backward")),
    PassInfo("scope_forward", "replaying the forward", model.ReplayResult,
             lambda plan: plan.replay, part_of="replay",
             cut_off=partial(model.ReplayResult, "failed", scope="forward")),
    PassInfo("replayed_loop", "running the loop under replay", model.LoopResult,
             lambda plan: 66 if plan.replay else 0,  # or more, for so long as windows last
             worth_another_run=False, follows="replay",
             cut_off=partial(model.LoopResult, "failed")),
    # Only `watch` runs it. The result: steps, their seconds, and those that watching cost.
    PassInfo("watch", "watching", tuple[int, float, float], lambda plan: 0),
)  # fmt: skip
PASSES = {info.name: info for info in _ROWS}  # in the order in which they run
