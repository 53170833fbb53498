"""launchscope doctor: what is installed here and what can be measured with it."""

from __future__ import annotations

from launchscope.cli.console import console
from launchscope.cli.options import PYTHON
from launchscope.visible import visible


def doctor(python: str | None = PYTHON) -> int:
    """Show what is installed here and what can be measured with it."""
    from launchscope.config import load_settings
    from launchscope.workflows import doctor as workflow

    result = workflow.doctor(load_settings({"python": python}).python)
    width = max(len(diagnosis.name) for diagnosis in result.diagnoses)
    lines = [visible(f"{d.state:<8} {d.name:<{width}}  {d.text}") for d in result.diagnoses]
    console().out("\n".join([*lines, "", result.conclusion, ""]))
    return 0 if result.has_torch else 3
