"""# What prevents a capture

## What it finds
- Each line inside the step that stops a capture: it reads a value on the host, copies from pageable
  memory, makes a shape that depends on data, or uses random state that the graph does not know.
- Training in which launchscope sees no forward of a `torch.nn.Module` with parameters, because the
  model is a few tensors or a function of them. The step then begins at its backward, and each
  replay would read the captured activations. Mark the step with `launchscope.step()`.
- Kernels on the legacy default stream although launchscope ran the script on another stream, as of
  a CUDA extension that calls `kernel<<<grid, block>>>(...)` without a stream argument. A graph
  lacks them, or its capture ends. launchscope then measures the script without a replay.
- A replay that was blocked, failed or was left out, with the reason, or that was measured with
  recorded results in place of the blocking operations (`what_if`); and the gain of a capture of a
  part of the step.

## Why it matters
The capture fails at that line, or each replay uses the value of the captured step. The gain is then
a prediction, or what you get once you have fixed the lines.

## Example
`if loss.item() > 10: ...` in the step. `torch.where(loss > 10, ...)` keeps the value on the GPU.
Where an installed library has the line, it is shown beside the line of yours that leads there.
Three things help from outside: an argument that avoids the operation (a value that you compute once
and pass as a tensor on the GPU, a size that you know, a mask of a fixed shape), a newer version of
the library, or a patch (a subclass or a function of yours in its place).

## Before
    mean = losses[mask].mean()  # the host has to know how many there are

## After
    mean = torch.where(mask, losses, 0).sum() / mask.sum()

## When it does not apply
Between steps these operations stop nothing. LS021 reports the time that they cost there. A trace
from another tool does not show on which stream the script was started.

## Reference
- [NVIDIA, Capture Failures](https://docs.nvidia.com/dl-cuda-graph/troubleshooting/capture-failures.html)
- [PyTorch, make_graphed_callables](https://docs.pytorch.org/docs/stable/generated/torch.cuda.make_graphed_callables.html)
- `replay.status`, `replay.reason` and `replay.scopes` in the Profile.
"""

from __future__ import annotations

from launchscope.model import CAPTURE_FLAGS, Blocker, Profile, ReasonCode, ReplayStatus
from launchscope.reason_text import as_written, reason_text
from launchscope.rules.profile_queries import PARTS, on_legacy_stream, runs_torch
from launchscope.rules.rule import Findings, rule
from launchscope.rules.verdict.obstacles import clauses, obstacle_of, obstacles
from launchscope.wording import flagged, ms, pct, place, plural, sentence

