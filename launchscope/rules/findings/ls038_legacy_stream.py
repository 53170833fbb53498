"""# Kernels on the legacy default stream

## What it finds
Kernels that ran on the legacy default stream although launchscope ran the script on another
stream. An extension that launches kernels without PyTorch's current stream does this.
launchscope then measures the whole script on the default stream and leaves out the replay.

## Why it matters
Such a kernel is missing from the graph or ends the capture. Its order relative to the other
work is undefined too, because PyTorch's side streams do not synchronize with the legacy
stream.

## Example
A CUDA extension calls `kernel<<<grid, block>>>(...)` without a stream argument.

## When it does not apply
In a trace from another tool, the script may have used the default stream from the beginning.

## Reference
CUDA programming guide: default stream. at::cuda::getCurrentCUDAStream.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.profile_queries import on_legacy_stream
from launchscope.rules.rule import Findings, Rule
from launchscope.wording import plural


def check(profile: Profile) -> Findings:
    facts = profile.facts
    count = facts.legacy_stream_kernels or 0
    if not on_legacy_stream(profile):
        return
    names = list(facts.legacy_kernels_names or ())
    what, verb = "Part of the step", "runs"
    # With the whole script on that stream, its kernels do not show which of them need it.
    if facts.side_stream is not False and count > 0:
        what, verb = plural(count, "kernel"), "ran"
    else:
        names = []
    named = f" ({names[0][:80]})" if names else ""
    yield RULE.finding(
        "warning",
        f"{what} {verb} on the legacy default stream{named}",
        "Make the extension launch on PyTorch's current stream "
        "(at::cuda::getCurrentCUDAStream()). A graph does not contain its work until then.",
        kernels=count,
        names=names,
        side_stream=facts.side_stream,
    )


RULE = Rule("LS038", check, __doc__, fixable=True)
