"""Holds a step against its baseline and limits: measure, decide, measure again before failing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from launchscope.config import Settings, load_settings
from launchscope.errors import MeasureError, UsageError
from launchscope.gate.baseline import Baseline, BaselineFolder, baseline_folder
from launchscope.gate.decide import check_profiles
from launchscope.gate.limits import Limits, limits_from_flags, limits_in_force
from launchscope.gate.metrics import NEEDS_REPLAY
from launchscope.gate.settings import CHECK_FLAGS, CheckSettings, check_settings
from launchscope.model import CheckResult, Environment, Profile, Schedule, Target
from launchscope.parser import read_profile
from launchscope.recorded import recorded, shown_command
from launchscope.runner.protocol.folder import SourceTree
from launchscope.workflows.against import Base, base_version, find_base, installed_warning
from launchscope.workflows.load_input import RECORDING, ReadOptions, is_recording, profile_of
from launchscope.workflows.profile import ScriptRun, ScriptRunner
from launchscope.workflows.progress import Progress
from launchscope.workflows.ranks import RankRunner
from launchscope.workflows.target import exists, script_target

# What a script does now and then, or by chance, is in fewer of more inspected iterations.
_DEFAULTS = {"inspect": 10}


class CheckPlan(Struct, frozen=True):
    """What a check measures and compares with. `words` name the target as on the command line, and
    `flag_limits` come from there. `saved`: a Profile measured before, so that nothing runs."""

    words: tuple[str, ...]
    target: Target
    settings: Settings
    own: CheckSettings
    workload: str
    place: BaselineFolder | None
    flag_limits: Limits
    saved: Profile | None
    update: bool
    base: Base | None = None

    @property
    def compares(self) -> bool:
        return self.place is not None or self.base is not None

    @property
    def inputs(self) -> tuple[Path, ...]:
        """What no report may replace."""
        saved = (Path(self.words[0]),) if self.saved is not None else ()
        return (*saved, *([Path(self.place.path)] if self.place is not None else []))


class CheckRun(Struct, frozen=True):
    """The CheckResult, and what kept the step from being measured (None: nothing did)."""

    result: CheckResult
    problem: MeasureError | None = None


def plan_check(
    words: Sequence[str],
    flags: Mapping[str, object],
    *,
    module: bool = False,
    config: str | Path | None = None,
    limits: Sequence[str] = (),
    update_baseline: bool = False,
) -> CheckPlan:
    """What to check. `words` are a script and its arguments, or a saved Profile; the settings file
    has what is None in `flags` (Settings and CheckSettings). Raises UsageError for what cannot
    work, before anything runs."""
    own = check_settings(config, {name: flags[name] for name in flags if name in CHECK_FLAGS})
    limits_of_flags = limits_from_flags(limits)
    saved = None if module else _saved(words)
    target = saved.target if saved else script_target(words, module=module, command="check")
    own = _one_comparison(own, flags)
    flags = {name: flags[name] for name in flags if name not in CHECK_FLAGS}
    flags["verify"] = flags.get("verify") or 0
    if flags.get("replay") is None:
        limited = {*limits_of_flags, *own.limits}
        flags["replay"] = None if limited & NEEDS_REPLAY else 0
    plan = CheckPlan(
        (*(["-m"] if module else []), *words),
        target,
        load_settings(flags, config=config, defaults=_DEFAULTS),
        own,
        workload_of(target if saved else recorded(target)),
        None if own.baseline is None else baseline_folder(own.baseline),
        limits_of_flags,
        saved,
        update_baseline,
    )
    _require_possible(plan)
    return plan if own.against is None else replace(plan, base=find_base(own.against, target))


def check(plan: CheckPlan, progress: Progress, ranks: RankRunner | None = None) -> CheckRun:
    """Measures and decides; of `ranks`, the worst counts. Raises InputError for a baseline that
    cannot be read."""
    alone = None if plan.saved else ScriptRunner(plan.settings, progress)
    own: ScriptRunner | None = ranks or alone
    with nullcontext() if own is None else own as runner:
        try:
            return CheckRun(_check(plan, runner))
        except MeasureError as error:
            return CheckRun(_unmeasured(plan, error), error)


def _unmeasured(plan: CheckPlan, problem: MeasureError) -> CheckResult:
    return CheckResult(
        workload=plan.workload,
        target=recorded(plan.target),
        environment=Environment(),
        mode="rehearsal",
        outcome="not_compared",
        headline=f"Nothing was measured: {problem}.",
        processes=0,
    )


def _check(plan: CheckPlan, runner: ScriptRunner | None) -> CheckResult:
    runs: list[ScriptRun] = []
    tree = None if plan.base is None else SourceTree(os.fspath(plan.base.top))

    def measure() -> Profile:
        if runner is None:
            assert plan.saved is not None
            return plan.saved
        runs.append(runner.run(plan.target, tree=tree))
        return runs[-1].whole()

    profiles = [measure()]
    baseline, missing = _baseline(plan, profiles[0])
    if plan.base is not None and runner is not None:
        runs.append(base_version(plan.base, plan.target, runner))
        baseline = Baseline(runs[-1].whole(), plan.base.named, is_stored=False)
    limits = limits_in_force(
        plan.flag_limits, plan.own.limits, profiles[0].mode, with_baseline=plan.compares
    )
    repeats = 1 if runner is None else plan.own.repeats
    while True:
        result = check_profiles(
            profiles,
            baseline,
            limits,
            workload=plan.workload,
            strict=plan.own.strict,
            missing=missing,
        )
        if result.outcome != "failed" or len(profiles) >= repeats:
            break
        profiles.append(measure())
    if tree is not None:
        result = replace(result, warnings=(*installed_warning(runs), *result.warnings))
    if plan.place is not None and plan.update:
        result = replace(result, written=plan.place.write(plan.workload, profiles[-1]))
    return result


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


# ------------------------------------------------------------------------- before the run


def workload_of(target: Target) -> str:
    """What a recorded target is called: by where its script lies in the repository."""
    if target.kind != "script":
        inside = target.path not in (None, ".")
        return f"{target.path}/{target.name}" if inside else target.name
    if target.path is None:
        return Path(target.name).stem
    return Path(target.path).with_suffix("").as_posix()


def _saved(words: Sequence[str]) -> Profile | None:
    """The saved Profile or recording that the words name; None if they name a script."""
    path = Path(words[0]) if words else Path()
    if path.suffix != ".json" and not os.path.isfile(path / RECORDING):
        return None
    if not exists(path):
        raise UsageError(f"{path}: no such file")
    if len(words) > 1:
        raise UsageError(
            f"{path} is a saved Profile, and nothing can follow it",
            hint=f"launchscope check {shown_command([*words[1:], words[0]])}",
        )
    if is_recording(path):
        return profile_of(path, ReadOptions(Schedule.threshold, None))
    return read_profile(path)


def _one_comparison(own: CheckSettings, flags: Mapping[str, object]) -> CheckSettings:
    """The settings with --against or --baseline, not both: what was typed counts more than the
    settings file."""
    typed = {name for name in ("against", "baseline") if flags.get(name) is not None}
    if typed == {"baseline"}:
        return replace(own, against=None)
    return replace(own, baseline=None) if typed == {"against"} else own


def _require_possible(plan: CheckPlan) -> None:
    """UsageError for options that exclude each other, and for nothing to compare with."""
    own, limits = plan.own, {**plan.own.limits, **plan.flag_limits}
    relative = [limit.metric for limit in limits.values() if limit is not None and limit.relative]
    if own.against is not None:
        others = {
            "--baseline": own.baseline is not None,
            "--update-baseline": plan.update,
            "a saved Profile": plan.saved is not None,
        }
        for other in filter(others.get, others):
            problem = f"--against and {other} exclude each other"
            raise UsageError(problem, hint="leave out one of the two")
        return
    if plan.place is not None:
        if plan.update:
            plan.place.require_writable()
        return
    if plan.update:
        problem = "--update-baseline needs --baseline, which is not given"
    elif relative:
        problem = f"the limit on {relative[0]} is relative, and there is no baseline"
    elif limits:
        return
    else:
        problem = "there is nothing to compare with: no baseline and no limit"
    raise UsageError(
        problem,
        hint="--baseline baselines/ names a folder; --limit launches_per_step=900 sets a limit",
    )
