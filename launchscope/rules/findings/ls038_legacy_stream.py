"""# Kernels on the legacy default stream

## What it finds
Kernels that ran on the legacy default stream although the script ran on a stream of its own:
a third-party extension that launches without asking for PyTorch's current stream. Such a
script is then measured on the default stream as a whole, and its replay is left out.

## Why it matters
Such a kernel is missing from the graph, or ends its capture, and it is not ordered with the
other work either: torch's side streams do not synchronise with the legacy stream.

## Example
A CUDA extension that calls `kernel<<<grid, block>>>(...)` without a stream argument.

## When it does not apply
Scripts that were on the default stream from the beginning, in a trace from elsewhere.

## Reference
CUDA programming guide: default stream. at::cuda::getCurrentCUDAStream.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.profile_queries import on_legacy_stream
from launchscope.rules.rule import Rule
from launchscope.rules.wording import plural


def check(profile: Profile) -> list[Finding]:
    count = profile.facts.legacy_stream_kernels or 0
    if not on_legacy_stream(profile):
        return []
    # With all of the script on that stream, its kernels do not tell which ones insist on it.
    apart = profile.facts.side_stream is not False and count > 0
    names = list(profile.facts.legacy_kernels_names or ()) if apart else []
    named = f" ({names[0][:80]})" if names else ""
    what = plural(count, "kernel") if apart else "Part of the step"
    return [
        Finding(
            code="LS038",
            severity="warning",
            title=f"{what} {'ran' if apart else 'runs'} on the legacy default stream{named}",
            advice="Make the extension that does it launch on at::cuda::getCurrentCUDAStream(); "
            "until then its work would be missing from the graph.",
            evidence={
                "kernels": count,
                "names": names,
                "side_stream": profile.facts.side_stream,
            },
        )
    ]


RULE = Rule("LS038", "Kernels on the legacy default stream", check, __doc__)
