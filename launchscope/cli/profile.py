"""launchscope profile [options] script.py [script args]: record, analyze, advise, report."""

from __future__ import annotations

from launchscope.cli.options import LAUNCH, MODULE, RUN, SCRIPT, Typed, shares
from launchscope.cli.output import Outputs
from launchscope.errors import LaunchscopeError


@shares(RUN | LAUNCH)
def profile(
    command: list[str] | None = SCRIPT,
    module: bool = MODULE,
    *,
    typed: Typed,
) -> int:
    """Measure the step of an unmodified script, eagerly and as a CUDA graph replay.

    Options of launchscope come before the script; everything after it goes to the script. A count
    of 0 steps leaves a pass out. With -f, what the script prints goes to stderr, so that only the
    report is on stdout.
    """
    from launchscope.model import Profile
    from launchscope.workflows import profile as workflow
    from launchscope.workflows import ranks
    from launchscope.workflows.last_run import keep
    from launchscope.workflows.target import script_target

    target = script_target(command or [], module=module, command="profile")
    outputs = Outputs.checked(typed, Profile)
    typed.launch()
    settings, console = typed.settings(), typed.console
    alone = outputs.shown.name != "terminal"  # on stdout, for a program
    with ranks.joined_ranks(console.environ) as group:
        if group is None:
            result = workflow.profile(target, settings, console, to_stderr=alone)
        else:
            try:
                of_all = ranks.profile_ranks(group, target, settings, console, to_stderr=alone)
            except LaunchscopeError as error:  # said before the other ranks may end
                console.error(str(error), error.hint)
                return error.exit_code
            if of_all is None:
                return ranks.wait_for_report(group, console)
            result = of_all
        from launchscope.report.documents.next_step import rule_commands  # slow: after the run

        again = outputs.report_again(kept=keep(result.profile))
        commands = (*rule_commands(result.profile), *again)
        return outputs.deliver(
            result.profile, console, commands, result.problem, after_script=not alone
        )
