"""Words for what the runner and the analysis say in codes: the only file that makes them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from string import Formatter
from typing import Any

from launchscope.model import Cause, PointFailure, Reason, ReasonCode, StepBoundary
from launchscope.wording import duration, ms, pct, plural

_ERROR = "{kind}: {error}"
_OPS_CHANGE = "the ops change from step to step ({variants} variants in {steps} steps)"
# Each is a clause, without a period.
TEXTS: dict[ReasonCode, str] = {
    "legacy_stream": "part of the step runs on the legacy default stream, which cannot be captured",
    "begins_with_backward": "the step begins with its backward, so a capture would lack the "
    "forward; mark the whole step with launchscope.step()",
    "already_graphed": "the step already replays CUDA graphs",
    "ops_change": _OPS_CHANGE,
    "ops_change_beside_blockers": f"{_OPS_CHANGE}, so results that are recorded in one "
    "step cannot replace blocking operations in another",
    "callable_with_blockers": "launchscope replaces blocking operations by recorded results only "
    "in a script that it runs itself",
    "compiled_with_blockers": "a blocking operation is in compiled code, where its result cannot "
    "be recorded",
    "no_such_part": "the step has no such part",
    "whole_step_captured": "the whole step was captured",
    "larger_part_captured": "a larger part of the step was captured",
    "trace_only": "a trace holds no replay of the step",
    "not_run": "the replay pass did not run",
    "error": _ERROR,
    "out_of_memory": _ERROR,
    "cuda_error": _ERROR,
    "state_too_large": "a copy of {what} takes {mib:,.0f} MiB, more than the GPU or the host has "
    "free",
    "profiler_busy": "the script runs a profiler of its own, and only one can record the GPU at a "
    "time",
    "one_rank_only": "it is measured only in scripts of one process",
    "ranks_apart": "the ranks did not reach the same step within {seconds:.0f} s, and a replay "
    "needs all of them",
    "rank_cannot_capture": "rank {rank} cannot capture this step, and a replay needs all ranks",
    "another_rank_failed": "another rank could not capture or replay the step, so this one did not "
    "either",
    "empty_graph": "the captured graph is empty: the step launched nothing on the stream of the "
    "capture",
    "script_ended": "the script ended before a replay was timed",
    "hung": "it did not end and was stopped",
    "time_limit": "the time limit was reached",
    "other_step": "this run found another step ({now}) than the run that was measured before "
    "({before})",
    "launchscope_failed": "launchscope failed in the script's process with {kind} ({where})",
    "raised_in_pass": "the script ended with {kind} during this pass",
    "unreadable_result": "its result cannot be read: {error}",
    "blockers_skipped": "the step skips its blocking operations during a capture",
    "loop_differs": "steps of the loop differ from the captured one, or the script saved a file",
    "no_call_to_replace": "the step calls no module, backward or optimizer that could be replaced",
    "callable_without_loop": "a callable has no loop of its own",
    "slow_steps": "its steps take too long for windows of them",
    "not_captured": "no replay of the step was measured",
    "what_if_replay": "the replay ran with recorded results in place of the blocking operations",
    "compiled_step": "the step is compiled, so its ops cannot be observed one by one",
    "script_ended_before_check": "the script ended before a step could be compared",
    "nothing_to_compare": "the step changes no state and returns nothing to compare",
    "few_compared": "only {compared} of {wanted} steps could be compared",
    "blocker_in_part": "{op_at} is in this part of the step",
    "constant_loss": "eager's loss is {finite:the same|NaN or infinity} in every step, so its "
    "agreement says little",
    "script_out_of_memory": "out of GPU memory, {measured_in_part:after it was measured in part|"
    "before it was measured}",
    "no_strategy": "no strategy was asked for",
    "no_graph_compiled": "Dynamo compiled no graph of the model",
    "script_compiles": "the script compiles its model itself",
    "no_module_called": "the script itself calls no module with parameters",
    "no_gpu": "a CUDA graph needs a GPU",
    "keyword_inputs": "make_graphed_callables takes no keyword inputs, and the script calls "
    "{module} with {names}",
    "eager_loss_unknown": "eager's losses are unknown",
    "adopted_at_another_step": "the two runs adopted it at different steps",
    "no_loss": "no loss was observed",
    "loss_differs": "random numbers (dropout) are drawn in another order, or the result is a "
    "different one",
    "loss_not_finite": "one of the two runs gives NaN or infinity",
    "interrupted": "interrupted",
    "run_failed": "{error}",
    "no_gpu_work": "nothing ran on a GPU",
    "no_step_timed": "no step was timed",
    "no_replay_measured": "no replay was measured",
    "legacy_stream_needed": "some of its kernels run on the legacy default stream, so all of it "
    "has to",
    "suspected_pass": "the script failed during the {name} pass, which may have caused it",
    "to_its_end": "it was stopped before its end",
    "pass_ended_process": "the {name} pass ended the process before {names} could run",
    "smaller_part": "a smaller part of the step may be captured",
    "another_rank": "another rank is not measured yet",
    "fewer_steps": "its step was seen {steps} times, so every pass takes fewer steps",
    "optimizer_steps": "each optimizer step counts as a step",
    "forward_steps": "each forward counts as a step",
    "file_cut": "the file is damaged and may lack device work (counts and busy times are lower "
    "limits, idle time is an upper one)",
    "graph_capture": "the trace shows the capture of a CUDA graph, and a launch that is captured "
    "runs nothing on the GPU",
    "work_lost": "the trace has device work for only {found} of {calls} launches",
    "no_step": "the trace has no step that could be found, and its whole span may hold set-up and "
    "pauses",
    "several_gpus": "the process works on several GPUs, and the figures are those of one of them",
    "clocks_disagree": "the clocks of host and GPU disagree in the trace, which does not show by "
    "how much",
    "trace_contradicts": "the traced GPU work takes {excess_pct:pct} longer than the iteration "
    "that was timed",
    "whole_span": "the figures are totals of the whole span, which is what you asked for",
    "no_place": "no call of the step was seen in a file of yours; write the training loop in one",
    "no_source": "the code of the step is in no file (a notebook, exec, a pipe); save it in one",
    "unreadable": "the file cannot be read as Python source in its encoding; save it as UTF-8",
    "changed": "the file changed while it ran; run the same command again",
    "installed": "the step is inside an installed package, which launchscope does not change; "
    "write the loop in a file of yours",
    "outside_project": "the step is in {name}, outside of the folder of the project; run "
    "launchscope in a repository or a folder that holds both",
    "two_files": "the step begins here and continues at {name}, in another file; move it into one "
    "function",
    "two_functions": "the step begins here and continues at {name}, in another function; move it "
    "into one",
    "no_loop": "no loop of yours repeats the step; write the loop around it in a file of yours",
    "leaves_step": "`{name}` leaves the step in the middle; leave it before its forward or after "
    "its last line",
    "scope": "the step changes which variable `{name}` stands for; do so before or after it",
    "host_read": "the step needs what `{name}` does on the host: {why}",
    "host_work": "`{name}` {why}, which a replay would not do again; do that before or after the "
    "step",
    "shared_line": "`{name}` {why}, and is on a line with a part of the step; put each on a line "
    "of its own",
    "branch_name": "`{name}` is not set in every run of the step, which passes or returns it; "
    "set it before the step, too",
    "needs_gradient": "`{name}`, where the backward begins, is computed outside of the step; "
    "compute it between the forward and the backward",
    "changing_number": "`{name}` is another number in each iteration, and a graph keeps the first; "
    "fill a tensor on the GPU with it before the step",
    "class_scope": "the loop is in the body of a class; put it into a function",
    "name_taken": "the name `{name}` is taken; rename yours",
    "original_failed": "the script failed in a copy of its folder: {error}",
    "patched_failed": "the changed script failed: {error}",
    "writes_outside": "the script writes to {path}, outside of the copy of its folder, and a run "
    "that is only compared must not replace your files",
    "no_training": "no optimizer stepped, and no model was called",
    "no_patch": "there is no patch",
    "verdict_against": "the verdict on this step is against a graph",
    "unseeded_state": "two runs of the script begin with other parameters or data, although "
    "launchscope sets the seeds of Python, NumPy and PyTorch",
    "unseeded_batches": "two runs of the script get other batches, although launchscope sets the "
    "seeds of Python, NumPy and PyTorch",
    "too_few_timed": "the script ended before enough steps were timed; let it run for more than "
    "{steps} steps",
    "no_stub": "no recorded result can replace {op:op}",
    "blockers_stubbed": "{count:#blocking operation} {count:was|were} replaced by recorded results",
    "file_damaged": "{events:#event} of the file {events:is|are} damaged",
    "few_launches": "a step has only {launches:#launch}, copies and memsets included, and a replay "
    "needs about as many calls",
    "few_between_waits": "the host waits {waits:#time} in a step of {launches:#launch}, so each "
    "graph between two waits would hold only a few, and a replay needs about as many calls",
    "pauses": "{pauses:,} of {gaps:#gap} {pauses:holds|hold} most of the time in which the GPU is "
    "idle, as with set-up that runs once",
    "no_durations": "{short:,} of {works:#GPU event} {short:has|have} a duration that no GPU "
    "reaches (under 0.1 us), as from a clock that is too coarse, and busy time is not known",
    "set_up": "{share_pct:pct} of the time in which the GPU is idle is in calls that allocate "
    "memory or load modules, as with set-up that runs once",
    "waits_for_ranks": "for {share_pct:pct} of the iteration the GPU runs nothing but collectives, "
    "which wait for another rank",
    "too_few_steps": "the script made {steps:#step}, and {wanted} have to be compared",
    "graph_differs": "a replay differs from the eager step: {error}",
    "not_replayed": "{pct:pct} of the calls were replays, and 90 % have to be: {why}",
    "not_faster": "the changed script is not faster: {before_ms:ms} became {after_ms:ms}",
    "not_verified_within": "it was not verified within {seconds:duration}",
    "stubs_change_the_step": "the captured step ran {op:op}{shapes: on } where the "
    "recorded one ran {recorded_op:op}{recorded_shapes: on }, so the step depends on the values "
    "that were recorded",
    "process_died": "the process was ended by {exit_code:death}",
    "blocking_lines_stubbed": "measured with the blocking lines stubbed: fix them "
    "first{lines: at }",
    "runs_differ": "two runs of the script differ before anything is adopted: set a seed to "
    "compare them",
    "kernels_vary": "two runs of the script begin alike and differ before anything is adopted, so "
    "its kernels are not deterministic; torch.use_deterministic_algorithms(True) makes them "
    "comparable",
    "launches_unknown": "the trace does not say which calls launched {unknown:,} of "
    "{events:#GPU event}",
    "printed_differs": "the original {file:wrote} {original:line}, and the changed script "
    "{patched:line}",
    "value_differs": "after {unit:#step} `{name:op}` is {original:there} in the original, and "
    "{patched:there} in the changed script",
}

# Hyperparameters by the words people use for them.
_HYPERPARAMETERS = {"lr": "learning rate", "weight_decay": "weight decay"}
_TENSORS = {
    "host": "data of shape {dims} that the step makes on the host",
    "state": "a parameter, gradient or buffer of shape {dims} that the script creates again",
    "previous_step": "a tensor of shape {dims} that the step before made",
}
# What a person writes and searches for, in place of PyTorch's name for the op.
_WRITTEN = {
    "aten._local_scalar_dense": ".item()",
    "aten.is_nonzero": "bool(tensor)",
    "aten.equal": "torch.equal()",
    "aten._unique": "unique()",
    "aten._unique2": "unique()",
    "aten.unique_dim": "unique()",
    "aten.unique_dim_consecutive": "unique_consecutive()",
    "aten.index": "indexing",
    "aten.index_put": "indexing",  # also of the backward
    "aten.index_put_": "assignment to indices",
    "aten._sparse_addmm": "torch.sparse.mm()",
    "aten.copy_": "copy_()",
    "aten._copy_from": "copy_()",
    "aten._to_copy": ".to() or .cpu()",
    "aten.to": ".to()",
    "aten._linalg_check_errors": "the error check of torch.linalg",
    "cudaStreamSynchronize": "a synchronization",
    "unknown": "an operation",
    "torch.Tensor.__repr__": "print(tensor)",
    "torch.autograd.detect_anomaly": "anomaly detection",
    "ddp.find_unused_parameters": "find_unused_parameters=True of DistributedDataParallel",
}
_LONGEST_LINE = 80  # characters of what a script printed
# The longest block of repeated events in a step: gradient accumulation with two models, a decode.
_LONGEST_BLOCK = 6


# What the text says in place of a detail that is left out.
_ABSENT = {
    "recorded_op": "no further blocking operation",
    "exit_code": "an unknown cause",
    "name": "a tensor of the batch",
    **dict.fromkeys(("shapes", "recorded_shapes", "lines", "original", "patched", "file"), ""),
}


class _Words(Formatter):
    """Fills in the details of a reason. Beside Python's formats there are `{share:pct}` and the
    like, `{steps:#step}` for a number of things, `{steps:is|are}` for the verb behind it, and
    `{lines: at }` for what is said only with the detail. `{op_at}` is the op with its line. An
    edited or damaged file may lack a detail, and the text says so in its place."""

    def get_value(self, key: int | str, args: Sequence[Any], details: Mapping[str, Any]) -> Any:
        if key == "op_at":
            return _op_at(details)
        value = details.get(str(key))
        return _ABSENT.get(str(key), f"{key} not recorded") if value is None else value

    def format_field(self, value: Any, form: str) -> str:
        one, bar, several = form.partition("|")
        if bar:
            return one if value == 1 else several
        if form.startswith(" "):
            return f"{form}{value}" if value else ""
        if form in _TEXT_FORMS:
            return _TEXT_FORMS[form](value)
        if isinstance(value, str):
            return value
        if form in _FORMS:
            return _FORMS[form](value)
        return plural(value, form[1:]) if form.startswith("#") else format(value, form)


def _line(value: object) -> str:
    """A line that a script printed."""
    text = " ".join(str(value).replace("`", "'").split())
    more = "..." if len(text) > _LONGEST_LINE else ""
    return f"`{text[:_LONGEST_LINE]}{more}`" if text else "no such line"


_FORMS: Mapping[str, Callable[[float], str]] = {"pct": pct, "ms": ms, "duration": duration}
_TEXT_FORMS: Mapping[str, Callable[[Any], str]] = {
    "op": lambda value: as_written(str(value)),
    "death": lambda value: value if isinstance(value, str) else cause_of_death(int(value)),
    "line": _line,
    "there": lambda value: str(value or "not there"),
    "wrote": lambda value: f"writes to `{value}`" if value else "prints",
}


def reason_text(reason: Reason) -> str:
    """A clause without a period. The code of another version stands for itself."""
    text = TEXTS.get(reason.code)
    return reason.code if text is None else _Words().vformat(text, (), reason.details)


def _op_at(details: Mapping[str, str | int | float]) -> str:
    """`.item() at train.py:9`."""
    at = f" at {details['file']}:{details['line']}" if "file" in details else ""
    return as_written(str(details.get("op", "unknown"))) + at


def failure_text(failure: PointFailure) -> str:
    """Why a point was not measured, with the line if there is one."""
    at = f" at {failure.where}" if failure.where else ""
    return f"{reason_text(failure.reason)}{at}"


def cause_of_death(exit_code: int | None) -> str:
    """Words for an exit code as subprocess gives it (negative: a signal)."""
    if exit_code is None:
        return "an unknown cause"
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"


def cause_text(cause: Cause) -> str:
    """Why a replay is not the eager step, as a clause: "the learning rate of SGD changes"."""
    if cause.kind == "branch":
        return _branch(cause)
    if cause.kind == "cross_step_state":
        dims = "?" if cause.tensor is None else cause.tensor.dims
        tensor = _TENSORS[cause.origin or "previous_step"].format(dims=dims)
        return f"the step reads {tensor}: a replay goes on reading the first one"
    if cause.kind == "unjoined_stream":
        return "work on a stream that was not forked from the capture's is missing from the graph"
    what = f"a value passed to {as_written(cause.op or '')}"
    if cause.kind != "scalar":
        name = cause.hyperparameter or "lr"
        what = f"the {_HYPERPARAMETERS.get(name, name)} of {cause.optimizer}"
    if cause.before is None or cause.after is None:
        return f"{what} changes, and a capture freezes it"
    change = f"from {cause.before:.6g} to {cause.after:.6g}"
    return f"{what} changes ({change}), and a capture freezes it"


def _branch(cause: Cause) -> str:
    ran, captured = (as_written(op) if op else "nothing" for op in (cause.op, cause.captured_op))
    shapes = " with inputs of other shapes" if ran == captured else ""
    return f"the step ran {ran}{shapes} where the captured one ran {captured}"


def as_written(op: str, code: str | None = None) -> str:
    """`.item()` for "aten._local_scalar_dense"; an implicit one if the line does not show it.
    The line also tells `.cpu()` and `.to()` apart, which run the same op."""
    namespace, _, rest = op.replace("::", ".").partition(".")
    name = f"aten.{rest.partition('.')[0]}" if namespace == "aten" else op
    written = _WRITTEN.get(name)
    if written == ".item()" and code and ".item(" not in code:
        return "an implicit .item()"
    if name == "aten._to_copy" and code:
        return ".cpu()" if ".cpu(" in code else ".to()"
    if written is None and namespace in ("aten", "torch"):
        return f"{name.removeprefix('aten.').strip('_')}()"
    return written or op


_WITHOUT_NAME = {"previous_end": "end of the step before"}


def step_summary(step: StepBoundary) -> str:
    """`(forward GPT > backward) x4 > optimizer AdamW`; for an optimizer that calls its closure
    (LBFGS, or any in Lightning) it adds where forward and backward are."""
    if step.boundary == "none":
        return "whole span"
    if step.launches is not None:
        repeat = "repeats" if step.launches == 1 else "repeat"
        return f"{plural(step.launches, 'launch')} that {repeat}, copies included"
    events = [
        _WITHOUT_NAME.get(event, event) if name in ("", event) else f"{event} {name}"
        for event, name in zip_longest(step.period, step.names, fillvalue="")
    ]
    parts = []
    while events:
        length, times = _repetition(events)
        block = " > ".join(events[:length])
        if times > 1:
            block = f"({block}) x{times}" if length > 1 else f"{block} x{times}"
        parts.append(block)
        del events[: length * times]
    inside = ", with forward and backward inside" if step.closure else ""
    return " > ".join(parts) + inside


def _repetition(events: list[str]) -> tuple[int, int]:
    """Length and repetitions of the block at the beginning that covers most events; of several
    such blocks the shortest."""
    best = 1, 1
    for length in range(1, min(_LONGEST_BLOCK, len(events) // 2) + 1):
        times = 1
        while events[length * times : length * (times + 1)] == events[:length]:
            times += 1
        if times > 1 and length * times > best[0] * best[1]:
            best = length, times
    return best
