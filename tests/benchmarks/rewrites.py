"""What the rewrite of `launchscope adopt` makes of public training loops that are not run.

The calls of each step are guessed from the text, for every `backward()` below a folder that holds
one checkout per repository. Each file is rewritten or refused with a reason; what was rewritten has
to compile, and each line outside of the step has to be what it was.

Run from the top of the checkout: python -m tests.benchmarks.rewrites FOLDER [--output PATH]
"""

from __future__ import annotations

import sys
import traceback
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from launchscope.adopt.patch import Patch, rewrite
from tests.adopt.guessing import guessed_steps
from tests.benchmarks import bench

GOAL = "several hundred public training loops rewritten, or refused with a reason, without a crash"
_LINES_OF_A_FIX = 4


def outcome(path: Path) -> list[str]:
    """Of each step that is guessed in a file."""
    found = []
    for places in guessed_steps(path, path.read_text()):
        result = rewrite(places, Path.read_bytes)
        if not isinstance(result, Patch):
            found.append(f"refused: {result.reason}")
            continue
        compile(result.after, str(path), "exec")
        kept = "rewritten" if _keeps_the_rest(result) else "crash: a line outside of the step"
        found.append(f"{kept}: {result.covered}")
    return found


def _keeps_the_rest(patch: Patch) -> bool:
    fixed = {line + more for _, line in patch.hunks for more in range(_LINES_OF_A_FIX)}
    lines = patch.before.splitlines()
    first = patch.first_line
    while first > 1 and lines[first - 2].strip()[:1] in (b"", b"#"):  # comments move with the step
        first -= 1
    outside = Counter(
        line
        for number, line in enumerate(lines, 1)
        if not first <= number <= patch.last_line and number not in fixed
    )
    after = patch.after.splitlines()
    # Copies of batches that are pinned no longer wait; that is part of the fix.
    copies = (line.replace(b", non_blocking=True", b"") for line in after if b"non_bl" in line)
    return not +(outside - Counter(after) - Counter(copies))


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for path in sorted(args.folder.rglob("*.py")):
        repository = path.relative_to(args.folder).parts[0].replace("+", "/")
        try:
            found = outcome(path)
        except (SyntaxError, UnicodeDecodeError):
            continue  # the guess needs Python of this version
        except Exception:
            print(path, traceback.format_exc(), file=sys.stderr)
            found = ["crash"]
        counts[repository].update(found)
    total = sum(counts.values(), Counter())
    results: list[dict[str, Any]] = [
        {"repository": name, "steps": sum(own.values()), "outcomes": dict(sorted(own.items()))}
        for name, own in sorted(counts.items())
    ]
    rows = [[name, str(count)] for name, count in total.most_common()]
    bench.table(["outcome", "steps"], [*rows, ["all", str(sum(total.values()))]])
    bench.finish("rewrites", GOAL, results, args.output)
    sys.exit(any(name.startswith("crash") for name in total))


if __name__ == "__main__":
    main()
