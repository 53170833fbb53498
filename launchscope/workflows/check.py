"""Holds a step against its baseline and limits: measure, decide, measure again before failing."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from launchscope.config import Positive, Settings, convert, load_settings
from launchscope.errors import InputError, MeasureError, MissingOptionError, UsageError
from launchscope.gate import (
    Baseline,
    BaselinePlace,
    baseline_place,
    check_profile,
    confirmed,
    limits_from_flags,
    limits_in_force,
    merged,
    needs_replay,
    not_comparable,
    sound,
)
from launchscope.gate.limits import Limits
from launchscope.gate.settings import CheckSettings, MissingPolicy, check_settings
from launchscope.model import Check, Profile, Target
from launchscope.parser import read_profile
from launchscope.workflows.load_input import RECORDING, ReadOptions, is_recording, profile_of
from launchscope.workflows.progress import Progress
from launchscope.workflows.recording import ScriptRunner
from launchscope.workflows.target import exists, script_target, without_python

_DEFAULT_REPEATS = 3


@dataclass(frozen=True)
class CheckPlan:
    """What a check measures and what it compares with.

    `words` name the target as on the command line. `saved`: a Profile that was measured before,
    so that nothing runs. `flags` and `config` are limits of the command line and of the
    settings file.
    """

    words: tuple[str, ...]
    target: Target
    settings: Settings
    workload: str
    place: BaselinePlace | None
    flags: Limits
    config: Limits
    saved: Profile | None
    repeats: int
    missing: MissingPolicy
    strict: bool
    confirm: bool
    update: bool

    def require_spared(self, path: Path) -> None:
        """UsageError if a report at this path would replace what is compared."""
        if self.saved is not None and os.path.realpath(path) == os.path.realpath(self.words[0]):
            raise UsageError(
                f"-o {path} would overwrite the Profile that is checked", hint="name another file"
            )
        if self.place is not None and self.place.holds(path):
            raise UsageError(
                f"-o {path} would overwrite a baseline",
                hint="--update-baseline writes one; -o is for the report, such as check.json",
            )


def plan_check(
    words: Sequence[str],
    flags: Mapping[str, object],
    *,
    module: bool = False,
    config: Path | None = None,
    baseline: str | None = None,
    limits: Sequence[str] = (),
    repeats: int | str | None = None,
    confirm: bool | None = None,
    strict: bool | None = None,
    update_baseline: bool = False,
    missing_baseline: str | None = None,
    workload: str | None = None,
) -> CheckPlan:
    """What to check. `words` are a script and its arguments, or a saved Profile; without any, the
    settings file has the command. What is None comes from the settings file.

    Raises UsageError for what cannot work, before anything runs.
    """
    own = check_settings(config)
    limits_of_flags = limits_from_flags(limits)
    if not words:
        workload, words, configured_module = _configured(own, workload)
        module = module or configured_module
    saved = None if module else _saved(words)
    target = saved.target if saved else script_target(words, module=module, command="check")
    workload = workload or workload_of(target)
    limits_of_file = own.limits_for(workload)
    flags = {**flags, "verify": flags.get("verify") or 0}
    if flags.get("replay") is None and not needs_replay([*limits_of_flags, *limits_of_file]):
        flags["replay"] = 0
    plan = CheckPlan(
        (*(["-m"] if module else []), *words),
        target,
        load_settings(flags, config=config),
        workload,
        _place(baseline if baseline is not None else own.baseline),
        limits_of_flags,
        limits_of_file,
        saved,
        own.repeats or _DEFAULT_REPEATS
        if repeats is None
        else convert(repeats, Positive, "--repeats", UsageError),
        own.missing_baseline or "fail"
        if missing_baseline is None
        else convert(missing_baseline, MissingPolicy, "--missing-baseline", UsageError),
        strict=own.strict if strict is None else strict,
        confirm=own.confirm if confirm is None else confirm,
        update=update_baseline,
    )
    _require_something_to_compare(plan)
    return plan


def check(plan: CheckPlan, progress: Progress) -> Check:
    """Measure and decide. `written` is set where the measurement became the baseline.

    Raises MeasureError if the script fails or has no step, InputError for a baseline that cannot
    be read.
    """
    measuring = nullcontext() if plan.saved else ScriptRunner(plan.settings, progress)
    with measuring as runner:
        result = _check(plan, _Measurements(plan, runner), progress)
    return replace(result, excused=_excused(plan, result))


class _Measurements:
    """Profiles of fresh processes that measure the same target, `plan.repeats` of them at most."""

    def __init__(self, plan: CheckPlan, runner: ScriptRunner | None):
        self._plan = plan
        self._runner = runner
        self.profiles = [plan.saved] if plan.saved else []
        self.more()

    @property
    def profile(self) -> Profile:
        return merged(self.profiles)

    def more(self) -> bool:
        """Measure one more; False if there are enough."""
        if self._runner is None or len(self.profiles) >= self._plan.repeats:
            return False
        run = self._runner.run(self._plan.target)
        if run.problem is not None:
            text = "interrupted" if run.interrupted else str(run.problem)
            code = run.problem.exit_code if run.interrupted else None
            raise MeasureError(text, hint=run.problem.hint, exit_code=code)
        assert run.profile is not None
        self.profiles.append(run.profile)
        return True

    def all(self) -> None:
        """Measure all of them."""
        while self.more():
            pass

    def restart(self) -> bool:
        """Drop what was measured and measure again; False for a saved Profile."""
        if self._runner is not None:
            self.profiles = []
        return self.more()


def _check(plan: CheckPlan, measured: _Measurements, progress: Progress) -> Check:
    if plan.update:
        measured.all()
    baseline, missing = _baseline(plan, measured.profile)
    limits = limits_in_force(plan.flags, plan.config, measured.profile.mode)

    def decide() -> Check:
        return check_profile(
            measured.profile,
            baseline,
            limits,
            workload=plan.workload,
            strict=plan.strict,
            missing=missing,
        )

    result = decide()
    while not plan.update and result.outcome == "failed" and measured.more():
        result = decide()
    if plan.confirm and not plan.update and result.outcome == "failed" and measured.restart():
        progress.message("measuring again, to confirm")
        measured.all()
        result = confirmed(result, decide(), strict=plan.strict)
    writes = plan.update or (baseline is None and plan.missing == "write")
    if plan.place is None or not writes:
        return result
    measured.all()
    apart = baseline and not_comparable(measured.profile, baseline.profile)
    if baseline is not None and apart:
        # A folder has one file per device; a single file never changes its device.
        raise InputError(
            f"{baseline.place} stays as it is: {apart}",
            hint="name a folder with --baseline: it holds one file per device",
        )
    written = plan.place.write(plan.workload, measured.profile)
    return replace(result, written=str(written), processes=len(measured.profiles))


def _baseline(plan: CheckPlan, profile: Profile) -> tuple[Baseline | None, str | None]:
    """The baseline, or why there is none; both None where none is compared with."""
    if plan.place is None:
        return None, None
    found = plan.place.find(plan.workload, profile)
    if found is not None:
        return found, None
    others = plan.place.others(plan.workload)
    known = f" (there are {', '.join(others)})" if others else ""
    return None, f"there is no baseline of {plan.workload} in {plan.place}{known}"


def _excused(plan: CheckPlan, result: Check) -> bool:
    """Whether an outcome that would fail passes, because a baseline is written or may be missing.

    A limit of the command line that could not be compared is never excused.
    """
    if plan.update:
        return result.outcome in ("failed", "not_compared")
    missing = plan.place is not None and result.baseline is None and plan.missing != "fail"
    unmeasured = [limit for limit in result.limits if limit.value is None]
    compared = len(unmeasured) < len(result.limits)
    return (
        result.outcome == "not_compared"
        and missing
        and compared
        and all(limit.source != "flag" for limit in unmeasured)
    )


# ------------------------------------------------------------------------- before the run


def workload_of(target: Target) -> str:
    """The name of a workload that has no other."""
    return Path(target.name).stem if target.kind == "script" else target.name


def _configured(own: CheckSettings, workload: str | None) -> tuple[str | None, Sequence[str], bool]:
    """Workload, command and whether it is a module, from the settings file; no words if it has
    no command."""
    runnable = {name: entry.command for name, entry in own.workloads.items() if entry.command}
    if workload is None and len(runnable) == 1:
        workload = next(iter(runnable))
    if workload in runnable:
        return workload, *without_python(runnable[workload])
    if runnable:
        raise UsageError(
            "no script was given"
            if workload is None
            else f"no workload {workload!r} has a command",
            hint=f"--workload takes one of the settings file: {', '.join(runnable)}",
        )
    return workload, (), False


def _saved(words: Sequence[str]) -> Profile | None:
    """The saved Profile or recording that the words name; None if they name a script."""
    path = Path(words[0]) if words else Path()
    recording = os.path.isfile(path / RECORDING)
    if not recording and path.suffix != ".json":
        return None
    if not exists(path):
        raise UsageError(f"{path}: no such file")
    if len(words) > 1:
        raise UsageError(
            f"{path} is a saved Profile, and nothing can follow it",
            hint=f"launchscope check {shlex.join([*words[1:], words[0]])}"
            if words[1].startswith("-")
            else "check takes one Profile at a time",
        )
    if is_recording(path):
        return profile_of(path, ReadOptions(Settings.threshold, None))
    return sound(read_profile(path), str(path))


def _place(text: str | None) -> BaselinePlace | None:
    if text is not None and not text.strip():
        # An unset variable of a CI workflow; "" would be the working directory.
        raise UsageError("--baseline is empty", hint="it names a file, a folder or git:REF:PATH")
    return None if text is None else baseline_place(text)


def _require_something_to_compare(plan: CheckPlan) -> None:
    limits = {**plan.config, **plan.flags}
    relative = [limit.metric for limit in limits.values() if limit is not None and limit.relative]
    if plan.place is None and (plan.update or relative or not limits):
        if plan.update:
            problem = "--update-baseline needs --baseline, which is not given"
        elif relative:
            problem = f"the limit on {relative[0]} is relative, and there is no baseline"
        else:
            problem = "there is nothing to compare with: no baseline and no limit"
        raise MissingOptionError(
            problem,
            hint="--baseline baselines/ names a folder; --limit launches_per_step=900 sets a limit",
        )
    if plan.place is not None:
        plan.place.require_readable()
        if plan.update:
            plan.place.require_writable()
