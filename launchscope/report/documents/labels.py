"""How every report names verdicts, machines, parameters and kernels."""

from __future__ import annotations

from launchscope.model import Environment, IdleCause, PeriodicWork, Profile, Recommendation, Target
from launchscope.recorded import shown_command
from launchscope.report.document import Cell, Tone
from launchscope.wording import listed, place, plural

# None: the rules were not applied.
VERDICTS: dict[Recommendation | None, tuple[str, Tone]] = {
    "adopt": ("adopt", "good"),
    "adopt_after_fixes": ("adopt after fixes", "caution"),
    "adopt_bucketed": ("adopt, one graph per shape", "caution"),
    "already_graphed": ("already graphed", "calm"),
    "stay_eager": ("stay eager", "calm"),
    "unsafe": ("unsafe", "bad"),
    "inconclusive": ("inconclusive", "caution"),
    None: ("no verdict", "caution"),
}
CAUSES: dict[IdleCause, str] = {
    "framework": "CPU not ready: Python and framework",
    "launch_call": "CPU not ready: launch calls",
    "sync": "synchronization",
    "data": "data loading",
    "setup": "allocation and set-up",
    "dispatch": "gaps between queued kernels",
    "paused": "pause of the host",
    "unattributed": "not attributed",
}
_MOST_LINES = 3
NO_TIMES = "structure only, no times"


def answer(profile: Profile) -> tuple[str, Tone]:
    """The verdict in a word or two, and how it looks."""
    found = None if profile.verdict is None else profile.verdict.recommendation
    if found == "inconclusive" and profile.mode == "rehearsal":
        return "no GPU: structure only", "caution"
    return VERDICTS[found]


def command(target: Target) -> str:
    """`train.py --epochs 1`."""
    return shown_command((target.name, *target.args))


def machine(environment: Environment) -> str:
    """`NVIDIA H200 · PyTorch 2.11.0 · CUDA 13.0 · driver 580.95`."""
    # Only a run knows its PyTorch: without it, a trace that somebody recorded on a GPU is meant.
    unnamed = "no GPU used" if environment.torch else "a GPU the trace does not name"
    parts = [environment.device or unnamed]
    versions = {
        "PyTorch": environment.torch,
        "CUDA": environment.cuda,
        "driver": environment.driver,
    }
    parts += [f"{name} {version}" for name, version in versions.items() if version]
    if environment.world_size > 1:
        parts.append(f"{environment.world_size} ranks")
    return " · ".join(parts)


_PERIODIC = {
    "between_launches": "launch",
    "between_syncs": "synchronization",
    "between_copies": "copy",
    "between_ops": "device operation",
}


def periodic_work(work: PeriodicWork) -> str:
    """`every 10 iterations: 2 device operations and 1 synchronization at train.py:60`."""
    counts = [
        plural(work.counts[key], noun) for key, noun in _PERIODIC.items() if key in work.counts
    ]
    when = f"in {work.seen} of {plural(work.observed, 'iteration')}, with no known period"
    if work.period is not None:
        when = f"every {work.period} iterations"
    lines = ", ".join(map(place, work.where[:_MOST_LINES]))
    more = len(work.where) - _MOST_LINES
    at = f" at {lines}{f' and {more} more' if more > 0 else ''}" if lines else ""
    return f"{when}: {listed(counts)}{at}"


def kernel(name: str) -> Cell:
    """A kernel by its short name, with the full one for formats that have room for it."""
    # Its patterns take long to compile, and the short report names no kernel.
    from launchscope.report.kernel_names import short_name

    return Cell(short_name(name), full=name)
