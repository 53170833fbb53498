"""How every report names verdicts, machines, parameters and kernels."""

from __future__ import annotations

from collections.abc import Mapping

from launchscope.model import Environment, Recommendation, Severity, Target
from launchscope.report.document import Tone

VERDICTS: dict[Recommendation, tuple[str, Tone]] = {
    "adopt": ("adopt", "good"),
    "adopt_after_fixes": ("adopt after fixes", "caution"),
    "adopt_bucketed": ("adopt, one graph per shape", "caution"),
    "already_graphed": ("already graphed", "calm"),
    "stay_eager": ("stay eager", "calm"),
    "unsafe": ("unsafe", "bad"),
    "inconclusive": ("inconclusive", "caution"),
}
NO_VERDICT: tuple[str, Tone] = ("no verdict", "caution")
SEVERITIES: dict[Severity, Tone] = {
    "error": "bad",
    "warning": "caution",
    "advice": "good",
    "info": "dim",
}
NO_TIMES = "structure only, no times"


def command(target: Target) -> str:
    """`train.py --epochs 1`."""
    return " ".join((target.name, *target.args))


def machine(environment: Environment) -> str:
    """`NVIDIA H200 · PyTorch 2.11.0 · CUDA 13.0 · driver 580.95`."""
    # Only a run knows its PyTorch: without it, a trace that somebody recorded on a GPU is meant.
    unnamed = "no GPU used" if environment.torch else "a GPU the trace does not name"
    parts = [environment.device or unnamed]
    versions = (
        ("PyTorch", environment.torch),
        ("CUDA", environment.cuda),
        ("driver", environment.driver),
    )
    parts += [f"{name} {version}" for name, version in versions if version]
    if environment.world_size > 1:
        parts.append(f"{environment.world_size} ranks")
    return " · ".join(parts)


def parameters(given: Mapping[str, str]) -> str:
    """`batch size 8, width 64`."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in given.items())


def titled(title: str, given: Mapping[str, str]) -> str:
    """`Strategies, width 64`, for a part that is about some parameters only."""
    return f"{title}, {parameters(given)}" if given else title


def kernel(name: str) -> str:
    """A kernel's name without the prefixes that PyTorch's kernels share."""
    for noise in ("void ", "at::native::", "(anonymous namespace)::", "at::cuda::detail::"):
        name = name.replace(noise, "")
    return name
