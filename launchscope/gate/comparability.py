"""Whether a Profile can be held against a baseline at all, and what may explain a difference."""

from __future__ import annotations

from pathlib import PurePath

from msgspec import Struct

from launchscope.model import Environment, Profile, Target
from launchscope.reason_text import step_summary
from launchscope.wording import plural


class Mismatch(Struct, frozen=True):
    """Why two Profiles cannot be compared. `renewable`: the baseline is of the same script on the
    same device, so that a new one may replace it."""

    text: str
    renewable: bool = False


def mismatch(profile: Profile, baseline: Profile) -> Mismatch | None:
    """Why these two cannot be compared; None if they can."""
    now, before = profile.environment, baseline.environment
    is_rehearsal = profile.mode == "rehearsal"
    if _differ(profile.target, baseline.target):
        names = (_identity(target) for target in (baseline.target, profile.target))
        return Mismatch("the baseline belongs to {}, and this is {}".format(*names))
    if is_rehearsal != (baseline.mode == "rehearsal"):
        if is_rehearsal:
            return Mismatch("the baseline was measured on a GPU, and this run used none")
        return Mismatch("the baseline was made without a GPU, and this run used one")
    if not is_rehearsal and now.device != before.device:
        return Mismatch(f"the baseline was measured on {before.device}, this run on {now.device}")
    if now.world_size != before.world_size:
        ranks = plural(before.world_size, "rank")
        return Mismatch(f"the baseline has {ranks}, this run {now.world_size}")
    if profile.counting != baseline.counting:
        rules = f"version {baseline.counting} of the counting rules"
        text = f"the baseline was counted by {rules}, this run by version {profile.counting}"
        return Mismatch(text, renewable=True)
    return None


def upgrade(profile: Profile, baseline: Profile) -> str | None:
    """`PyTorch changed from 2.11.0 to 2.12.0`, after which operators may launch other kernels for
    good reasons; None if nothing changed."""
    now, before = profile.environment, baseline.environment
    versions = [("PyTorch", _release(before), _release(now))]
    if profile.mode != "rehearsal":
        versions.append(("CUDA", before.cuda, now.cuda))
    changed = [
        f"{name} changed from {old or 'an unknown version'} to {new or 'an unknown one'}"
        for name, old, new in versions
        if old != new
    ]
    return " and ".join(changed) or None


def warnings(profile: Profile, baseline: Profile) -> tuple[str, ...]:
    """Differences that may explain others; the figures are compared anyway."""
    now, before = profile.environment, baseline.environment
    found = []
    if changed := upgrade(profile, baseline):
        found.append(f"{changed} since the baseline was made")
    if now.driver != before.driver:
        found.append(
            f"the baseline was made with driver {before.driver}, this run with {now.driver}"
        )
    if profile.target.args != baseline.target.args:
        args = " ".join(baseline.target.args)
        how = f"with other arguments: {args}" if args else "without arguments"
        found.append(f"the baseline was made {how}")
    step, other = profile.step, baseline.step
    if step is None or other is None:
        if step != other:
            which = "baseline" if other is None else "run"
            found.append(f"no step was found in the {which}")
    elif (step.period, step.launches) != (other.period, other.launches):
        found.append(f"the baseline has a different step: {step_summary(other)}")
    return tuple(found)


def _release(environment: Environment) -> str | None:
    """PyTorch's version without the name of its build, such as `+cu130`."""
    return environment.torch and environment.torch.partition("+")[0]


def _differ(now: Target, before: Target) -> bool:
    """Whether the two name different code. Every trace has its own name."""
    if now.kind != before.kind:
        return True
    if now.kind == "trace":
        return False
    if None not in (now.path, before.path):
        return (now.path, _module(now)) != (before.path, _module(before))
    # Outside of a repository: from whatever folder.
    names = [PurePath(target.name).parts for target in (now, before)]
    shared = min(map(len, names))
    return names[0][-shared:] != names[1][-shared:]


def _identity(target: Target) -> str:
    if target.kind != "module":
        return target.path or target.name
    return f"-m {target.name}" + (f" in {target.path}" if target.path not in (None, ".") else "")


def _module(target: Target) -> str | None:
    return target.name if target.kind == "module" else None
