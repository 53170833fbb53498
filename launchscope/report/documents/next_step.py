"""What a person does after a report: the command to type, the steps by hand, and what to change."""

from __future__ import annotations

from collections.abc import Sequence

from launchscope.model import Finding, Profile, Schedule, Severity
from launchscope.recorded import shown_command
from launchscope.report.document import Block, Entries, Entry, Items, Paragraph, Section, Tone
from launchscope.rules import find_rule
from launchscope.wording import place

# The most severe first.
_SEVERITIES: dict[Severity, Tone] = {
    "error": "bad",
    "warning": "caution",
    "advice": "good",
    "info": "dim",
}
_ORDER = list(_SEVERITIES)
# The gain with its bounds, the share of graphs, that nothing ran on a GPU.
_IN_HEADLINE = ("LS001", "LS008", "LS041")
_MOST_STEPS = 2  # on a screen

_LIGHTNING = "Add `launchscope.integrations.lightning.GraphedSteps()` to the Trainer's callbacks"
# By the package that steps the optimizer: how its steps get to run under `graphed`.
_ADAPTERS = {
    "lightning": _LIGHTNING,
    "pytorch_lightning": _LIGHTNING,
    "transformers": "Call `launchscope.integrations.transformers.graph(trainer)` before train()",
    "accelerate": "Put the step under `launchscope.graphed`",
}


def adapter(profile: Profile) -> str | None:
    """What to write where the trainer of a library runs the step, which no patch of the script can
    change; None otherwise, and where no graph is advised."""
    verdict, step = profile.verdict, profile.step
    if verdict is None or step is None or verdict.recommendation in ("unsafe", "stay_eager"):
        return None
    packages = [call.package for call in step.calls if call.what == "step"]
    return next((_ADAPTERS[name] for name in packages if name in _ADAPTERS), None)


def adopt_commands(profile: Profile) -> tuple[str, ...]:
    """The command that makes the change, where a graph pays and `launchscope adopt` can start what
    was measured; empty otherwise."""
    verdict, step, target = profile.verdict, profile.step, profile.target
    if verdict is None or verdict.recommendation not in ("adopt", "adopt_after_fixes"):
        return ()
    # A name that looks like an option is that of standard input, or of no script.
    is_known = target.kind in ("script", "module") and not target.name.startswith("-")
    if not is_known or profile.mode != "gpu" or step is None or step.source is None:
        return ()
    if profile.environment.world_size > 1 or adapter(profile) is not None:
        return ()
    words = ["launchscope", "adopt"]
    words += ["--python", target.python] if target.python else []
    if profile.threshold_pct != Schedule.threshold:
        words += ["--threshold", f"{profile.threshold_pct:g}%"]
    if profile.expected_steps is not None:
        words += ["--expected-steps", str(profile.expected_steps)]
    words += ["-m"] if target.kind == "module" else []
    return (shown_command([*words, target.name, *target.args]),)


def rule_commands(profile: Profile) -> tuple[str, ...]:
    """The command that explains what the verdict rests on; a file may name what is no rule."""
    because = profile.verdict.because if profile.verdict is not None else ()
    severe = {each.code for each in profile.findings if each.severity in ("warning", "error")}
    known = sorted(filter(find_rule, because), key=lambda code: code not in severe)
    return tuple(f"launchscope rules {code}" for code in known[:1])


def to_do(profile: Profile) -> tuple[tuple[str, ...], tuple[Entry, ...]]:
    """The instructions of the verdict; without any, what to change because of it."""
    steps = () if profile.verdict is None else profile.verdict.instructions
    return steps, () if steps else findings(profile)["What to change"]


def what_to_do(profile: Profile, steps: Sequence[str], fixes: Sequence[Entry]) -> Section:
    """The steps of the person, who may leave them to `launchscope adopt` or to an adapter."""
    commands = adopt_commands(profile) if steps else ()
    # A name with a backtick would end the code.
    shown = ["launchscope adopt" if "`" in command else command for command in commands]
    automatic = [
        Paragraph(f"`{c}` tries to make this change, and checks it. By hand:") for c in shown
    ]
    known = adapter(profile) if steps else None
    if known is not None:
        text = f"{known}: the steps then run as graphs where they can (launchscope docs trainers)."
        automatic = [Paragraph(text)]
        is_all = profile.verdict is not None and profile.verdict.recommendation == "adopt"
        steps = () if is_all else steps
    blocks: tuple[Block, ...] = (
        *automatic,
        Items(tuple(steps), numbered=True),
        Entries(tuple(fixes)),
    )
    return Section("What to do", blocks, is_answer=True, most=_MOST_STEPS)


def reason_of(profile: Profile) -> Finding | None:
    """The finding behind the verdict that says more than its headline does, the most severe one of
    its rule."""
    verdict = profile.verdict
    if verdict is None:
        return None
    said = {*_IN_HEADLINE}
    said |= {"LS030"} if profile.mode == "trace" else set()
    # The headline of an unsafe graph says its first reason.
    said |= {*verdict.because[:1]} if verdict.recommendation == "unsafe" else set()
    unsaid = (code for code in verdict.because if code not in said)
    return next((found for code in unsaid for found in of_code(profile, code)), None)


def of_code(profile: Profile, code: str) -> list[Finding]:
    """The findings of a rule, the most severe first."""
    found = [finding for finding in profile.findings if finding.code == code]
    return sorted(found, key=lambda finding: _ORDER.index(finding.severity))


def findings(profile: Profile) -> dict[str, tuple[Entry, ...]]:
    """Reasons for the verdict, what to change in the script because of it, and what else to
    know."""
    because = profile.verdict.because if profile.verdict is not None else ()
    rank = {code: i for i, code in enumerate(because)}
    entries: dict[str, list[Entry]] = {"Why": [], "What to change": [], "Keep in mind": []}
    for found in sorted(
        profile.findings,
        key=lambda found: (_ORDER.index(found.severity), rank.get(found.code, len(rank))),
    ):
        rule = find_rule(found.code)
        is_fix = (rule is None or rule.fixable) and found.code in rank
        heading = "What to change" if is_fix else "Keep in mind"
        heading = "Why" if found.severity == "info" else heading
        tone, where = _SEVERITIES[found.severity], place(found.where)
        entries[heading].append(Entry(found.code, tone, where, found.title, found.advice))
    return {heading: tuple(under) for heading, under in entries.items()}
