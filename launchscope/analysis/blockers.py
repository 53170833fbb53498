"""What to do about each operation that stops a graph capture."""

from __future__ import annotations

import re
from collections import Counter

from launchscope.model import Blocker, BlockerRecord, InspectResult, SourceLine

_BY_OP = {
    "_local_scalar_dense": (
        "Reading a value on the host waits for the GPU. Keep it in a tensor inside the step, or "
        "read it after the replay and less often. To choose between values, use torch.where."
    ),
    "nonzero": (
        "The size of the result depends on the data. Use torch.where with three arguments, or "
        "mask by multiplication, so that shapes stay fixed."
    ),
    "masked_select": (
        "The size of the result depends on the data. Replace the selection by torch.where(mask, "
        "x, 0), and divide by mask.sum() if you need a mean."
    ),
    "index": (
        "Indexing with a boolean mask asks the GPU for the size of the result. Use torch.where, "
        "or indices of a fixed length."
    ),
    "_unique2": (
        "The size of the result depends on the data. Call unique() outside the step, or pad its "
        "result."
    ),
    "repeat_interleave": "Pass output_size=, so that PyTorch does not ask the GPU for the length.",
    "equal": "torch.equal returns a Python bool. Compare on the GPU with (a == b).all().",
    "synchronize": "Remove the synchronization from the step. A replay needs none.",
}
_BY_CATEGORY = {
    "sync": (
        "The host waits for the GPU here. Keep the value on the GPU during the step, and read it "
        "after the replay."
    ),
    "host_copy": (
        "A copy from pageable host memory cannot be captured. Create the tensor once outside the "
        "step, or pin its memory and copy with non_blocking=True before the replay."
    ),
    "dynamic_shape": (
        "The shape of the result depends on the data. Give it a fixed size: torch.where, "
        "output_size=, or padding to a few lengths with one graph each."
    ),
    "rng": (
        "Register the generator with graph.register_generator_state, and use "
        "preserve_rng_state=False in checkpointing. Read or set the RNG state outside the step."
    ),
    "stream": (
        "Fork side streams from the capture stream and join them with wait_stream inside the "
        "step. Construct DDP and warm up on the capture stream."
    ),
    "optimizer": (
        "Construct the optimizer with capturable=True, and with a tensor lr if a scheduler changes "
        "it. With a GradScaler, use bf16, a fused optimizer, or a graph of forward and backward."
    ),
    "other": "Move this operation out of the step: run it before or after the replay.",
}


# A call of an optimizer's or a scaler's step, recognized by common names of the variable.
_STEPPING = re.compile(r"(\w*(?:opt|scal|adam|sgd|lbfgs)\w*)\.step\(", re.IGNORECASE)
# A step that takes a closure, whatever the variable is called.
_WITH_CLOSURE = re.compile(r"\.step\(\s*(?:closure\s*=\s*)?(?:\w*clos\w*|lambda\b)", re.IGNORECASE)
_IN_A_STEP = (
    "The optimizer's step reads a value on the host. {} capture forward and backward only, and run "
    "this line eagerly after the replay."
)
_SCALER = (
    "With a GradScaler, construct the optimizer with fused=True (Adam family: capturable=True as "
    "well), which looks for inf and NaN on the GPU, and capture scaler.update() too. Or train in "
    "bf16 without a scaler. Otherwise,"
)
_LBFGS = "LBFGS decides on the host when to stop, so no graph can hold its step:"
_OTHER_STEP = "Adam reads none with capturable=True, and SGD reads none with fused=True. Otherwise,"


def advice(
    op: str, category: str, code: str | None = None, optimizers: tuple[str, ...] = ()
) -> str:
    """Advice for this op, or for its category. `op` is a full name: "aten.nonzero.default".

    `code` is the source line; `optimizers` are the classes of the optimizers in the step.
    """
    if in_lbfgs(op, code, optimizers):
        return _IN_A_STEP.format(_LBFGS)
    stepping = _STEPPING.search(code or "")
    if op.endswith("_local_scalar_dense") and stepping and ".item(" not in (code or ""):
        scaled = "scal" in stepping[1].lower()
        return _IN_A_STEP.format(_SCALER if scaled else _OTHER_STEP)
    for part in op.replace("::", ".").split("."):
        if part in _BY_OP and not (part == "index" and category != "dynamic_shape"):
            return _BY_OP[part]
    return _BY_CATEGORY.get(category, _BY_CATEGORY["other"])


def in_lbfgs(op: str, code: str | None, optimizers: tuple[str, ...]) -> bool:
    """Whether LBFGS itself reads the value in its step, so that no change of the line helps."""
    line = code or ""
    if "LBFGS" not in optimizers or not op.endswith("_local_scalar_dense") or ".item(" in line:
        return False
    return bool(_STEPPING.search(line) or _WITH_CLOSURE.search(line))


def blockers(inspected: InspectResult | None) -> tuple[Blocker, ...]:
    """The blockers of the inspected step with advice, in the order in which they occur.

    A line that blocks in several parts of a step, as with micro-batches, is one blocker.
    """
    if inspected is None:
        return ()
    counts: Counter[tuple[str, SourceLine | None, str]] = Counter()
    first: dict[tuple[str, SourceLine | None, str], BlockerRecord] = {}
    for record in inspected.blockers:
        key = (record.op, record.where, record.category)
        counts[key] += record.count
        first.setdefault(key, record)
    return tuple(
        Blocker(
            record.op,
            record.where,
            counts[key],
            advice(record.op, record.category, record.code, inspected.optimizer_classes),
            record.category,
            record.code,
        )
        for key, record in first.items()
    )
