"""Python processes that tests start, and what they print."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

Done = subprocess.CompletedProcess[str]
Environ = Mapping[str, str]
SAME: Environ = MappingProxyType({})
WITHOUT_GPU: Environ = MappingProxyType({"CUDA_VISIBLE_DEVICES": ""})


def python(folder: Path, *words: str, environ: Environ = SAME, timeout: float = 300) -> Done:
    """`python WORDS` in this folder, with these variables besides."""
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env={**os.environ, **environ}, text=True,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False,
    )  # fmt: skip


def started(folder: Path, *words: str, environ: Environ = WITHOUT_GPU) -> subprocess.Popen[str]:
    """The same without waiting for its end."""
    return subprocess.Popen(
        [sys.executable, *words], cwd=folder, env={**os.environ, **environ}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=_as_in_a_terminal,
    )  # fmt: skip


def _as_in_a_terminal() -> None:
    """What a shell starts in the background ignores Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def launchscope(folder: Path, *words: str, environ: Environ = SAME, timeout: float = 300) -> Done:
    return python(folder, "-m", "launchscope", *words, environ=environ, timeout=timeout)
