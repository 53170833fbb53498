"""Starts torch's own launcher for `--nproc-per-node`, with this command as each of its ranks."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from launchscope import runner
from launchscope.errors import UsageError
from launchscope.workflows.target import interpreter

_DEVICES = ("gpu", "auto", "cpu")
_LAUNCHER = Path(runner.__file__).parent / "child" / "enter" / "rank_launcher.py"


def launch_command(
    options: Mapping[str, str | None], words: Sequence[str], python: str | None
) -> list[str]:
    """The command line that starts the command of `words` once per rank; `options` are of torchrun,
    as typed. UsageError for a bad number of processes."""
    number = options["nproc_per_node"]
    if number is None:
        given = next(name for name, value in options.items() if value is not None)
        raise UsageError(
            f"--{given.replace('_', '-')} needs --nproc-per-node",
            hint="--nproc-per-node 8 starts eight processes on this machine",
        )
    counts = number.isdecimal() and len(number) < 5 and int(number) > 0
    if number not in _DEVICES and not counts:
        raise UsageError(
            f"--nproc-per-node: expected the number of processes, not {number!r}",
            hint="--nproc-per-node gpu starts one per GPU",
        )
    typed = {name: value for name, value in options.items() if value is not None}
    alone = [] if set(typed) - {"nproc_per_node"} else ["--standalone"]
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in typed.items()]
    own = [sys.executable, "-m", "launchscope"]
    if os.path.basename(sys.argv[0]) not in ("__main__.py", "-m", "-c"):
        own = [os.path.abspath(sys.argv[0])]
    program = sys.executable if python is None else interpreter(python)
    return [program, str(_LAUNCHER), *alone, *flags, "--no-python", *own, *words]


def become_launcher(
    options: Mapping[str, str | None], words: Sequence[str], python: str | None
) -> None:
    """Turns this process into the launcher, which gets the signals, and whose end is its end."""
    command = launch_command(options, words, python)
    if options["nproc_per_node"] != "1":
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # as the launcher does, with a warning
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(command[0], command)