_HOST_INDICES = (
    "The index tensors are on the CPU, so that every step copies them to the GPU, which waits and "
    "cannot be captured. Create them on the GPU once before the loop."
)
_COALESCE = (
    "PyTorch sorts the entries of a sparse COO matrix that is not coalesced before it multiplies "
    "by it, and waits. Call coalesce() once before the loop, also of the transposed matrix by "
    "which a backward multiplies (in a torch.autograd.Function), or use a dense matrix."
)
_MASK = (
    "A boolean mask asks the GPU for the size of the result. Use torch.where(mask, x, 0), and "
    "divide by mask.sum() if you need a mean."
)
_BY_OP = {
    "_local_scalar_dense": "Reading a value on the host waits for the GPU. Keep it in a tensor "
    "inside the step, or read it after the replay and less often. To choose between values, use "
    "torch.where.",
    "nonzero": "The size of the result depends on the data. Use torch.where with three arguments, "
    "or mask by multiplication, so that shapes stay fixed.",
    "masked_select": _MASK,
    "index": _MASK,
    "mm": _COALESCE,
    "addmm": _COALESCE,
    "_sparse_addmm": _COALESCE,
    "mv": _COALESCE,
    "bmm": _COALESCE,
    "_coalesce": _COALESCE,
    "repeat_interleave": "Pass output_size=, so that PyTorch does not ask the GPU for the length.",
    "_linalg_check_errors": "torch.linalg reads on the host whether it failed. Use the function "
    "that leaves this to you (cholesky_ex, inv_ex, solve_ex), and read its info after the replay.",
    "equal": "torch.equal returns a Python bool. Compare on the GPU with (a == b).all().",
    "detect_anomaly": "Anomaly detection reads on the host whether each gradient is NaN. Switch it "
    "off with torch.autograd.set_detect_anomaly(False).",
    "find_unused_parameters": "DistributedDataParallel then reads on the host which parameters "
    "were used. Pass find_unused_parameters=False.",
    "synchronize": "Remove the synchronization from the step. A replay needs none.",
}
_BY_CATEGORY = {
    "sync": "The host waits for the GPU here. Keep the value on the GPU during the step, and read "
    "it after the replay.",
    "host_copy": "A copy from pageable host memory cannot be captured. Create the tensor once "
    "outside the step, or pin its memory and copy with non_blocking=True before the replay.",
    "dynamic_shape": "The shape of the result depends on the data. Give it a fixed size: "
    "torch.where, output_size=, or padding to a few lengths with one graph each.",
    "rng": "Register the generator with graph.register_generator_state, and use "
    "preserve_rng_state=False in checkpointing. Read or set the RNG state outside the step.",
    "stream": "Fork side streams from the capture stream and join them with wait_stream inside the "
    "step. Construct DDP and warm up on the capture stream.",
    "optimizer": "Construct the optimizer with capturable=True, and with a tensor lr if a "
    "scheduler changes it. With a GradScaler, use bf16, a fused optimizer, or a graph of forward "
    "and backward.",
    "other": "Move this operation out of the step: run it before or after the replay.",
}
_WITHOUT_SCALER = flagged({known.optimizer: (known.flag,) for known in CAPTURE_FLAGS})
_WITH_SCALER = flagged({known.optimizer: known.with_scaler for known in CAPTURE_FLAGS})
_IN_A_STEP = (
    "The optimizer's step reads a value on the host. {} capture forward and backward only, and run "
    "this line eagerly after the replay."
)
_BY_STEP = {
    "grad_scaler": "With a GradScaler, use an optimizer that looks for inf and NaN on the GPU "
    f"({_WITH_SCALER}), and capture scaler.update() too. Or train in bf16 without a scaler. "
    "Otherwise,",
    "lbfgs": "LBFGS decides on the host when to stop, so no graph can hold its step:",
    "optimizer": f"With the right flag it reads none ({_WITHOUT_SCALER}). Otherwise,",
}

# Of a replay that failed or was skipped.
_BY_REASON: dict[ReasonCode, str] = {
    "out_of_memory": "The eager figures are valid. Use --verify 0 or a smaller batch, so that the "
    "capture needs less memory beside the eager step.",
    "cuda_error": "The eager figures are valid. The error comes from the GPU: run the script alone "
    "with CUDA_LAUNCH_BLOCKING=1 to find the line, and check that the step reads its inputs only "
    "from tensors that keep their address.",
    "time_limit": "The eager figures are valid. Raise --timeout, or lower --timing and --replay.",
    "legacy_stream": "Launch the work of that stream on another one and profile again: a capture "
    "cannot contain it.",
    "already_graphed": "There is nothing to do: the step already replays graphs.",
    "script_ended": "Let the script run for more steps, or lower --warmup, --timing and --replay.",
    "trace_only": "Profile the script itself to measure a replay: launchscope profile train.py.",
    "not_run": "Profile with --replay 30 to measure a replay.",
}
_REPLAY_ADVICE: dict[ReplayStatus, str] = {
    "blocked": "Fix the lines that stop a capture and profile again.",
    "failed": "The eager figures are valid. Fix the cause and profile again.",
    "skipped": "Fix the cause and profile again.",
    "what_if": "Fix the blocking lines and profile again to confirm the gain.",
}
_REPLAY_TITLES: dict[ReplayStatus, str] = {
    "blocked": "The step cannot be captured yet",
    "failed": "The capture or its replay failed",
    "skipped": "No replay was measured",
    "what_if": "The replay was measured with `.item()` and other blocking operations skipped",
}
_PART_ADVICE = (
    "Capture this part in a graph and run the rest of the step after each replay. "
    "torch.cuda.make_graphed_callables does this for a model without hooks that takes and returns "
    "only tensors."
)


@rule("LS030", __doc__, fixable=True)
def RULE(profile: Profile) -> Findings:
    yield from _lines(profile)
    yield from _unseen_forward(profile)
    yield from _legacy_stream(profile)
    yield from _no_replay(profile)
    yield from _parts(profile)


