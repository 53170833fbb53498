"""Makes the result table: `python -m tests.benchmarks.corpus.table RESULTS OUTPUT.json`.

It also writes OUTPUT.md. Scripts of the sample that have no result are listed as not run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.corpus.__main__ import Script, sample

HEADER = [
    "script", "kind", "style", "step", "replay", "verdict", "iteration ms", "removed %", "reason",
    "findings", "seconds",
]  # fmt: skip
MEASURED = ("measured", "what_if")


def results(folder: Path) -> dict[str, dict[str, Any]]:
    """The results under `launchscope profile`, by the script's id."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return {result["id"]: result for result in found if not result["plain"]}


def figure(value: float | None, digits: int) -> str:
    return "not measured" if value is None else f"{value:.{digits}f}"


def cells(script: Script, result: dict[str, Any] | None) -> list[str]:
    named = [script.id, script.kind, script.style]
    if result is None:
        return [*named, *["not run"] * (len(HEADER) - len(named))]
    profile, seconds = result["profile"], f"{result['seconds']:.0f}"
    if profile is None:
        said = " ".join(result.get("said", [])[-1:])
        return [*named, "none", "no profile", "none", "", "", said, "", seconds]
    return [
        *named,
        profile["step"]["boundary"] if profile["step"] else "none",
        profile["replay"],
        profile["verdict"] or "none",
        figure(profile["iteration_ms"], 2),
        figure(profile["removable_pct"], 0),
        profile["reason"] or "",
        ", ".join(profile["findings"]),
        seconds,
    ]


def counts(scripts: Sequence[Script], found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """How many scripts have a result, a Profile, and each kind of replay. `repeating` are those
    that use the GPU and whose shapes were seen to repeat."""
    ran = [found[script.id] for script in scripts if script.id in found]
    profiles = [result["profile"] for result in ran if result["profile"]]
    replays = [profile["replay"] for profile in profiles]
    repeating = [
        profile["replay"]
        for result in ran
        if (profile := result["profile"]) and profile["shapes_stable"]
        if result["gpu"] and profile["mode"] == "gpu"
    ]
    return {
        "scripts": len(scripts),
        "ran": len(ran),
        "profiles": len(profiles),
        "replays": {how: replays.count(how) for how in (*MEASURED, "predicted", "none")},
        "repeating": len(repeating),
        "repeating_measured": sum(how in MEASURED for how in repeating),
    }


def sentence(count: dict[str, Any]) -> str:
    return (
        f"{count['ran']} of {count['scripts']} scripts ran, "
        f"{count['profiles']} of them with a Profile. "
        f"Of {count['repeating']} that use the GPU and repeat their shapes, "
        f"{count['repeating_measured']} have a measured or what-if replay."
    )


def markdown(scripts: Sequence[Script], found: dict[str, dict[str, Any]]) -> str:
    rows = [HEADER, ["---"] * len(HEADER)]
    rows += [cells(script, found.get(script.id)) for script in scripts]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([sentence(counts(scripts, found)), "", *lines]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("output", type=Path, metavar="OUTPUT.json")
    arguments = parser.parse_args()
    scripts, found = sample(), results(arguments.results)
    table = {**counts(scripts, found), "rows": [found[s.id] for s in scripts if s.id in found]}
    arguments.output.write_text(json.dumps(table, indent=1) + "\n")
    arguments.output.with_suffix(".md").write_text(markdown(scripts, found))
    print(sentence(counts(scripts, found)))


if __name__ == "__main__":
    main()
