"""Runs `launchscope report` over the sample and compares it with what was judged and counted.

`python -m tests.benchmarks.foreign FOLDER --output FILE.json` writes FILE.json and FILE.md.
FOLDER is what `obtain` filled. A verdict is believable if it is one of the judged ones and the
share that it says a graph removes lies in the judged range.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SLACK_PCT = 2.0  # what a removable share may lie outside of the judged range
NO_CLAIM = ("inconclusive", "refused")


def report(trace: Path, *options: str) -> tuple[dict[str, Any] | None, str, float]:
    """The Profile that `launchscope report` writes, or None and its complaint; seconds it took."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "profile.json"
        command = [sys.executable, "-m", "launchscope", "report", str(trace), "-q", "-f", "json"]
        began = time.perf_counter()
        child = subprocess.run([*command, *options, "-o", str(output)], capture_output=True)
        seconds = time.perf_counter() - began
        if output.exists():
            return json.loads(output.read_text()), "", seconds
    said = child.stderr.decode(errors="replace").strip().replace(str(trace), trace.name)
    return None, said or f"exit status {child.returncode}", seconds


def step_found(profile: dict[str, Any]) -> str:
    step, samples = profile["step"], profile["metrics"]["step_ms"]["samples"]
    names = ", ".join(step["names"][:2])
    return " ".join(filter(None, (step["boundary"], names, f"x{len(samples)}" if samples else "")))


def counts(profile: dict[str, Any]) -> dict[str, float | None]:
    """The totals of a Profile read with `--step-from none`."""
    value = {name: metric["value"] for name, metric in profile["metrics"].items()}
    return {
        "launches": value["launches_per_step"],
        "kernels": value["kernels_per_step"],
        "memcpys": value["memcpys_per_step"],
        "memsets": value["memsets_per_step"],
        "graph_launches": value["graph_launches_per_step"],
        "syncs": value["syncs_per_step"],
        "busy_ms": value["gpu_busy_ms"],
    }


def expected(facts: dict[str, Any]) -> dict[str, float | None]:
    """The same totals by the oracle: activities that a recorded call launched."""
    device = max(facts["devices"].values(), key=lambda each: each["busy"])
    return {
        "launches": facts["eager_launches"],
        "kernels": facts["called"].get("kernel", 0),
        "memcpys": facts["eager"].get("memcpy", 0),
        "memsets": facts["eager"].get("memset", 0),
        "graph_launches": facts["graph_launches"],
        "syncs": facts["host_waits"],
        "busy_ms": device["busy"] / 1e3,
    }


def differing(found: dict[str, float | None], want: dict[str, float | None]) -> dict[str, Any]:
    def same(one: float | None, other: float | None) -> bool:
        if isinstance(one, float) and isinstance(other, float):
            return abs(one - other) <= 1e-6 * abs(other)
        return one == other

    return {name: [found[name], want[name]] for name in want if not same(found[name], want[name])}


def doubt(row: dict[str, Any], judged: dict[str, Any]) -> str | None:
    """Why the verdict is not believable, or None."""
    if row["verdict"] not in judged["may"]:
        return f"{row['verdict']} is not one of {', '.join(judged['may'])}"
    share, limits = row["removable_pct"], judged["removable"]
    if row["verdict"] in NO_CLAIM or share is None or limits is None:
        return None
    low, high = (100 * limit for limit in limits)
    if low - SLACK_PCT <= share <= high + SLACK_PCT:
        return None
    return f"removes {share:.0f} %, judged {low:.0f} to {high:.0f} %"


def step_right(profile: dict[str, Any] | None, judged: dict[str, Any]) -> bool:
    """Whether the step is as long as the judged one; without one, whether none was found. A report
    without a verdict claims no step."""
    if profile is None or profile["verdict"]["recommendation"] in NO_CLAIM:
        return True
    if profile["step"]["boundary"] in (None, "none"):
        return judged["step_ms"] is None
    metrics, limits = profile["metrics"], judged["step_ms"]
    length = metrics["iteration_ms"]["value"] or metrics["step_ms"]["value"]
    if limits is None or length is None:
        return limits is not None
    return bool(limits[0] <= length <= limits[1])


def row_of(trace: dict[str, Any], path: Path, judged: dict[str, Any], facts: Any) -> dict[str, Any]:
    profile, complaint, seconds = report(path)
    row: dict[str, Any] = {
        "trace": trace["file"],
        "gpu": trace["gpu"],
        "step_judged": judged["step"],
        "step": step_found(profile) if profile else None,
        "step_right": step_right(profile, judged),
        "verdict": profile["verdict"]["recommendation"] if profile else "refused",
        "removable_pct": profile["verdict"]["removable_pct"] if profile else None,
        "said": profile["verdict"]["headline"] if profile else complaint,
        "seconds": round(seconds, 2),
    }
    row["doubt"] = doubt(row, judged)
    row["believable"] = row["doubt"] is None
    row["because"] = judged["because"]
    totals, _, _ = report(path, "--step-from", "none")
    row["differs"] = differing(counts(totals), expected(facts)) if totals else None
    return row


def markdown(rows: list[dict[str, Any]]) -> str:
    head = ["trace", "GPU", "step found", "verdict", "removable", "believable", "because", "counts"]
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    for row in rows:
        share, differs = row["removable_pct"], row["differs"]
        told = f"{share:.0f} %" if share is not None and row["verdict"] not in NO_CLAIM else ""
        why = row["because"] if row["believable"] else f"{row['doubt']}: {row['because']}"
        equal = "not counted" if differs is None else "equal" if not differs else ", ".join(differs)
        step = row["step"] or "none"
        if not row["step_right"]:
            step += f" (not {row['step_judged']})"
        said = "yes" if row["believable"] else "**no**"
        cells = (row["trace"], row["gpu"] or "", step, row["verdict"], told, said, why, equal)
        lines.append(" | ".join(cell.replace("|", "\\|") for cell in cells))
    believable = sum(row["believable"] for row in rows)
    steps = sum(row["step_right"] for row in rows)
    equal = sum(row["differs"] == {} for row in rows)
    summary = (
        f"{believable} of {len(rows)} verdicts are believable, {steps} steps are right, "
        f"and the counts of {equal} traces are equal."
    )
    return "\n".join([summary, "", *(f"| {line} |" for line in lines)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    traces = json.loads((HERE / "sample.json").read_text())["traces"]
    judged = {each["file"]: each for each in json.loads((HERE / "judged.json").read_text())}
    facts = json.loads((HERE / "facts.json").read_text())
    rows, missing = [], []
    for trace in traces:
        path = arguments.folder / trace["file"]
        if not path.exists():
            missing.append(trace["file"])
            continue
        rows.append(row_of(trace, path, judged[trace["file"]], facts[trace["file"]]))
    result = {
        "traces": len(traces),
        "missing": missing,
        "believable": sum(row["believable"] for row in rows),
        "steps_right": sum(row["step_right"] for row in rows),
        "counts_equal": sum(row["differs"] == {} for row in rows),
        "rows": rows,
    }
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    arguments.output.with_suffix(".md").write_text(markdown(rows))
    print(markdown(rows).splitlines()[0])


if __name__ == "__main__":
    main()
