"""launchscope compare [options] script.py [args]: batch sizes, strategies, shape buckets."""

from __future__ import annotations

from typing import Annotated

import typer

from launchscope.cli.options import Module
from launchscope.cli.shared import Typed, runs_a_script


@runs_a_script(without=("full",))
def compare(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SCRIPT [ARGS]",
            help="The script as after `python`, or with -m the module; without one, `command` "
            "of [tool.launchscope].",
            show_default=False,
        ),
    ] = None,
    module: Module = False,
    batch_sizes: Annotated[
        str | None,
        typer.Option(
            help="Batch sizes, as 8,32,128. Each replaces {batch_size} in the arguments, or is "
            "passed with the script's own flag.",
            metavar="N,N",
        ),
    ] = None,
    batch_flag: Annotated[
        str | None,
        typer.Option(help="The script's flag for the batch size.", metavar="FLAG"),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            help="Values of another parameter of the script. Repeatable: every combination runs.",
            metavar="NAME=A,B",
        ),
    ] = None,
    modes: Annotated[
        str | None,
        typer.Option(
            help="Strategies to compare, each in a process of its own: eager, replay, compile, "
            "graphed.",
            metavar="MODE,MODE",
        ),
    ] = None,
    buckets: Annotated[
        bool,
        typer.Option(
            "--buckets",
            help="Look at many more steps, and plan padded sizes for inputs that vary.",
        ),
    ] = False,
    max_graphs: Annotated[
        str | None,
        typer.Option(help="Maximum graphs of a bucket plan. [default: 8]", metavar="N"),
    ] = None,
    graph_memory: Annotated[
        str | None,
        typer.Option(
            help="MiB that the graphs of a bucket plan may take. [default: no limit]",
            metavar="MIB",
        ),
    ] = None,
    *,
    typed: Typed,
) -> int:
    """Profile a script at several batch sizes or parameters, and under several strategies.

    One fresh process per point, one after the other. Options of launchscope come before the
    script. --timeout limits each point. What the script prints goes to stderr.
    """
    from launchscope.model import Comparison
    from launchscope.workflows import compare as workflow
    from launchscope.workflows.axes import parse_parameters

    plan = workflow.plan_compare(
        command or [],
        typed.settings(max_graphs=max_graphs, graph_memory=graph_memory),
        module=module,
        batch_sizes=None if batch_sizes is None else _words(batch_sizes),
        batch_flag=batch_flag,
        parameters=parse_parameters(param or []),
        modes=[] if modes is None else _words(modes),
        buckets=buckets or max_graphs is not None or graph_memory is not None,
    )
    outputs = typed.outputs(Comparison)
    typed.note_misplaced(plan.target.name, plan.target.args)
    result = workflow.compare(plan, typed.progress())
    return outputs.deliver(result.comparison, typed.console(), outputs.report_again, result.problem)


def _words(listed: str) -> list[str]:
    return [word.strip() for word in listed.split(",")]
