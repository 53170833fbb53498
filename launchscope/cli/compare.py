"""launchscope compare [options] script.py [args]: batch sizes and strategies."""

from __future__ import annotations

from launchscope.cli.options import MODULE, RUN, SCRIPT, Typed, shares, text
from launchscope.cli.output import Outputs


@shares(RUN, without=("full",))
def compare(
    command: list[str] | None = SCRIPT,
    module: bool = MODULE,
    batch_sizes: str | None = text(
        "Batch sizes, as 8,32,128. Each replaces {batch_size} in the arguments, or is passed with "
        "the script's own flag if that has a usual name.",
        "N,N",
    ),
    modes: str | None = text(
        "Strategies to compare, each in a process of its own: eager, replay, compile, graphed, "
        "adopt.",
        "MODE,MODE",
    ),
    *,
    typed: Typed,
) -> int:
    """Profile a script at several batch sizes, and under several strategies.

    One fresh process per point, one after the other. Options of launchscope come before the
    script. --timeout limits each point. What the script prints goes to stderr.
    """
    from launchscope.model import Comparison
    from launchscope.workflows import compare as workflow
    from launchscope.workflows.last_run import keep
    from launchscope.workflows.ranks import require_one_process

    require_one_process(typed.console.environ, "launchscope compare")
    plan = workflow.plan_compare(
        command or [],
        typed.settings(),
        module=module,
        batch_sizes=None if batch_sizes is None else _words(batch_sizes),
        modes=[] if modes is None else _words(modes),
    )
    outputs = Outputs.checked(typed, Comparison)
    result = workflow.compare(plan, typed.console)
    again = outputs.report_again(kept=keep(result.comparison))
    return outputs.deliver(result.comparison, typed.console, again, result.problem)


def _words(listed: str) -> list[str]:
    return [word.strip() for word in listed.split(",")]
