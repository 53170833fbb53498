"""# Kernels on the legacy default stream

## What it finds
Kernels that ran on the legacy default stream although the script ran on a stream of its own:
a third-party extension that launches without asking for PyTorch's current stream.

## Why it matters
Such a kernel is missing from the graph, or ends its capture, and it is not ordered with the
other work either: torch's side streams do not synchronise with the legacy stream.

## Example
A CUDA extension that calls `kernel<<<grid, block>>>(...)` without a stream argument.

## When it does not apply
Scripts measured on the default stream throughout.

## Reference
CUDA programming guide: default stream. at::cuda::getCurrentCUDAStream.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.reading import flag, number
from launchscope.rules.rule import Rule
from launchscope.rules.wording import plural


def check(profile: Profile) -> list[Finding]:
    count = number(profile, "legacy_stream_kernels") or 0.0
    if count <= 0 or profile.facts.get("side_stream") is False:
        return []
    names = [str(name) for name in profile.facts.get("legacy_kernels_names") or []]
    named = f" ({names[0][:80]})" if names else ""
    return [
        Finding(
            code="LS038",
            severity="warning",
            title=f"{plural(count, 'kernel')} ran on the legacy default stream{named}",
            advice="Make the extension launch on at::cuda::getCurrentCUDAStream(); until then "
            "its work would be missing from the graph.",
            evidence={
                "kernels": count,
                "names": names,
                "side_stream": flag(profile, "side_stream"),
            },
        )
    ]


RULE = Rule("LS038", "Kernels on the legacy default stream", check, __doc__)
