"""# A rehearsal: structure only, no times

## What it finds
A run in which no work ran on a GPU.

## Why it matters
Without a GPU it is known how many device operations the step has, whether its shapes and its
control flow are stable, and which lines stop a capture. Whether a graph pays depends on times.

## Example
You inspect a script on a laptop or in CI before you run it on the cluster.

## Before
    out = model.to("cpu")(x)

## After
    device = "cuda" if torch.cuda.is_available() else "cpu"
    out = model.to(device)(x.to(device))

## When it does not apply
When the script uses a CUDA device.

## Reference
- [NVIDIA, CUDA Graph Best Practice for PyTorch](https://docs.nvidia.com/dl-cuda-graph/latest):
  as a rule of thumb, a step with more than 50 small kernels is a candidate.
- Metric `device_ops_per_step`.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.rule import Findings, rule
from launchscope.wording import plural


@rule("LS041", __doc__)
def RULE(profile: Profile) -> Findings:
    if profile.mode == "rehearsal":
        ops = profile.value("device_ops_per_step")
        count = "" if ops is None else f" ({plural(ops, 'device operation')})"
        yield RULE.finding(
            "info",
            f"Nothing ran on a GPU: only the structure of the step is known{count}",
            "Run the script on a GPU to measure whether a graph pays.",
            device_ops_per_step=ops,
        )
