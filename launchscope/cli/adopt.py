"""launchscope adopt [options] script.py [script args]: the change itself, run and checked."""

from __future__ import annotations

from launchscope.cli.options import ADOPT, MODULE, SCRIPT, Typed, shares
from launchscope.cli.output import Outputs


@shares(ADOPT)
def adopt(
    command: list[str] | None = SCRIPT,
    module: bool = MODULE,
    *,
    typed: Typed,
) -> int:
    """Move the step of a script into a function that is replayed as a CUDA graph.

    The change is run and compared with the original before it is shown. Without a GPU its source is
    compared, and it is shown as not verified on a GPU. -o graph.patch saves it for `git apply`. The
    script runs about nine times, in copies of its folder; you see what one of these runs prints to
    stderr, and nothing of the others.
    """
    from launchscope.model import Adoption
    from launchscope.workflows import adopt as workflow
    from launchscope.workflows.last_run import keep
    from launchscope.workflows.ranks import require_one_process
    from launchscope.workflows.target import script_target

    target = script_target(command or [], module=module, command="adopt")
    outputs = Outputs.checked(typed, Adoption)
    hint = "start it without torchrun"
    require_one_process(typed.console.environ, "launchscope adopt", hint)
    settings, console = typed.settings(), typed.console
    result = workflow.adopt(target, settings, console)
    kept = keep(result)
    to_adopt = workflow.next_commands(result, saved=not kept or outputs.has("patch"))
    commands = (*to_adopt, *outputs.report_again(kept=kept))
    return outputs.deliver(result, console, commands) or workflow.exit_code(result)
