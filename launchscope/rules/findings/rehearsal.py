"""# A rehearsal: structure only, no times

## What it finds
A run in which no work ran on a GPU.

## Why it matters
Without a GPU it is known how many device operations the step has, whether its shapes and its
control flow are stable, and which lines stop a capture. Whether a graph pays depends on times.

## Example
You inspect a script on a laptop or in CI before you run it on the cluster. On a machine with a GPU
the finding says why the script did not use it: a `--device` option, CUDA_VISIBLE_DEVICES, or a
PyTorch without CUDA.

## When it does not apply
When the script uses a CUDA device.

## Reference
- [NVIDIA, CUDA Graph Best Practice for PyTorch](https://docs.nvidia.com/dl-cuda-graph/latest):
  as a rule of thumb, a step with more than 50 small kernels is a candidate.
- Metric `device_ops_per_step`.
"""

from __future__ import annotations

from launchscope.model import GpuObstacle, Profile, UnusedGpu
from launchscope.rules.rule import Findings, rule
from launchscope.wording import plural, sentence

# Each is a clause, whose "it" is the script.
NOT_USED: dict[GpuObstacle, str] = {
    "script": "the script never used the GPU",
    "hidden": "CUDA_VISIBLE_DEVICES hides the GPU from the script",
    "build": "the PyTorch of the script is built without CUDA",
}
_REMEDIES: dict[GpuObstacle, str] = {
    "script": "Move the model and its inputs to the GPU, or choose it on the command line",
    "hidden": "Set CUDA_VISIBLE_DEVICES to the number of a GPU, or unset it",
    "build": "Install a PyTorch with CUDA",
}


def use_the_gpu(unused: UnusedGpu) -> str:
    """How to bring the script to the GPU of its machine, as a sentence."""
    return f"{_REMEDIES[unused.obstacle]}, and profile again."


@rule("LS041", __doc__)
def RULE(profile: Profile) -> Findings:
    if profile.mode != "rehearsal":
        return
    ops, unused = profile.value("device_ops_per_step"), profile.facts.unused_gpu
    count = "" if ops is None else f" ({plural(ops, 'device operation')})"
    what = "Nothing ran on a GPU"
    advice = "Run the script on a GPU to measure whether a graph pays."
    if unused is not None:
        what = sentence(NOT_USED[unused.obstacle]).removesuffix(".")
        advice = use_the_gpu(unused)
    yield RULE.finding(
        "info",
        f"{what}: only the structure of the step is known{count}",
        advice,
    )
