"""What may explain a difference between a Profile and its baseline."""

from __future__ import annotations

from launchscope.model import Environment, Profile
from launchscope.reason_text import step_summary


def mismatch(profile: Profile, baseline: Profile) -> str | None:
    """Why these two cannot be compared; None if they can. The name of the file says that both are
    of one script on one device."""
    if profile.counting == baseline.counting:
        return None
    rules = f"version {baseline.counting} of the counting rules"
    return f"the baseline was counted by {rules}, this run by version {profile.counting}"


def upgrade(profile: Profile, baseline: Profile) -> str | None:
    """`PyTorch changed from 2.11.0 to 2.12.0`, after which operators may launch other kernels for
    good reasons; None if nothing changed."""
    now, before = profile.environment, baseline.environment
    versions = [_changed("PyTorch", _release(before), _release(now))]
    if profile.mode != "rehearsal":
        versions.append(_changed("CUDA", before.cuda, now.cuda))
    return " and ".join(filter(None, versions)) or None


def warnings(profile: Profile, baseline: Profile) -> tuple[str, ...]:
    """Differences that may explain others; the figures are compared anyway."""
    now, before = profile.environment, baseline.environment
    args = [" ".join(p.target.args) for p in (baseline, profile)]
    found = [
        upgrade(profile, baseline),
        _changed("the driver", before.driver, now.driver),
        _changed("the arguments", *args),
    ]
    steps = [baseline.step, profile.step]
    if len({step and (step.period, step.launches) for step in steps}) > 1:
        found.append(
            _changed("the step", *(step_summary(step) if step else None for step in steps))
        )
    return tuple(f"{text} since the baseline was made" for text in found if text)


def _changed(what: str, before: str | None, now: str | None) -> str | None:
    return f"{what} changed from {before or 'none'} to {now or 'none'}" if before != now else None


def _release(environment: Environment) -> str | None:
    """PyTorch's version without the name of its build, such as `+cu130`."""
    return environment.torch and environment.torch.partition("+")[0]
