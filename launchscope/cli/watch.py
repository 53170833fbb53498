"""launchscope watch [options] script.py [script args]: what the GPU waits for in a whole run."""

from __future__ import annotations

from launchscope.cli.options import MODULE, SCRIPT, WATCH, Typed, shares
from launchscope.cli.output import Outputs


@shares(WATCH)
def watch(command: list[str] | None = SCRIPT, module: bool = MODULE, *, typed: Typed) -> int:
    """Run a script to its end, and say how much of its GPU time waited for launches.

    Now and then some steps are timed and traced. Ctrl-C keeps the report.
    """
    from launchscope.model import Watch
    from launchscope.workflows import watch as workflow
    from launchscope.workflows.ranks import require_one_process
    from launchscope.workflows.target import script_target

    target = script_target(command or [], module=module, command="watch")
    outputs, console = Outputs.checked(typed, Watch), typed.console
    require_one_process(console.environ, "launchscope watch", "start it without torchrun")
    stdout = None if outputs.shown.name == "terminal" else 2
    watched, problem = workflow.watch(target, typed.settings(), console, stdout)
    return outputs.deliver(watched, console, (), problem, after_script=stdout is None)
