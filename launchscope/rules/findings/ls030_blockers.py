"""# An operation that a capture cannot contain

## What it finds
Each line inside the step that stops a capture: it reads a value on the host, copies from pageable
memory, makes a shape that depends on data, or uses random state that the graph does not know.

Where an installed library has that line, it is shown beside the line of yours that leads there.
Three things help from outside: an argument that avoids the operation (a value that you compute once
and pass as a tensor on the GPU, a size that you know, a mask of a fixed shape), a newer version of
the library, or a patch (a subclass or a function of yours in its place).

## Why it matters
The capture fails at that line, or each replay uses the value of the captured step.

## Example
`if loss.item() > 10: ...` in the step. `torch.where(loss > 10, ...)` keeps the value on the GPU.

## Before
    mean = losses[mask].mean()  # the host has to know how many there are

## After
    mean = torch.where(mask, losses, 0).sum() / mask.sum()

## When it does not apply
Between steps these operations stop nothing. LS021 reports the time that they cost there.

## Reference
- [NVIDIA, CUDA Graph Best Practice for PyTorch](https://docs.nvidia.com/dl-cuda-graph/latest)
- [PyTorch, CUDA semantics: constraints of CUDA Graphs](https://docs.pytorch.org/docs/stable/notes/cuda.html#constraints)
"""

from __future__ import annotations

from dataclasses import replace

from launchscope.model import CAPTURE_FLAGS, Blocker, Profile
from launchscope.reason_text import as_written
from launchscope.rules.rule import Findings, rule
from launchscope.wording import flagged, place, sentence

_HOST_INDICES = (
    "The index tensors are on the CPU, so that every step copies them to the GPU, which waits and "
    "cannot be captured. Create them on the GPU once before the loop."
)
_COALESCE = (
    "PyTorch sorts the entries of a sparse COO matrix that is not coalesced before it multiplies "
    "by it, and waits. Call coalesce() once before the loop. A backward multiplies by the "
    "transposed matrix, which is not coalesced either: keep that one as well, coalesced, and "
    "multiply by it in a torch.autograd.Function of your own, or use a dense matrix."
)
_BY_OP = {
    "_local_scalar_dense": "Reading a value on the host waits for the GPU. Keep it in a tensor "
    "inside the step, or read it after the replay and less often. To choose between values, use "
    "torch.where.",
    "nonzero": "The size of the result depends on the data. Use torch.where with three arguments, "
    "or mask by multiplication, so that shapes stay fixed.",
    "masked_select": "The size of the result depends on the data. Replace the selection by "
    "torch.where(mask, x, 0), and divide by mask.sum() if you need a mean.",
    "index": "Indexing with a boolean mask asks the GPU for the size of the result. Use "
    "torch.where, or indices of a fixed length.",
    "mm": _COALESCE,
    "addmm": _COALESCE,
    "_sparse_addmm": _COALESCE,
    "mv": _COALESCE,
    "bmm": _COALESCE,
    "_coalesce": _COALESCE,
    "_to_sparse": "How many entries are not zero depends on the data. Make the sparse tensor once "
    "outside the step, or compute with the dense one.",
    "_sparse_sparse_matmul": "How many entries the product has depends on the data. Compute it "
    "once outside the step, or multiply by a dense matrix.",
    "_unique2": "The size of the result depends on the data. Call unique() outside the step, or "
    "pad its result.",
    "repeat_interleave": "Pass output_size=, so that PyTorch does not ask the GPU for the length.",
    "_linalg_check_errors": "torch.linalg reads on the host whether it failed. Use the function "
    "that leaves this to you (cholesky_ex, inv_ex, solve_ex), and read its info after the replay.",
    "equal": "torch.equal returns a Python bool. Compare on the GPU with (a == b).all().",
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


# What an argument of a library can do about it.
_ARGUMENTS = {
    "sync": "leaves this out, or takes the value that is read",
    "host_copy": "takes this tensor, and create it on the GPU once before the loop",
    "dynamic_shape": "fixes the size: a length that you know, padded inputs, or a mask of a static "
    "shape",
    "rng": "leaves the generator out",
}


def _advice(blocker: Blocker) -> str:
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
    argument = _ARGUMENTS.get(blocker.category, "leaves this out")
    return (
        f"{lead} Look for an argument that {argument}. Otherwise try a newer version, or patch "
        f"the line. {advice}"
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


@rule("LS030", __doc__, fixable=True)
def RULE(profile: Profile) -> Findings:
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
        found = RULE.finding(
            "advice" if captured else "warning",
            sentence(f"{name}{count} {stops} a capture{code}").removesuffix("."),
            _advice(blocker),
            blocker.where,
            op=blocker.op,
            category=blocker.category,
            count=blocker.count,
        )
        yield replace(found, library=library.where if library else None)
