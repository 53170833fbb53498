"""Runs a script with a graphed step, and times its iterations from call to call of that step.

    python -m tests.benchmarks.twins.timed RESULT SCRIPT [ARGUMENTS]

The first 50 iterations are not timed: warm-up and capture are among them.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

from launchscope.graphed import GraphedStep
from tests.benchmarks.twins.clock import Clock

SKIPPED = 50


def main() -> None:
    result, script, *arguments = sys.argv[1:]
    clock = Clock(skip=SKIPPED)
    call: Any = GraphedStep.__call__

    def timed(step: Any, *args: Any, **kwargs: Any) -> Any:
        clock.tick()
        return call(step, *args, **kwargs)

    setattr(GraphedStep, "__call__", timed)  # noqa: B010
    sys.argv[:] = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")
    clock.stop(Path(result))


if __name__ == "__main__":
    main()
