"""launchscope check [options] TARGET: the gate. Measure, compare with a baseline, decide."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from launchscope.cli.console import Console
from launchscope.cli.output import Outputs, append
from launchscope.cli.profile import (
    first_of_ours,
    misplaced,
    python_exists,
    require_file,
    target_of,
    unwrapped,
)
from launchscope.cli.shared import Typed, runs_a_script
from launchscope.errors import UsageError
from launchscope.workflows.check import Gate, checked
from launchscope.workflows.load_input import is_recording, profile_of_recording

if TYPE_CHECKING:
    from launchscope.config import Settings
    from launchscope.gate import BaselinePlace
    from launchscope.gate.settings import CheckSettings
    from launchscope.model import Check, Profile, Target
    from launchscope.workflows.repeats import Repeats

EXIT_CODES = {"passed": 0, "inconclusive": 0, "failed": 1, "not_compared": 3}
DEFAULT_REPEATS = 3
SUMMARY = "GITHUB_STEP_SUMMARY"
_FOR_PEOPLE = ("terminal", "markdown")  # annotations may follow these on stdout
_OURS = {"--baseline", "--limit", "--repeats", "--confirm", "--strict", "--update-baseline",
         "--missing-baseline", "--workload"}  # fmt: skip


@runs_a_script(without=("threshold", "expected_steps"))
def check(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TARGET [ARGS]",
            help="The script as after `python`, with -m the module; or a saved Profile.",
            show_default=False,
        ),
    ] = None,
    module: Annotated[bool, typer.Option("-m", help="Run a module, as `python -m` does.")] = False,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="What to compare with: a file, a folder of one per workload and device, or "
            "either of a git revision.",
            metavar="PATH|DIR|git:REF:PATH",
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            help="A limit: 900 (at most), +0, +5%, +2pp, +300us (worse than the baseline), off. "
            "Repeatable.",
            metavar="METRIC=VALUE",
        ),
    ] = None,
    repeats: Annotated[
        str | None,
        typer.Option(
            help="Fresh processes before a limit fails, and for a baseline. [default: 3]",
            metavar="N",
        ),
    ] = None,
    confirm: Annotated[
        bool | None, typer.Option("--confirm", help="Measure all again before failing.")
    ] = None,
    strict: Annotated[
        bool | None, typer.Option("--strict", help="What is inconclusive fails.")
    ] = None,
    update_baseline: Annotated[
        bool, typer.Option("--update-baseline", help="Write what is measured as the baseline.")
    ] = False,
    missing_baseline: Annotated[
        str | None,
        typer.Option(
            help="Without a baseline: fail, pass or write it. [default: fail]", metavar="WHAT"
        ),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(help="Name of the workload. [default: the script's]", metavar="NAME"),
    ] = None,
    *,
    typed: Typed,
) -> int:
    """Fail when launch overhead got worse than a baseline or a limit allows.

    Exact counts are compared exactly; a timing fails only where the best of fresh processes is
    worse than the worst of the baseline's. Without a GPU the device operations, shapes and
    blockers of a rehearsal are compared. The replay is left out unless a limit needs it. What the
    script prints goes to stderr.
    """
    from launchscope.gate import limits_from_flags, needs_replay
    from launchscope.gate.settings import check_settings, missing_policy
    from launchscope.model import Check

    screen = typed.console()
    outputs = typed.outputs(Check)
    ours = check_settings(typed.config)
    limits = limits_from_flags(limit or [])
    if not command:
        workload, command, module = _configured(workload, ours, module=module)
    known = Path(command[0]) if command and not module else None
    saved = _saved(known, command[1:]) if known is not None and _is_saved(known) else None
    target = saved.target if saved else target_of(command, module=module, typed="check")
    workload = workload or _workload_of(target)
    from_file = ours.limits_for(workload)
    passes = {"verify": typed.flags["verify"] or "0"}
    if typed.flags["replay"] is None and not needs_replay([*limits, *from_file]):
        passes["replay"] = "0"
    settings = typed.run_settings("check", **passes)
    if missing_baseline is not None:
        missing_policy(missing_baseline, "--missing-baseline")
    gate = Gate(
        workload=workload,
        place=_place(baseline if baseline is not None else ours.baseline),
        flags=limits,
        config=from_file,
        missing=missing_baseline or ours.missing_baseline or "fail",
        strict=ours.strict if strict is None else strict,
        confirm=ours.confirm if confirm is None else confirm,
        update=update_baseline,
    )
    _complete(gate, target)
    _spares(outputs, gate.place, known if saved is not None else None)
    source = _source(target, saved, settings, _repeats(repeats, ours), screen)
    result = checked(gate, source, screen)
    result = replace(result, excused=_excused(gate, result))
    code = _deliver(result, outputs, screen, _next(gate, result, command, module=module))
    return code or (0 if result.excused else EXIT_CODES[result.outcome])


def _excused(gate: Gate, result: Check) -> bool:
    """Whether an outcome that would fail is let pass: the reports have to say the same."""
    if gate.update:
        return EXIT_CODES[result.outcome] != 0
    # A baseline that is missing, or came into being for that, does not excuse a limit.
    missing = gate.place is not None and result.baseline is None and gate.missing != "fail"
    # What was not measured is not excused by the baseline that is missing.
    unseen = [d for d in result.limits if d.value is None]
    measured = len(unseen) < len(result.limits) and all(d.source != "flag" for d in unseen)
    return result.outcome == "not_compared" and missing and measured


def _deliver(
    result: Check, outputs: Outputs, screen: Console, next_commands: tuple[str, ...]
) -> int:
    """Report, files, and what GitHub wants to have."""
    from launchscope.report import reporter_named

    summary = screen.environ.get(SUMMARY)
    if summary:
        append(Path(summary), reporter_named("markdown").render(result), screen)
    code = outputs.deliver(result, screen, next_commands)
    if screen.on_github and outputs.shown.name != "github":
        tell = screen.out if outputs.shown.name in _FOR_PEOPLE else screen.beside
        tell(reporter_named("github").render(result, folder=screen.folder))
    return code


def _next(gate: Gate, result: Check, command: list[str], *, module: bool) -> tuple[str, ...]:
    """What to type where the measurement should become the baseline, and can."""
    place = gate.place
    if result.written or place is None or place.reference is not None or _elsewhere(result):
        return ()
    words = ["launchscope", "check", "--baseline", str(place), "--update-baseline"]
    if gate.workload != _workload_of(result.target):
        words += ["--workload", gate.workload]
    again = shlex.join([*words, *(["-m"] if module else []), *command])
    relative = [d for d in result.limits if d.limit.startswith(("+", "-"))]
    # A new baseline moves no absolute limit, and holds no more than what was measured now.
    lacking = any(d.outcome == "not_compared" and d.value is not None for d in relative)
    if result.stale or (result.outcome == "not_compared" and lacking):
        return (again,)
    if any(d.outcome == "failed" for d in relative):
        return (f"{again}  # if this is meant",)
    return ()


def _elsewhere(result: Check) -> bool:
    """Whether the baseline is of another device or world size, and so has to stay."""
    now, before = result.environment, result.baseline_environment
    return before is not None and (now.device, now.world_size) != (before.device, before.world_size)


# ------------------------------------------------------------------- before the run


def _configured(
    workload: str | None, ours: CheckSettings, *, module: bool
) -> tuple[str | None, list[str], bool]:
    """Workload, command and whether it is a module, where none was typed; no words if the
    settings file has no command either."""
    runnable = {name: own for name, own in ours.workloads.items() if own.command}
    if workload is None and len(runnable) == 1:
        workload = next(iter(runnable))
    if workload in runnable:
        words, is_module = unwrapped(runnable[workload].command)
        return workload, words, module or is_module
    if runnable:
        raise UsageError(
            "no script was named"
            if workload is None
            else f"no workload {workload!r} has a command",
            hint=f"--workload takes one of the settings file's: {', '.join(runnable)}",
        )
    return workload, [], module


def _is_saved(path: Path) -> bool:
    return path.suffix == ".json" or os.path.isfile(path / "recording.json")


def _saved(path: Path, after: list[str]) -> Profile:
    from launchscope.gate import sound
    from launchscope.parser import read_profile

    require_file(path)
    if after:
        raise UsageError(
            f"{path} is a saved Profile, and nothing can follow it: {shlex.join(after)}",
            hint=f"options stand before it: launchscope check {shlex.join([*after, str(path)])}"
            if after[0].startswith("-")
            else "check takes one Profile at a time",
        )
    if is_recording(path):
        return profile_of_recording(path, 15.0, None)
    return sound(read_profile(path), str(path))


def _workload_of(target: Target) -> str:
    return Path(target.name).stem if target.kind == "script" else target.name


def _place(text: str | None) -> BaselinePlace | None:
    from launchscope.gate import baseline_place

    if text is not None and not text.strip():
        # A variable of a workflow that is not set; "" would be the working directory.
        raise UsageError("--baseline is empty", hint="it names a file, a folder or git:REF:PATH")
    return None if text is None else baseline_place(text)


def _complete(gate: Gate, target: Target) -> None:
    """UsageError for what cannot work, before anything runs."""
    relative = [
        limit.metric
        for limit in {**gate.config, **gate.flags}.values()
        if limit is not None and limit.relative
    ]
    limited = {**gate.config, **gate.flags}
    if gate.place is None and (gate.update or relative or not limited):
        what = (
            "--update-baseline writes to --baseline, which is not given"
            if gate.update
            else f"the limit on {relative[0]} is relative, and there is no baseline"
            if relative
            else "there is nothing to compare with: no baseline and no limit"
        )
        after = first_of_ours(target.args, _OURS)
        raise UsageError(
            what,
            hint="--baseline baselines/ names a folder; --limit launches_per_step=900 a limit"
            if after is None
            else f"{after} stands after {target.name} and goes to it: type it before the script",
        )
    if gate.place is not None:
        gate.place.readable()
    if gate.update and gate.place is not None:
        gate.place.writable()


def _spares(outputs: Outputs, place: BaselinePlace | None, saved: Path | None) -> None:
    """UsageError where -o would take the place of what is compared."""
    for path, _ in outputs.files:
        if saved is not None and os.path.realpath(path) == os.path.realpath(saved):
            raise UsageError(
                f"-o {path} would overwrite the Profile that is checked", hint="name another file"
            )
        if place is not None and place.holds(path):
            raise UsageError(
                f"-o {path} would overwrite a baseline",
                hint="--update-baseline makes one; -o is for the report, such as check.json",
            )


def _repeats(text: str | None, ours: CheckSettings) -> int:
    if text is None:
        return ours.repeats or DEFAULT_REPEATS
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"--repeats: expected a whole number, 1 or more, not {text}")
    return int(text)


def _source(
    target: Target, saved: Profile | None, settings: Settings, repeats: int, screen: Console
) -> Repeats:
    from launchscope.workflows.repeats import Repeats

    if saved is not None:
        return Repeats.of_profile(saved)
    python_exists(settings.python)
    misplaced(target.args, target.name, screen, _OURS)
    return Repeats.of_target(target, settings, repeats, screen)
