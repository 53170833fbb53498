"""launchscope check [options] TARGET: the gate. Measure, compare with a baseline, decide."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from launchscope.cli.options import MODULE, switch, text
from launchscope.cli.output import append
from launchscope.cli.shared import Typed, runs_a_script

if TYPE_CHECKING:
    from launchscope.model import Check
    from launchscope.workflows.check import CheckPlan

EXIT_CODES = {"passed": 0, "inconclusive": 0, "failed": 1, "not_compared": 3}
_SUMMARY = "GITHUB_STEP_SUMMARY"
_FOR_PEOPLE = ("terminal", "markdown")  # annotations may follow these on stdout


@runs_a_script(without=("threshold", "expected_steps"))
def check(
    command: list[str] | None = typer.Argument(
        None,
        metavar="TARGET [ARGS]",
        help="The script as after `python`, with -m the module; or a saved Profile.",
    ),
    module: bool = MODULE,
    baseline: str | None = text(
        "What to compare with: a file, a folder with one file per workload and device, or either "
        "of a git revision.",
        "PATH|DIR|git:REF:PATH",
    ),
    limit: list[str] | None = text(
        "A limit: 900 (at most), +0, +5%, +2pp, +300us (worse than the baseline), off. Repeatable.",
        "METRIC=VALUE",
    ),
    repeats: str | None = text(
        "Fresh processes to measure before a limit fails, and for a baseline. [default: 3]", "N"
    ),
    confirm: bool | None = switch("--confirm", "Measure everything again before failing."),
    strict: bool | None = switch("--strict", "Fail on an inconclusive limit too."),
    update_baseline: bool = typer.Option(
        False, "--update-baseline", help="Write the measurement as the baseline."
    ),
    missing_baseline: str | None = text(
        "What to do without a baseline: fail, pass or write it. [default: fail]", "WHAT"
    ),
    workload: str | None = text("Name of the workload. [default: the script's name]", "NAME"),
    *,
    typed: Typed,
) -> int:
    """Fail when launch overhead got worse than a baseline or a limit allows.

    Exact counts are compared exactly; a timing fails only if the best of fresh processes is worse
    than the worst of the baseline's. Without a GPU the device operations, shapes and blockers of
    a rehearsal are compared. The replay is left out unless a limit needs it. What the script
    prints goes to stderr.
    """
    from launchscope.model import Check
    from launchscope.report import RenderOptions, reporter_named
    from launchscope.workflows import check as workflow

    console, outputs = typed.console(), typed.outputs(Check)
    plan = workflow.plan_check(
        command or [],
        typed.flags,
        module=module,
        config=typed.config,
        baseline=baseline,
        limits=limit or [],
        repeats=repeats,
        confirm=confirm,
        strict=strict,
        update_baseline=update_baseline,
        missing_baseline=missing_baseline,
        workload=workload,
    )
    for path, _ in outputs.files:
        plan.require_spared(path)
    if plan.saved is None:
        typed.note_misplaced(plan.target.name, plan.target.args)
    result = workflow.check(plan, console)
    if console.environ.get(_SUMMARY):
        summary = reporter_named("markdown").render(result)
        append(Path(console.environ[_SUMMARY]), summary, console)
    code = outputs.deliver(result, console, _next_commands(plan, result))
    if console.on_github and outputs.shown.name != "github":
        write = console.out if outputs.shown.name in _FOR_PEOPLE else console.beside
        write(reporter_named("github").render(result, RenderOptions(folder=console.folder)))
    return code or (0 if result.excused else EXIT_CODES[result.outcome])


def _next_commands(plan: CheckPlan, result: Check) -> tuple[str, ...]:
    """The command that makes the measurement the baseline, where that would help."""
    from launchscope.workflows.check import workload_of

    before = result.baseline_environment
    now = result.environment
    elsewhere = before is not None and (now.device, now.world_size) != (
        before.device, before.world_size,
    )  # fmt: skip
    place = plan.place
    if result.written or place is None or place.reference is not None or elsewhere:
        return ()
    words = ["launchscope", "check", "--baseline", str(place), "--update-baseline"]
    if plan.workload != workload_of(result.target):
        words += ["--workload", plan.workload]
    update = shlex.join([*words, *plan.words])
    # A new baseline changes no absolute limit, and adds nothing that was not measured now.
    relative = [limit for limit in result.limits if limit.relative]
    lacking = any(d.outcome == "not_compared" and d.value is not None for d in relative)
    if result.stale or (result.outcome == "not_compared" and lacking):
        return (update,)
    if any(d.outcome == "failed" for d in relative):
        return (f"{update}  # if the change is intended",)
    return ()
