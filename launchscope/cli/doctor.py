"""launchscope doctor: what is installed here and what can be measured with it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from launchscope.cli.console import console
from launchscope.cli.options import CONFIG, PYTHON, VERBOSE, as_path
from launchscope.visible import visible


def doctor(
    python: str | None = PYTHON, verbose: bool = VERBOSE, config: str | None = CONFIG
) -> int:
    """Show what is installed here and what can be measured with it."""
    from launchscope.config import load_settings
    from launchscope.workflows import doctor as workflow

    console().verbose = verbose
    # No program runs that only the settings of this folder name.
    asked = load_settings({"python": python}, config=Path(config or os.devnull)).python
    named = load_settings({"python": python}, config=as_path(config)).python
    result = workflow.doctor(asked)
    width = max(len(diagnosis.name) for diagnosis in result.diagnoses)
    lines = [visible(f"{d.state:<8} {d.name:<{width}}  {d.text}") for d in result.diagnoses]
    console().out("\n".join([*lines, "", result.conclusion, ""]))
    if named != asked:
        console().note(
            f"pyproject.toml names the interpreter {named}, which was not checked: "
            f"--python {shlex.quote(str(named))} checks it"
        )
    return 0 if result.has_torch else 3
