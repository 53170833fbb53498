"""Profiles every sample workload and writes the table in tests/benchmarks/results/samples.md.

    python -m tests.benchmarks.samples --record DIR    on a GPU: one recording per sample
    python -m tests.benchmarks.samples --from DIR      anywhere: the table of those recordings

Recordings hold gzipped traces; the table is Markdown, and with --output also JSON.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from launchscope.analysis import build_profile
from launchscope.model import Profile, Schedule, Target
from launchscope.parser import read_recording
from launchscope.rules import advise
from launchscope.runner.parent.session import RunOptions, record

SAMPLES = Path(__file__).parents[2] / "sample_workloads"
_COLUMNS = (
    ("step_ms", "eager step", "{:.2f} ms"),
    ("replay_ms", "replay", "{:.3f} ms"),
    ("speedup", "step", "{:.2f}x"),
    ("iteration_ms", "iteration", "{:.2f} ms"),
    ("replayed_iteration_ms", "with the graph", "{:.2f} ms"),
    ("removable_pct", "removed", "{:.0f} %"),
    ("launches_per_step", "launches", "{:.0f}"),
    ("launch_share_pct", "launch share", "{:.0f} %"),
    ("launch_overhead_pct", "exposed", "{:.0f} %"),
)


def record_all(directory: Path, names: list[str], timeout_s: float) -> None:
    """One recording per sample into `directory`/NAME; what was there is replaced."""
    for name in names:
        target = directory / name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        outcome = record(
            Target("script", f"sample_workloads/{name}.py"),
            Schedule(),
            RunOptions(timeout_s=timeout_s),
            target,
            lambda event: None,
        )
        for run in target.glob("run-*"):
            shutil.rmtree(run)
        for trace in target.glob("*.kineto.json"):
            with trace.open("rb") as plain, gzip.open(f"{trace}.gz", "wb", 9) as packed:
                shutil.copyfileobj(plain, packed)
            trace.unlink()
        print(f"{name}: {outcome.problem or 'recorded'}", file=sys.stderr, flush=True)


def profile_of(recording: Path) -> Profile:
    return advise(build_profile(read_recording(recording)))


def row_of(name: str, profile: Profile) -> dict[str, Any]:
    """What the table and its JSON hold of one sample."""
    verdict = profile.verdict
    assert verdict is not None
    return {
        "sample": name,
        "recommendation": verdict.recommendation,
        "basis": verdict.basis,
        "replay": profile.replay.status,
        "recorded_at": profile.environment.recorded_at,
        **{key: profile.value(key) for key, _, _ in _COLUMNS},
        "graph_memory_mib": profile.value("graph_memory_mib"),
        "predicted_replay_ms": profile.value("predicted_replay_ms"),
        "device_ops_per_step": profile.value("device_ops_per_step"),
    }


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table in tests/benchmarks/results/samples.md."""
    head = ["sample", "verdict", "basis", *(title for _, title, _ in _COLUMNS)]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for row in rows:
        cells = [row["sample"], row["recommendation"].replace("_", " "), row["basis"]]
        for key, _, form in _COLUMNS:
            value = row[key]
            cells.append("not measured" if value is None else form.format(value))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", type=Path, metavar="DIR")
    parser.add_argument("--from", type=Path, metavar="DIR", dest="source")
    parser.add_argument("--only", nargs="*", help="names of samples")
    parser.add_argument("--timeout", type=float, default=120.0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    names = options.only or sorted(path.stem for path in SAMPLES.glob("*.py"))
    if options.record is not None:
        record_all(options.record, names, options.timeout)
    source = options.source or options.record
    if source is None:
        parser.error("one of --record and --from is needed")
    found = {name: profile_of(source / name) for name in names if (source / name).is_dir()}
    rows = [row_of(name, profile) for name, profile in found.items()]
    print(markdown(rows))
    if options.output is not None:
        first = next(iter(found.values())).environment
        kept = {
            "environment": {k: getattr(first, k) for k in ("device", "torch", "cuda", "driver")}
        }
        options.output.write_text(json.dumps({**kept, "samples": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