def _lines(profile: Profile) -> Findings:
    captured = profile.replay.status == "measured"  # this capture worked in spite of the line
    for blocker in profile.blockers:
        library = blocker.library
        text = blocker.code if library is None else library.code
        name = as_written(blocker.op, text)
        if library is not None and library.where != blocker.where:
            name += f" at {place(library.where)}"
        count = f" ({blocker.count} times per step)" if blocker.count > 1 else ""
        code = f": `{text.strip()}`" if text else ""
        stops = "can stop" if captured else "stops"
        yield RULE.finding(
            "advice" if captured else "warning",
            sentence(f"{name}{count} {stops} a capture{code}").removesuffix("."),
            _line_advice(blocker),
            blocker.where,
            library.where if library else None,
        )


def _unseen_forward(profile: Profile) -> Findings:
    obstacle = obstacle_of(profile, "forward")
    if obstacle is not None:
        yield RULE.finding(
            "warning",
            "The step begins with its backward: no forward of a torch.nn.Module with parameters "
            "belongs to it",
            f"{obstacle.fix}. launchscope can then measure and check a replay.",
            profile.step.source if profile.step else None,
        )


def _legacy_stream(profile: Profile) -> Findings:
    if not on_legacy_stream(profile):
        return
    facts, what = profile.facts, "Part of the step runs"
    # With the whole script on that stream, its kernels do not show which of them need it.
    if facts.side_stream is not False and facts.legacy_stream_kernels:
        what = f"{plural(facts.legacy_stream_kernels, 'kernel')} ran"
    yield RULE.finding(
        "warning",
        f"{what} on the legacy default stream",
        "Make the extension launch on PyTorch's current stream "
        "(at::cuda::getCurrentCUDAStream()). A graph does not contain its work until then.",
    )


def _no_replay(profile: Profile) -> Findings:
    replay, reason = profile.replay, profile.replay.reason
    measured = replay.status == "measured" or (
        replay.status != "what_if" and (replay.shapes or replay.padded)
    )
    if profile.mode == "rehearsal" or measured:
        return
    why = "" if reason is None else f": {reason_text(reason)}"
    yield RULE.finding(
        "warning" if replay.status == "failed" else "info",
        f"{_REPLAY_TITLES[replay.status]}{why}",
        _replay_advice(profile),
        replay.where,
    )


def _replay_advice(profile: Profile) -> str:
    status, reason = profile.replay.status, profile.replay.reason
    if reason is None:
        return _REPLAY_ADVICE[status]
    if reason.code in ("ops_change", "ops_change_beside_blockers"):
        once = clauses(obstacles(profile)) or "every step runs the same ops"
        return f"A graph holds one sequence of ops. Profile again once {once}."
    if reason.code == "trace_only" and not runs_torch(profile):
        return ""
    known = _BY_REASON if status in ("failed", "skipped") else {}
    return known.get(reason.code, _REPLAY_ADVICE[status])


def _parts(profile: Profile) -> Findings:
    for scope in profile.replay.scopes:
        if scope.status != "measured" or scope.replay_ms is None or scope.eager_ms is None:
            continue
        removed = scope.removable_pct
        share = "nothing from" if removed is None or removed <= 0 else f"{pct(removed)} of"
        gain = "" if removed is None else f" and removes {share} the iteration"
        yield RULE.finding(
            "info",
            f"A graph of {PARTS.get(scope.scope, scope.scope)} alone takes {ms(scope.replay_ms)} "
            f"instead of {ms(scope.eager_ms)}{gain}",
            _PART_ADVICE if removed is None or removed > 0 else "",
        )


def _line_advice(blocker: Blocker) -> str:
    advice, library = _own_advice(blocker), blocker.library
    if library is None:
        return advice
    named = " ".join(filter(None, (library.package, library.version))) or place(library.where)
    by = ""
    if blocker.where != library.where:
        by = f" called by `{blocker.code.strip()}`" if blocker.code else " called by your line"
    lead = f"The line is in an installed library ({named}){by}."
    if blocker.inside is not None:  # what the person constructs decides, not the library's line
        return f"{lead} {advice}"
    return (
        f"{lead} Look for an argument that avoids it. Otherwise try a newer version, or patch the "
        f"line. {advice}"
    )


def _own_advice(blocker: Blocker) -> str:
    names = blocker.op.split(".")
    if "_local_scalar_dense" in names and blocker.inside is not None:
        return _IN_A_STEP.format(_BY_STEP[blocker.inside])
    if blocker.category == "host_copy" and any("index" in name for name in names):
        return _HOST_INDICES
    for name in names:
        if name in _BY_OP:
            return _BY_OP[name]
    return _BY_CATEGORY.get(blocker.category, _BY_CATEGORY["other"])
