"""Makes the result table: `python -m tests.benchmarks.corpus.table RESULTS OUTPUT.json`.

It also writes OUTPUT.md and prints the paragraph for docs/how-it-works.md. Scripts of the sample
that have no result are listed as not run.

`checked.json` beside this file says what is true of some scripts, found by reading them and the
libraries that they call: `right` are the outcomes that agree with it, each a replay and a verdict,
and `because` is the reason. Every script without a measurement is in it, and every one that was
called unsafe. Where a script was captured by hand (`results/by_hand.json`), that is the truth.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.benchmarks.corpus.__main__ import Script, sample
from tests.benchmarks.corpus.accuracy import DECIDED, figure, right, share

HEADER = [
    "script", "kind", "style", "step", "replay", "verdict", "iteration ms", "source", "removed %",
    "by hand %", "reason", "findings", "agrees", "seconds",
]  # fmt: skip
BY_HAND = Path(__file__).parents[1] / "results" / "by_hand.json"
MEASURED = ("measured", "what_if")


class Checked(NamedTuple):
    right: list[str]
    because: str

    def agrees(self, result: dict[str, Any]) -> bool:
        return outcome(result) in self.right


def checked() -> dict[str, Checked]:
    """What is true of the scripts that were checked by hand, by their id."""
    rows = json.loads((Path(__file__).parent / "checked.json").read_text())
    return {row["id"]: Checked(row["right"], row["because"]) for row in rows}


def by_hand() -> dict[str, float]:
    """The share that a capture by hand removes, in percent, by the script's id."""
    rows = json.loads(BY_HAND.read_text())["rows"]
    return {row["id"]: row["removed_pct"] for row in rows if "removed_pct" in row}


def answer(
    result: dict[str, Any], checked: Checked | None, removed_pct: float | None
) -> bool | None:
    """Whether a result is right; None if nobody knows, or its verdict decides nothing."""
    if checked:
        return checked.agrees(result)
    return right({"said": result["profile"], "removed_pct": removed_pct})


def outcome(result: dict[str, Any]) -> str:
    profile = result["profile"]
    return f"{profile['replay']}, {profile['verdict']}" if profile else "no profile"


def wants_check(result: dict[str, Any]) -> bool:
    """Whether a result needs a reason that was checked by hand."""
    profile = result["profile"]
    return not profile or profile["replay"] not in MEASURED or profile["verdict"] == "unsafe"


def results(folder: Path) -> dict[str, dict[str, Any]]:
    """The results under `launchscope profile`, by the script's id."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return {result["id"]: result for result in found if not result["plain"]}


def cells(
    script: Script,
    result: dict[str, Any] | None,
    truth: Checked | None = None,
    removed_pct: float | None = None,
) -> list[str]:
    named = [script.id, script.kind, script.style]
    if result is None:
        return [*named, *["not run"] * (len(HEADER) - len(named))]
    profile, seconds = result["profile"], f"{result['seconds']:.0f}"
    is_right = answer(result, truth, removed_pct)
    agrees = "not checked" if is_right is None else "yes" if is_right else "no"
    if profile is None:
        said = " ".join(result.get("said", [])[-1:])
        return [*named, "none", "no profile", "none", *[""] * 4, said, "", agrees, seconds]
    findings = Counter(profile["findings"]).items()
    return [
        *named,
        profile["step"]["boundary"] if profile["step"] else "none",
        profile["replay"],
        profile["verdict"] or "none",
        figure(profile["iteration_ms"], 2),
        profile.get("source") or "",
        figure(profile["removable_pct"], 0),
        "" if removed_pct is None else figure(removed_pct, 0),
        profile["reason"] or "",
        ", ".join(code if times == 1 else f"{code} ({times})" for code, times in findings),
        agrees,
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
    truths, captured = checked(), by_hand()
    answers = [
        answer(result, truths.get(result["id"]), captured.get(result["id"])) for result in ran
    ]
    on_gpu = [
        result["profile"]["verdict"]
        for result in ran
        if result["gpu"] and result["profile"] and result["profile"]["mode"] == "gpu"
    ]
    return {
        "scripts": len(scripts),
        "ran": len(ran),
        "profiles": len(profiles),
        "replays": {how: replays.count(how) for how in (*MEASURED, "predicted", "none")},
        "repeating": len(repeating),
        "repeating_measured": sum(how in MEASURED for how in repeating),
        "unsafe": sum(profile["verdict"] == "unsafe" for profile in profiles),
        "on_gpu": len(on_gpu),
        "decided": sum(verdict in DECIDED for verdict in on_gpu),
        "at_once": sorted({result["at_once"] for result in ran if "at_once" in result}),
        "checked": sum(each is not None for each in answers),
        "agree": sum(each is True for each in answers),
        "unchecked": [
            result["id"] for result in ran if wants_check(result) and result["id"] not in truths
        ],
    }


def sentence(count: dict[str, Any]) -> str:
    return (
        f"{count['ran']} of {count['scripts']} scripts ran, "
        f"{count['profiles']} of them with a Profile. "
        f"Of {count['repeating']} that use the GPU and repeat their shapes, "
        f"{count['repeating_measured']} have a measured or what-if replay. "
        f"Decided: {share(count['decided'], count['on_gpu'])} of those on the GPU. "
        f"Right, of the results that were checked or captured by hand: "
        f"{share(count['agree'], count['checked'])}. "
        f"Scripts at a time: {' or '.join(map(str, count['at_once'])) or 'not recorded'}."
    )


def markdown(scripts: Sequence[Script], found: dict[str, dict[str, Any]]) -> str:
    truths, captured = checked(), by_hand()
    rows = [HEADER, ["---"] * len(HEADER)]
    rows += [
        cells(script, found.get(script.id), truths.get(script.id), captured.get(script.id))
        for script in scripts
    ]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    reasons = [
        f"- {script.id}: {truths[script.id].because}" for script in scripts if script.id in truths
    ]
    said = sentence(counts(scripts, found))
    return "\n".join([said, "", *lines, "", "## Checked by hand", "", *reasons]) + "\n"


def paragraph(table: dict[str, Any]) -> str:
    """The results in docs/how-it-works.md."""
    replays, devices = table["replays"], {row["profile"]["device"] for row in table["rows"]
        if row["profile"] and row["profile"]["device"]}  # fmt: skip
    return textwrap.fill(
        f"On {' and '.join(sorted(devices))}, {sentence(table)} Of all Profiles, "
        f"{replays['measured']} have a measured replay, {replays['what_if']} a what-if, "
        f"{replays['predicted']} a prediction and {replays['none']} none, most of these because "
        f"the script uses no GPU; {table['unsafe']} say `unsafe`.",
        width=105, break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("output", type=Path, metavar="OUTPUT.json")
    arguments = parser.parse_args()
    scripts, found = sample(), results(arguments.results)
    table = {**counts(scripts, found), "rows": [found[s.id] for s in scripts if s.id in found]}
    arguments.output.write_text(json.dumps(table, indent=1) + "\n")
    arguments.output.with_suffix(".md").write_text(markdown(scripts, found))
    print(paragraph(table))
    if table["unchecked"]:
        print(f"not in checked.json: {', '.join(table['unchecked'])}")


if __name__ == "__main__":
    main()
