"""One rank of test_ranks.py: its part of each run; rank 0 writes what the comparison found.

Arguments: the folder with the script and its changed version, and one for results.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from launchscope.adopt.comparison import Comparison
from launchscope.adopt.marks import switches_of
from launchscope.adopt.mirror import Project
from launchscope.adopt.observation import Stretches
from launchscope.adopt.observed_runs import ObservedRun, ObservedRuns
from launchscope.adopt.patch import Patch
from launchscope.adopt.verification import Verifier
from launchscope.config import load_settings
from launchscope.model import Target
from launchscope.runner.parent.rank_group import RankGroup
from launchscope.workflows.adopt_ranks import follow
from launchscope.workflows.progress import Progress
from launchscope.workflows.ranks import joined_ranks

STEPS = 6  # before the first forced event


def compare(group: RankGroup, folder: Path, base: Path) -> dict[str, Any]:
    """What the changed version comes to, and what it would if rank 1 had counted wrongly."""
    target = Target("script", "train.py")
    with ObservedRuns(lambda event: None, group=group) as runs:
        project = Project.of(target, folder)
        verifier = Verifier(runs, target, project, base, lambda text: None, steps=STEPS)
        after = (folder / "changed.txt").read_bytes()
        before = (folder / "train.py").read_bytes()
        lines = before.decode().splitlines()
        line = lines.index("        optimizer.zero_grad()") + 1
        patch = Patch(folder / "train.py", before, after, "step", line, line + 4, "step")
        first = verifier.suitable(patch, verifier.original(), switches_of(patch, marked=False))
        compared = Comparison.of_runs(first, compared=STEPS)
        run = verifier.run(patch, 1)
    assert run.result is not None
    agreed, wrong = compared(until_switches(run)), compared(miscounted(run))
    return {
        "found": agreed.found and asdict(agreed.found),
        "wrong on one": wrong.found and asdict(wrong.found),
        "calls": [asdict(of.result.calls[-1]) for of in run.ranks if of.result],
        "windows": [of.result.window_ms for of in run.ranks if of.result],
        "slowest": run.result.window_ms,
        "forced": run.result.forced,
        "switched": [of.result.switched for of in run.ranks if of.result],
    }


def until_switches(run: ObservedRun) -> ObservedRun:
    """The run without its last steps: the two versions add in other orders, and move apart."""
    last = Stretches.of(STEPS).switched_from
    ranks = [replace(of, states=tuple(s for s in of.states if s.unit <= last)) for of in run.ranks]
    return ObservedRun(tuple(ranks))


def miscounted(run: ObservedRun) -> ObservedRun:
    """The run with another value of `seen` after the first step of rank 1."""
    first, second = run.ranks
    state = second.states[1]
    sketch = tuple(2.0 * value for value in state.sketches["seen"])
    state = replace(
        state,
        digests={**state.digests, "seen": state.digests["seen"] + 1},
        sketches={**state.sketches, "seen": sketch},
    )
    states = (second.states[0], state, *second.states[2:])
    return ObservedRun((first, replace(second, states=states)))


def main(folder: Path, results: Path) -> int:
    os.chdir(folder)
    with joined_ranks(os.environ) as group:
        assert group is not None
        if group.rank != 0:
            return follow(group, load_settings({}), Progress())
        base = results / "s"
        base.mkdir()
        (results / "found.json").write_text(json.dumps(compare(group, folder, base)))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
