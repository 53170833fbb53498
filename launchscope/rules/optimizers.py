"""What a capture needs of the optimizers, as lines that set it on those of the script."""

from __future__ import annotations

import ast

from launchscope.analysis.capturable import ASK_FOR_CAPTURABLE
from launchscope.model import Profile
from launchscope.rules.learning_rate import CAPTURABLE
from launchscope.rules.ls035_live_scheduler import scheduler_is_frozen

__all__ = ["changes_needed", "freezes_rate", "prepared", "writes_rate"]

_FROM_HERE_ON = """\
# From here on group["lr"].fill_(value) sets the rate, as torch's schedulers do. A momentum stays
# frozen: OneCycleLR and CyclicLR need cycle_momentum=False."""


def freezes_rate(profile: Profile) -> bool:
    """Whether a graph of the step would keep a learning rate that the script changes."""
    causes = profile.replay.correct.causes if profile.replay.correct.status == "different" else ()
    return scheduler_is_frozen(profile) or any(c.kind == "learning_rate" for c in causes)


def changes_needed(profile: Profile) -> tuple[str, ...]:
    """What to set on the optimizers for a capture: what it was made with, such as
    `AdamW capturable=True`; where none was made, what torch refuses one without.
    """
    if profile.replay.status in ("measured", "what_if"):
        return profile.replay.changes
    kinds = dict.fromkeys(profile.facts.optimizer_classes or ())
    return tuple(f"{kind} capturable=True" for kind in kinds if kind in ASK_FOR_CAPTURABLE)


def prepared(profile: Profile, named: list[tuple[str, str]]) -> list[str]:
    """Lines behind the making of the optimizers and before their first step.

    `named` are their variables and classes.
    """
    needed = changes_needed(profile)
    of_changes = [change.split(" ")[0] for change in needed if "capturable" in change]
    rate = freezes_rate(profile)
    lines = []
    for name, owner in named:
        kind = owner.rsplit(".", 1)[-1]
        flag = "capturable" if kind in CAPTURABLE or owner in of_changes else ""
        flag = "fused" if rate and kind == "SGD" else flag
        if rate and not flag:
            lines.append(f"...  # {name}: {owner} keeps its learning rate in a graph (rules LS035)")
            continue
        if not rate and owner not in of_changes:
            continue
        lines.append(f"for group in {name}.param_groups:  # before the first step")
        if rate:
            lines.append('    group["lr"] = torch.as_tensor(group["lr"], device="cuda")')
        lines.append(f'    group["{flag}"] = True')
    if any("as_tensor" in line for line in lines):
        lines += _FROM_HERE_ON.splitlines()
    return lines


def writes_rate(code: str) -> str:
    """The same lines with each `group["lr"] = value` written into the tensor that is there."""
    return "\n".join(_filled(line) for line in code.splitlines())


def _filled(line: str) -> str:
    try:
        statements = ast.parse(line.strip()).body
    except SyntaxError:  # a line of several
        return line
    match statements:
        case [
            ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value="lr")) as rate], value=new)
        ] if "group" in ast.unparse(rate.value):
            margin = line[: len(line) - len(line.lstrip())]
            return f"{margin}{ast.unparse(rate)}.fill_({ast.unparse(new)})"
    return line
