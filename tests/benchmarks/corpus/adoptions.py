r"""Runs `launchscope adopt` on the sample workloads and on the scripts of the corpus.

    python -m tests.benchmarks.corpus.adoptions FOLDER RESULTS [--table OUT.json]

FOLDER is what `obtain` wrote. The sample is fixed by the committed table of the corpus: the scripts
that use the GPU, whose loop is in their own file (style "plain"), and whose verdict is not to stay
eager; and every sample workload. One file per script, RESULTS/ID.json; a script that has one is not
run again. `--table` writes the table as JSON and as Markdown; rows of an existing table stay for
scripts that RESULTS does not have.

    python -m tests.benchmarks.corpus.adoptions FOLDER RESULTS --only ID ID ... --at-once 16 \
        --gpus 2 --limit 240 --budget 120 --table OUT.json

runs some of them again, in this order, on two GPUs; it takes at most 120 + 240 + 60 seconds.

    python -m tests.benchmarks.corpus.adoptions FOLDER RESULTS --list fresh --table OUT.json

runs the scripts of `fresh.json`, which no other result knows: the verdict is that of the run.

The diff itself is not kept: it would hold lines of the public scripts.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.bench import markdown
from tests.benchmarks.corpus.obtain import LISTS
from tests.benchmarks.corpus.scripts import (
    ROOT,
    Job,
    Script,
    add_options,
    chosen,
    launched,
    run_jobs,
    sample,
    workloads,
)

RESULTS = ROOT / "tests" / "benchmarks" / "results"
HEADER = [
    "script", "repository", "verdict", "outcome", "covered", "reason", "where", "steps", "values",
    "equal", "before ms", "after ms", "speed-up", "projected", "seconds",
]  # fmt: skip
_LEFT_OUT = ("diff", "target", "environment", "undo", "schema")


def wanted() -> list[Script]:
    """The scripts of the sample, in its order."""
    rows = json.loads((RESULTS / "corpus.json").read_text())["rows"]
    verdicts = {row["id"]: row["profile"]["verdict"] for row in rows if row["profile"]}
    found = [s for s in sample() if verdicts.get(s.id) not in (None, "stay_eager")]
    return [*workloads(), *(s for s in found if s.gpu and s.style == "plain")]


def run(script: Script, folder: Path, limit_s: float, place: dict[str, str]) -> dict[str, Any]:
    """Adopt one script with these variables, and say how that went."""
    # As a person has it: `adopt` copies the whole repository.
    in_git = bool(script.repository)
    result, adoption = launched("adopt", script, folder, limit_s, place, in_git=in_git)
    result |= {"repository": script.repository, "adoption": None}
    if adoption is not None:
        changed = [line[:1] for line in adoption["diff"] if line[:3] not in ("+++", "---")]
        result["changed_lines"] = changed.count("+") + changed.count("-")
        kept = {name: part for name, part in adoption.items() if name not in _LEFT_OUT}
        result |= {
            "adoption": kept,
            "projected_speedup": kept.get("projected"),
            "verdict": kept.get("recommendation"),
        }
    return result


def cells(result: dict[str, Any]) -> list[str]:
    adoption, seconds = result["adoption"], f"{result['seconds']:.0f}"
    projected = result.get("projected_speedup")
    names = [result["id"], result.get("repository", ""), result.get("verdict") or ""]
    if adoption is None:
        said = " ".join(result.get("said", [])[-1:])
        return [*names, "no result", "", said, *[""] * (len(HEADER) - 7), seconds]
    reason, speedup, where = adoption["reason"], speedup_of(result), adoption.get("where")
    times = [adoption[name] and adoption[name]["value"] for name in ("before", "after")]
    equal = "bit for bit" if adoption["exact"] else "within eager's noise"
    verified = adoption["outcome"] == "verified"
    return [
        *names,
        adoption["outcome"],
        adoption["covered"] or "",
        "" if reason is None else reason["code"],
        f"{where['file']}:{where['line']}" if where else "",
        str(adoption["steps"] or ""),
        str(adoption.get("values") or ""),  # unknown of rows of before all were counted
        equal if verified else "",
        *("" if each is None else f"{each:.2f}" for each in times),
        "" if speedup is None else f"{speedup:.2f}",
        "" if projected is None else f"{projected:.2f}",
        seconds,
    ]


def speedup_of(result: dict[str, Any]) -> float | None:
    adoption = result["adoption"]
    if not adoption or not adoption["before"] or not adoption["after"]:
        return None
    return float(adoption["before"]["value"] / adoption["after"]["value"])


def table(results: Path, output: Path) -> None:
    """Write the table as JSON and Markdown, and print what it comes to."""
    before = json.loads(output.read_text())["rows"] if output.exists() else []
    made = [json.loads(path.read_text()) for path in results.glob("*.json")]
    found = {row["id"]: row for row in [*before, *made]}
    rows = [found[name] for name in sorted(found)]
    wanted = [row for row in rows if row.get("verdict") in ("adopt", "adopt_after_fixes")]
    verified = [row for row in rows if (row["adoption"] or {}).get("outcome") == "verified"]
    of_wanted = [row for row in verified if row in wanted]
    compared = [
        (speedup, projected)
        for row in verified
        if (speedup := speedup_of(row)) and (projected := row.get("projected_speedup"))
    ]
    off = [100 * (found / promised - 1) for found, promised in compared]
    content = {
        "scripts": len(rows),
        "wanted": len(wanted),
        "verified": len(verified),
        "verified_of_wanted": len(of_wanted),
        "off_projection_median_pct": median(off) if off else None,
        "rows": rows,
    }
    output.write_text(json.dumps(content, indent=1) + "\n")
    text = "\n".join(markdown(HEADER, map(cells, rows))) + "\n"
    output.with_suffix(".md").write_text(text)
    print(text)
    off_pct = content["off_projection_median_pct"]
    share = f"{len(of_wanted)} of {len(wanted)} with a verdict for a graph"
    print(f"verified: {len(verified)}, {share}; off the projection, median: {off_pct} %")


def line(result: dict[str, Any]) -> str:
    outcome = (result["adoption"] or {}).get("outcome", "no result")
    return f"{result['id']}: {outcome}, {result['seconds']:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path)
    add_options(parser, limit_s=240.0)
    parser.add_argument("--list", choices=LISTS, default="sample", help="of scripts")
    parser.add_argument("--table", type=Path, metavar="OUT.json")
    arguments = parser.parse_args()
    scripts = wanted() if arguments.list == "sample" else sample(name=arguments.list)

    def job(script: Script) -> Job:
        return Job(script.id, lambda place, limit_s: run(script, arguments.folder, limit_s, place))

    jobs = [job(script) for script in chosen(parser, arguments, scripts)]
    run_jobs(jobs, arguments, line)
    if arguments.table:
        table(arguments.results, arguments.table)


if __name__ == "__main__":
    main()
