"""launchscope check [options] TARGET: the gate. Measure, compare with a baseline, decide."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from launchscope.cli.options import CHECK, LAUNCH, MODULE, RUN, Typed, shares, text
from launchscope.cli.output import Outputs
from launchscope.recorded import shown_command
from launchscope.visible import without_commands

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launchscope.model import CheckResult
    from launchscope.workflows.check import CheckPlan, CheckRun

EXIT_CODES = {"passed": 0, "inconclusive": 0, "failed": 1, "not_compared": 3}
_SUMMARY = "GITHUB_STEP_SUMMARY"


@shares(CHECK | RUN | LAUNCH, without=("threshold", "expected_steps"))
def check(
    command: list[str] | None = typer.Argument(
        None,
        metavar="TARGET [ARGS]",
        help="The script, as after `python`; with -m, the module; or a saved Profile.",
    ),
    module: bool = MODULE,
    limit: list[str] | None = text(
        "A limit beside the defaults: 900 (at most), +0 or +5% (more than the baseline), or off. "
        "Repeatable.",
        "METRIC=VALUE",
    ),
    update_baseline: bool = typer.Option(
        False, "--update-baseline", help="Write the measurement as the baseline."
    ),
    *,
    typed: Typed,
) -> int:
    """Fail when a step launches, copies or synchronizes more than a baseline or a limit allows.

    Exact counts are compared; without a GPU, those of a rehearsal. A time fails only if you set
    the worst value that passes. The replay is left out unless a limit needs it. What the script
    prints goes to stderr.

    --against counts what a git revision does, and needs no baseline.
    """
    from launchscope.model import CheckResult
    from launchscope.workflows import check as workflow
    from launchscope.workflows.ranks import RankRunner, joined_ranks, require_one_process

    console, outputs = typed.console, Outputs.checked(typed, CheckResult)
    typed.launch()
    plan = workflow.plan_check(
        command or [],
        typed.flags,
        module=module,
        config=typed.config,
        limits=limit or [],
        update_baseline=update_baseline,
    )
    outputs.require_spared(plan.inputs)
    if plan.base is not None:
        hint = "write a baseline with --update-baseline, and compare with that"
        require_one_process(console.environ, "--against", hint)
    with joined_ranks({} if plan.saved else console.environ) as group:
        runner = None if group is None else RankRunner(plan.settings, console, group, for_gate=True)
        if runner is not None and runner.group.rank != 0:
            return runner.follow(plan.target, console)
        return _report(plan, workflow.check(plan, console, runner), outputs, typed)


def _report(plan: CheckPlan, run: CheckRun, outputs: Outputs, typed: Typed) -> int:
    """Shows the result everywhere; the exit code."""
    from launchscope.report import RenderOptions, render

    console, result = typed.console, run.result
    if summary := console.environ.get(_SUMMARY):
        try:
            with open(summary, "a", encoding="utf-8") as file:
                file.write(without_commands(str(render(result, "markdown"))))
        except OSError as error:
            console.note(f"cannot write {summary}: {error.strerror or error}")
    is_command = outputs.shown.name == "github"  # which has to begin a line
    commands = _next_commands(plan, result, console.environ)
    code = outputs.deliver(result, console, commands, run.problem, after_script=is_command)
    if console.on_github and outputs.shown.name != "github":
        # A script may have ended without a line break, and an annotation begins a line.
        annotations = str(render(result, "github", RenderOptions(repository=console.repository)))
        console.beside(f"\n{annotations}", commands=True)
    return code or (0 if result.written else EXIT_CODES[result.outcome])


def _next_commands(
    plan: CheckPlan, result: CheckResult, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """The command that makes the measurement the baseline, where that would help, or compares with
    the first one."""
    from launchscope.runner.parent.rank_place import rank_place

    if plan.place is None or (not plan.saved and rank_place(environ)):
        return ()
    words = ["launchscope", "check", "--baseline", str(plan.place)]
    if result.written:
        return () if result.baseline else (shown_command([*words, *plan.words]),)
    update = shown_command([*words, "--update-baseline", *plan.words])
    # A new baseline changes no absolute limit, and adds nothing that was not measured now.
    outcomes = {d.outcome for d in result.limits if d.relative and d.value is not None}
    if not (result.stale or result.upgrade or {"failed", "not_compared"} & outcomes):
        return ()
    # On a line of its own: zsh knows no comments in what is typed.
    return "# Makes this measurement the baseline:", update
