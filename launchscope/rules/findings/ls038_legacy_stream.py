"""# Kernels on the legacy default stream

## What it finds
Kernels that ran on the legacy default stream although launchscope ran the script on another
stream. launchscope then measures the whole script on the default stream, without a replay.

## Why it matters
A graph lacks such a kernel, or its capture ends. Its order beside side streams is undefined.

## Example
A CUDA extension calls `kernel<<<grid, block>>>(...)` without a stream argument.

## Before
    with torch.cuda.stream(torch.cuda.default_stream()):  # whatever the caller's stream is
        out = model(x)

## After
    out = model(x)  # on the current stream

## When it does not apply
In a trace from another tool, the script may have used the default stream from the beginning.

## Reference
- [CUDA, default stream](https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#default-stream)
- [PyTorch, Tensor CUDA Stream API](https://docs.pytorch.org/cppdocs/notes/tensor_cuda_stream.html)
  `getCurrentCUDAStream`
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.profile_queries import on_legacy_stream
from launchscope.rules.rule import Findings, rule
from launchscope.wording import plural


@rule("LS038", __doc__, fixable=True)
def RULE(profile: Profile) -> Findings:
    if not on_legacy_stream(profile):
        return
    facts = profile.facts
    count, names = facts.legacy_stream_kernels or 0, list(facts.legacy_kernels_names or ())
    what = f"{plural(count, 'kernel')} ran"
    # With the whole script on that stream, its kernels do not show which of them need it.
    if facts.side_stream is False or not count:
        what, names = "Part of the step runs", []
    named = f" ({names[0][:80]})" if names else ""
    yield RULE.finding(
        "warning",
        f"{what} on the legacy default stream{named}",
        "Make the extension launch on PyTorch's current stream "
        "(at::cuda::getCurrentCUDAStream()). A graph does not contain its work until then.",
        kernels=count,
        names=names,
        side_stream=facts.side_stream,
    )
