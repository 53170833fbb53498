"""Why a script uses no GPU on a machine that has one."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from launchscope.model import GpuObstacle, UnusedGpu

_DEVICE = re.compile(r"(.*[._-])?(device|dev|accelerator)", re.IGNORECASE)
_WITHOUT_GPU = ("--cpu", "--use-cpu", "--no-cuda", "--no-gpu")


def unused_gpu(obstacle: GpuObstacle) -> UnusedGpu:
    return UnusedGpu(obstacle, chosen_option(sys.argv[1:]) if obstacle == "script" else None)


def chosen_option(words: Sequence[str]) -> str | None:
    """The option of a command line that chooses the CPU: `--device cpu`, `device=cpu`, `--cpu`."""
    for word, after in zip(words, [*words[1:], ""]):
        name, given, value = word.partition("=")
        if _DEVICE.fullmatch(name) and (value if given else after).partition(":")[0] == "cpu":
            return name
        if word.replace("_", "-") in _WITHOUT_GPU:
            return word
    return None
