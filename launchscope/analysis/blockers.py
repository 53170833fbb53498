"""What to do about each operation that a graph capture cannot contain."""

from __future__ import annotations

import re
from collections import Counter

from launchscope.model import Blocker, BlockerRecord, InspectResult, SourceLine

_BY_OP = {
    "_local_scalar_dense": (
        "Reading one value on the host waits for the GPU. Keep it as a tensor inside the step, or "
        "read it after the replay and less often; choose between values with torch.where."
    ),
    "nonzero": (
        "The size of the result depends on the data. Use torch.where with three arguments, or "
        "mask by multiplication, so that shapes stay fixed."
    ),
    "masked_select": (
        "The size of the result depends on the data. Replace the selection by torch.where(mask, "
        "x, 0) and divide by mask.sum() where a mean is meant."
    ),
    "index": (
        "Indexing with a boolean mask asks the GPU for the size of the result. Use torch.where, "
        "or indices of a fixed length."
    ),
    "_unique2": "unique() has a result of unknown size; do it outside the step, or pad it.",
    "repeat_interleave": "Pass output_size=, so that the GPU need not be asked for the length.",
    "equal": "torch.equal returns a Python bool; compare on the GPU with (a == b).all().",
    "synchronize": "Take the synchronisation out of the step; a replay needs none.",
}
_BY_CATEGORY = {
    "sync": (
        "The host waits for the GPU here. Move it out of the step, to after the replay, and keep "
        "the value on the GPU until then."
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
        "preserve_rng_state=False in checkpointing; reading or setting RNG state stays outside."
    ),
    "stream": (
        "Fork side streams from the capture stream and join them with wait_stream inside the "
        "step, and build DDP and warm up on the capture stream."
    ),
    "optimizer": (
        "Construct the optimizer with capturable=True (and a tensor lr if a scheduler changes "
        "it); with a GradScaler use bf16, a fused optimizer, or capture forward and backward only."
    ),
    "other": "Take this operation out of the step, or run it before or after the replay.",
}


# A value that an optimizer's step reads by itself, by what people call optimizers and scalers.
_STEPPING = re.compile(r"(\w*(?:opt|scal|adam|sgd|lbfgs)\w*)\.step\(", re.IGNORECASE)
# Whatever the optimizer is called, it is handed a closure.
_WITH_CLOSURE = re.compile(r"\.step\(\s*(?:closure\s*=\s*)?(?:\w*clos\w*|lambda\b)", re.IGNORECASE)
_IN_A_STEP = (
    "The step of the optimizer reads a value on the host. {} capture forward and backward only, "
    "and leave this line eager, after the replay."
)
_SCALER = (
    "With a GradScaler construct the optimizer with fused=True (Adam family: capturable=True as "
    "well), which looks for inf and NaN on the GPU, and capture scaler.update() with it; or train "
    "in bf16, without a scaler. Otherwise"
)
_LBFGS = "LBFGS decides on the host when to stop, so no graph holds its step:"
_OTHER_STEP = "Adam and its kin read none with capturable=True, SGD none with fused=True. Otherwise"


def advice(
    op: str, category: str, code: str | None = None, optimizers: tuple[str, ...] = ()
) -> str:
    """Advice for this op, else for its category; ops are named as in "aten.nonzero.default".

    `code` is the line that it stands in, `optimizers` are the classes of the step's own.
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
    """Whether the value is one that LBFGS reads in its step: nothing that the line could mend."""
    said = code or ""
    if "LBFGS" not in optimizers or not op.endswith("_local_scalar_dense") or ".item(" in said:
        return False
    return bool(_STEPPING.search(said) or _WITH_CLOSURE.search(said))


def blockers(inspected: InspectResult | None) -> tuple[Blocker, ...]:
    """The inspected step's blockers with advice, in the order in which the step meets them.

    A line that blocks in several parts of a step (of micro-batches: before the first backward and
    behind it) is one line to mend.
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
