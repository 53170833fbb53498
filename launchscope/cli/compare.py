"""launchscope compare [options] script.py [args]: batch sizes, ways to adopt, shape buckets."""

from __future__ import annotations

import shlex
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from launchscope.cli.console import Console
from launchscope.cli.output import Outputs
from launchscope.cli.profile import (
    first_of_ours,
    load_analysis,
    misplaced,
    python_exists,
    target_of,
    unwrapped,
)
from launchscope.cli.shared import Typed, runs_a_script
from launchscope.errors import MeasureError, UsageError

if TYPE_CHECKING:
    from launchscope.config import Settings
    from launchscope.model import Comparison, StrategyName, Target
    from launchscope.workflows.axes import Axis

_OURS = {"--batch-sizes", "--batch-flag", "--param", "--modes", "--buckets", "--max-graphs",
         "--graph-memory"}  # fmt: skip
_NOTHING_TO_COMPARE = (
    "name what to compare: --batch-sizes 8,32,128, --param NAME=a,b, "
    "--modes eager,replay,compile,graphed or --buckets"
)


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
    module: Annotated[bool, typer.Option("-m", help="Run a module, as `python -m` does.")] = False,
    batch_sizes: Annotated[
        str | None,
        typer.Option(
            help="Batch sizes, as 8,32,128. Each fills {batch_size} in the arguments, or follows "
            "the script's own flag.",
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
            help="Ways to adopt graphs, each in a process of its own: eager, replay, compile, "
            "graphed.",
            metavar="WAY,WAY",
        ),
    ] = None,
    buckets: Annotated[
        bool,
        typer.Option(
            "--buckets", help="Look at many more steps, and plan padded sizes for inputs that vary."
        ),
    ] = False,
    max_graphs: Annotated[
        str | None,
        typer.Option(help="Graphs of a bucket plan at most. [default: 8]", metavar="N"),
    ] = None,
    graph_memory: Annotated[
        str | None,
        typer.Option(
            help="MiB that the graphs of a bucket plan may hold. [default: no limit]",
            metavar="MIB",
        ),
    ] = None,
    *,
    typed: Typed,
) -> int:
    """Profile a script at several batch sizes or parameters, and under several ways to adopt.

    One fresh process per point, one after the other. Options of launchscope stand before the
    script. --timeout bounds each point. What the script prints goes to stderr.
    """
    from launchscope.model import Comparison
    from launchscope.workflows.axes import axes_of
    from launchscope.workflows.modes import modes_of
    from launchscope.workflows.script_flags import options_of

    screen = typed.console()
    settings = typed.run_settings("compare", max_graphs=max_graphs, graph_memory=graph_memory)
    ways = modes_of(modes)
    wants_buckets = buckets or max_graphs is not None or graph_memory is not None
    if batch_sizes is None and not param and not ways and not wants_buckets:
        after = first_of_ours((command or [])[1:], _OURS)
        raise UsageError(
            "there is nothing to compare",
            hint=_NOTHING_TO_COMPARE
            if after is None
            else f"{after} stands after the script and goes to it: type it before the script",
        )
    target = _target(command or [], module, settings)
    misplaced(target.args, target.name, screen, _OURS)
    axes = axes_of(batch_sizes, param or [], batch_flag, target, options_of(target))
    outputs = typed.outputs(Comparison)
    python_exists(settings.python)
    return _run(target, axes, ways, wants_buckets, settings, outputs, screen)


def _target(command: list[str], module: bool, settings: Settings) -> Target:
    if command or settings.command is None:
        if not command:
            raise UsageError(
                "no script was named",
                hint="launchscope compare [options] script.py [args], or set command in "
                "[tool.launchscope]",
            )
        return target_of(command, module=module, typed="compare")
    words, is_module = unwrapped(shlex.split(settings.command))
    return target_of(words, module=module or is_module, typed="compare")


def _run(
    target: Target,
    axes: tuple[Axis, ...],
    ways: tuple[StrategyName, ...],
    wants_buckets: bool,
    settings: Settings,
    outputs: Outputs,
    screen: Console,
) -> int:
    from launchscope.workflows.axes import combinations
    from launchscope.workflows.compare import measure
    from launchscope.workflows.points import Runner

    threading.Thread(target=load_analysis, daemon=True).start()
    points = combinations(axes, target)
    with Runner(settings, screen) as runner:
        made = measure(runner, target, axes, points, ways, wants_buckets, settings, screen)
    comparison = made.comparison
    saved = next((path for path, reporter in outputs.files if reporter.name == "json"), None)
    commands = () if saved is None else (f"launchscope report {shlex.quote(str(saved))}",)
    if not made.measured and not comparison.points and not comparison.ladders:
        raise MeasureError("interrupted before anything was measured", exit_code=runner.exit_code)
    code = outputs.deliver(comparison, screen, commands)
    if made.interrupted:
        screen.error("interrupted; this is what was measured until then")
        return runner.exit_code
    if not made.measured:
        raise _nothing(comparison)
    from launchscope.analysis.comparison.points import (
        same_work,  # slow to load: a thread did it meanwhile
    )

    if same_work(comparison.points) and not (comparison.ladders or comparison.buckets):
        raise MeasureError(
            "nothing was compared: every point measured the same thing",
            hint=f"does {target.name} use the batch size it is given?",
        )
    return code


def _nothing(comparison: Comparison) -> MeasureError:
    failures = [p.failure for p in comparison.points if p.failure is not None]
    failures += [
        rung.failure
        for ladder in comparison.ladders
        for rung in ladder.rungs
        if rung.failure is not None
    ]
    first = failures[0] if failures else None
    reason = "" if first is None else f"; the first: {first.reason}"
    return MeasureError(
        f"nothing could be measured at any point{reason}",
        hint=first.hint if first is not None else None,
    )
