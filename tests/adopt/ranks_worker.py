"""One rank of test_ranks.py: its part of each run; rank 0 writes what the comparisons found.

Arguments: the folder with the script, one for results, and other versions of it, one after another.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from launchscope.adopt.comparison import Comparison
from launchscope.adopt.mirror import Project
from launchscope.adopt.patch import Patch
from launchscope.adopt.verification import Verifier
from launchscope.config import load_settings
from launchscope.model import Target
from launchscope.runner.parent.observed_runs import ObservedRuns
from launchscope.runner.parent.rank_group import RankGroup
from launchscope.workflows.adopt_ranks import follow
from launchscope.workflows.progress import Progress
from launchscope.workflows.ranks import joined_ranks

STEPS = 6  # before the first forced event


def compare(
    group: RankGroup, folder: Path, base: Path, versions: list[str]
) -> dict[str, dict[str, Any]]:
    """What each version of the script comes to."""
    target = Target("script", "train.py")
    with ObservedRuns(lambda event: None, group=group) as runs:
        project = Project.of(target, folder)
        verifier = Verifier(runs, target, project, base, lambda text: None, steps=STEPS)
        first = verifier.original()
        compared = Comparison.of_runs(first, compared=STEPS)
        sizes = [set(of.states[-1].digests) for of in first.ranks]
        found: dict[str, dict[str, Any]] = {
            "original": {"tensors": [sorted(names) for names in sizes]}
        }
        for name in versions:
            found[name] = result(verifier, folder, name, compared)
    return found


def result(verifier: Verifier, folder: Path, name: str, compared: Comparison) -> dict[str, Any]:
    content = (folder / f"{name}.txt").read_bytes()
    patch = Patch(folder / "train.py", b"", content, "step", 1, 1, "step")
    run = verifier.run(patch, 1)
    agreed = compared(run)
    assert run.result is not None
    return {
        "exact": agreed.exact,
        "found": agreed.found and asdict(agreed.found),
        "calls": [asdict(of.result.calls[-1]) for of in run.ranks if of.result],
        "windows": [of.result.window_ms for of in run.ranks if of.result],
        "slowest": run.result.window_ms,
        "forced": run.result.forced,
    }


def main(folder: Path, results: Path, versions: list[str]) -> int:
    os.chdir(folder)
    with joined_ranks(os.environ) as group:
        assert group is not None
        if group.rank != 0:
            return follow(group, load_settings({}), Progress())
        base = results / "s"
        base.mkdir()
        found = compare(group, folder, base, versions)
        (results / "found.json").write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
