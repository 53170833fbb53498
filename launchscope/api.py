"""The Python API: measure a callable, load a saved Profile."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launchscope.model import Profile, Schedule

__all__ = ["load", "measure"]


def measure(
    step: Callable[..., Any],
    *example_inputs: Any,
    replay: bool = True,
    threshold_pct: float = 15.0,
    expected_steps: int | None = None,
    schedule: Schedule | None = None,
) -> Profile:
    """Profile `step(*example_inputs)`, one call being one step, as `launchscope profile` would.

    The callable is run some 110 times in this process, on a side stream. Its changes to
    parameters stay; those of the replays are taken back. With a CUDA device the step is
    also captured and replayed, unless the inspection found something a capture cannot
    contain. A capture that fails all the same can leave CUDA unusable in this process:
    give `replay=False` where that must not happen, or use the command line, which
    measures in a process of its own. Without a CUDA device only the op stream is inspected.

    Raises MeasureError if the callable raises.
    """
    from launchscope.analysis import build_profile
    from launchscope.parser import read_recording
    from launchscope.rules import advise
    from launchscope.runner.parent.in_process import record_callable

    plan = schedule or Schedule()
    if not replay:
        from dataclasses import replace

        plan = replace(plan, replay=0, verify=0)
    with tempfile.TemporaryDirectory(prefix="launchscope-") as directory:
        record_callable(step, example_inputs, plan, Path(directory))
        recording = read_recording(directory)
        profile = build_profile(
            recording, threshold_pct=threshold_pct, expected_steps=expected_steps
        )
    return advise(profile)


def load(path: str | os.PathLike[str]) -> Profile:
    """Read a Profile that `-o profile.json` saved.

    Raises InputError if the file is missing, damaged, or of another schema version.
    """
    from launchscope.parser import read_profile

    return read_profile(os.fspath(path))
