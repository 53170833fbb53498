"""What a workflow runs: a script or a module with its arguments, checked before it starts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from launchscope.errors import UsageError, raised_as
from launchscope.host import working_directory
from launchscope.model import Target
from launchscope.recorded import shown_command

_HEAD = 4096  # bytes, which tell what a file is


def script_target(words: Sequence[str], *, module: bool, command: str) -> Target:
    """The target that these words name, as after `python` (or `python -m` for a module). Hints show
    `command`. Raises UsageError for anything that cannot run."""
    if not words or not words[0].strip():
        raise UsageError(
            "no script was given", hint=f"launchscope {command} [options] script.py [script args]"
        )
    name, args = words[0], tuple(words[1:])
    if module:
        return Target("module", name, args)
    path = Path(name)
    if not exists(path):
        raise UsageError(f"{path}: no such file", hint=_nearest_script(path, command))
    if path.is_file():
        _require_source(path)
    elif not (path / "__main__.py").is_file():
        raise UsageError(
            f"{name} is a directory without a __main__.py",
            hint="give a script, or run a package with -m",
        )
    return Target("script", name, args)


def _require_source(path: Path) -> None:
    """UsageError for a file that is not Python: JSON, which would run as an expression, or binary
    data."""
    with raised_as(UsageError, f"cannot read {path}"):
        content = path.read_bytes()
    name = shown_command([str(path)])
    if path.suffix.lower() == ".ipynb":
        raise UsageError(
            f"{path} is a notebook, not a script",
            hint="run %load_ext launchscope in it, and begin the cell of the training loop with "
            "%%launchscope",
        )
    if content.startswith(b"PK"):  # an archive with a __main__.py
        return
    if path.suffix == ".json" or b"\0" in content[:_HEAD]:
        hint = f"launchscope report {name} reads a Profile or a trace"
        raise UsageError(f"{path} is not a Python script", hint=hint)


def interpreter(python: str) -> str:
    """The path of the program that `--python` names; UsageError if there is none."""
    found = shutil.which(python)
    if found is None:
        raise UsageError(
            f"--python: {python} is not an executable program",
            hint="give the path of a Python interpreter, such as /opt/env/bin/python",
        )
    return found


def exists(path: Path) -> bool:
    """Whether there is anything at this path; UsageError if it cannot be accessed."""
    with raised_as(UsageError, str(path)):
        return path.exists()


def relative(target: Target) -> Target:
    """The target with its script relative to the working directory, if it is below it."""
    if target.kind != "script" or not os.path.isabs(target.name):
        return target
    shorter = os.path.relpath(target.name, working_directory())
    return target if shorter.startswith("..") else Target("script", shorter, target.args)


def _nearest_script(path: Path, command: str) -> str | None:
    if path.suffix != ".py" and "." in path.name and len(path.parts) == 1:
        return f"to run a module, type launchscope {command} -m {path}"
    near = get_close_matches(path.name, [p.name for p in path.parent.glob("*.py")], n=1)
    return f"did you mean {path.with_name(near[0])}?" if near else None
