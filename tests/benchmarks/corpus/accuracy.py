"""Coverage beside accuracy: how many verdicts decide, and how many of these are right.

    python -m tests.benchmarks.corpus.accuracy RESULTS OUTPUT.json [--crowded CROWDED]

RESULTS and CROWDED are what `campaign` wrote. It also writes OUTPUT.md. An adopt verdict, and an
unsafe one, is right if the capture by hand removes 15 % or more of the iteration; stay_eager if it
removes less; within two points of that either is. Inconclusive decides nothing and is never right.
A truth whose 95 % interval is wider than 20 points, as where a data loader is the limit, judges
nothing: these scripts have a table of their own.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from tests.benchmarks.bench import markdown

THRESHOLD_PCT, NEAR_PCT, UNSURE_PCT = 15.0, 2.0, 20.0
DECIDED = ("adopt", "adopt_after_fixes", "adopt_bucketed", "unsafe", "stay_eager")
HEADER = [
    "script", "kind", "verdict", "right", "eager ms", "captured ms", "removed %", "95 %", "said %",
    "said 95 %", "off by", "replay ms", "said ms", "losses agree",
]  # fmt: skip

Row = Mapping[str, Any]


def read(folder: Path) -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def rows_of(verdicts: Mapping[str, Row], truths: Mapping[str, Row]) -> list[dict[str, Any]]:
    """A row for each script that has a verdict or a truth."""
    rows = []
    for name in sorted({*verdicts, *truths}):
        verdict, truth = verdicts.get(name, {}), truths.get(name, {})
        kept = {key: value for key, value in truth.items() if key not in ("blocks_ms", "at_once")}
        said = {"said": verdict.get("profile"), "at_once": verdict.get("at_once")}
        rows.append({"id": name, **kept, **said, "verdict_s": verdict.get("seconds")})
    return rows


def is_known(row: Row) -> bool:
    """Whether the truth is known well enough to judge by it."""
    low, high = row.get("removed_between_pct") or (None, None)
    return low is None or high is None or high - low <= UNSURE_PCT


def decides(row: Row) -> bool:
    return bool(row["said"]) and row["said"]["verdict"] in DECIDED


def right(row: Row) -> bool | None:
    """Whether the verdict is right; None if it decides nothing or there is no certain truth."""
    removed_pct = row.get("removed_pct")
    if not decides(row) or removed_pct is None or not is_known(row):
        return None
    gain = float(removed_pct) - THRESHOLD_PCT
    return abs(gain) <= NEAR_PCT or (gain > 0) == (row["said"]["verdict"] != "stay_eager")


def off_by(row: Row) -> float | None:
    """Points of the share removed between what was said and the truth."""
    said = (row["said"] or {}).get("removable_pct")
    return None if said is None or row.get("removed_pct") is None else said - row["removed_pct"]


def is_measured(row: Row) -> bool:
    return (row["said"] or {}).get("source") == "measured"


def score(rows: Sequence[Row]) -> dict[str, Any]:
    """The counts: `errors` are those of the share removed, in points."""
    with_verdict = [row for row in rows if row["said"]]
    judged = [answer for row in with_verdict if (answer := right(row)) is not None]
    known = [row for row in rows if is_known(row) and is_measured(row)]
    errors = [abs(error) for row in known if (error := off_by(row)) is not None]
    return {
        "scripts": len(with_verdict),
        "decided": sum(map(decides, with_verdict)),
        "with_truth": len(judged),
        "right": sum(judged),
        "measured": len(errors),
        "mean_error": fmean(errors) if errors else None,
        "largest_error": max(errors, default=None),
        "at_once": sorted({row["at_once"] for row in with_verdict}),
        "wrong": [row["id"] for row in rows if right(row) is False],
        "undecided": [row["id"] for row in with_verdict if not decides(row)],
    }


def sentences(found: Row) -> list[str]:
    def share(part: int, whole: int) -> str:
        return f"{part} of {whole}" + (f" ({100 * part / whole:.0f} %)" if whole else "")

    lines = [
        f"Jobs at a time: {' or '.join(map(str, found['at_once'])) or 'none'}.",
        f"Decided: {share(found['decided'], found['scripts'])}. "
        f"Right, of those decided with a truth: {share(found['right'], found['with_truth'])}.",
    ]
    for kind in ("wrong", "undecided"):
        lines += [f"{kind.capitalize()}: {', '.join(found[kind])}."] if found[kind] else []
    if found["measured"]:
        lines.append(
            f"Error of the share removed where the iteration was measured: {found['measured']} "
            f"scripts, mean {found['mean_error']:.1f} points, largest "
            f"{found['largest_error']:.1f} points."
        )
    return lines


def cells(row: Row) -> list[str]:
    said, answer, error = row["said"] or {}, right(row), off_by(row)

    def figure(value: float | None, digits: int) -> str:
        return "not measured" if value is None else f"{value:.{digits}f}"

    def between(pair: Sequence[float | None] | None) -> str:
        low, high = pair or (None, None)
        return "" if low is None or high is None else f"{low:.0f} to {high:.0f}"

    def yes(answer: bool | None) -> str:
        return "" if answer is None else "yes" if answer else "**no**"

    return [
        row["id"],
        row.get("kind", ""),
        said.get("verdict") or "none",
        yes(answer),
        figure(row.get("eager_ms"), 2),
        figure(row.get("captured_ms"), 2),
        figure(row.get("removed_pct"), 0),
        between(row.get("removed_between_pct")),
        figure(said.get("removable_pct"), 0),
        between(said.get("removable_between_pct")),
        "" if error is None else f"{error:+.1f}",
        figure(row.get("replay_ms"), 3),
        figure(said.get("replay_ms"), 3),
        yes(row["losses"]["agree"] if "losses" in row else None),
    ]


def page(rows: Sequence[Row], crowded: Sequence[Row]) -> str:
    known = [row for row in rows if is_known(row)]
    tables = {
        "The iteration under replay was measured": [row for row in known if is_measured(row)],
        "It was subtracted or predicted": [row for row in known if not is_measured(row)],
        "The truth is not known well enough to judge by it": [
            row for row in rows if not is_known(row)
        ],
        "The same scripts in a crowd": crowded,
    }
    lines = sentences(score(rows))
    for title, part in tables.items():
        if part:
            lines += ["", f"## {title}", ""]
            lines += [*sentences(score(part)), ""] if part is crowded else []
            lines += markdown(HEADER, map(cells, part))
    if failed := [row for row in rows if "error" in row]:
        lines += ["", "## Without a truth", ""]
        lines += [f"- {row['id']}: {row['error'].splitlines()[-1]}" for row in failed]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("output", type=Path, metavar="OUTPUT.json")
    parser.add_argument("--crowded", type=Path, metavar="CROWDED")
    arguments = parser.parse_args()
    truths = read(arguments.results / "truths")
    rows = rows_of(read(arguments.results / "verdicts"), truths)
    crowded: list[dict[str, Any]] = []
    if arguments.crowded:
        verdicts = read(arguments.crowded / "verdicts")
        crowded = rows_of(verdicts, {name: truths.get(name, {}) for name in verdicts})
    content = {"score": score(rows), "rows": rows, "crowded": crowded}
    arguments.output.write_text(json.dumps(content, indent=1) + "\n")
    text = page(rows, crowded)
    arguments.output.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
