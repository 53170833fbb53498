"""Compares what two checkouts of launchscope measure and decide, to the last digit.

    python tests/compare_trees.py BASE CURRENT [--accept KEY ...]

Each tree reads its own committed recordings and traces through `launchscope report -o x.json`, and
both trees read the traces that the base tree's tests build. Metrics with their samples, finding
codes, verdicts and the kernel and op rows have to be equal; sentences are left out. Exits with 1
if there is a difference that no --accept covers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any

Json = dict[str, Any]

# Options that move a verdict without moving a measured figure.
VARIANTS: dict[str, list[str]] = {
    "": [],
    " --threshold 90%": ["--threshold", "90%"],
    " --expected-steps 5": ["--expected-steps", "5"],
}
DATA_SUFFIXES = (".trace.json.gz", ".kineto.json.gz", ".sqlite")
# Where the profiles of the rule tests are, and the functions that make them.
PROFILE_MODULES = ("tests.rules.profiles", "tests.profiles", "tests.rules.findings.profiles")
PROFILE_CASES = ("profile", "predicted", "blocked", "gpu_bound", "rehearsal")
BUILDER_TESTS = ("tests/analysis", "tests/parser", "tests/cli/test_report_traces.py")
COLLECTOR = '''
"""Copies every trace that a test lets launchscope read."""
import functools, hashlib, os, pathlib, shutil
from launchscope.parser import sources

OUT = pathlib.Path(os.environ["LAUNCHSCOPE_TEST_TRACES"])
read_trace = sources.read_trace

@functools.wraps(read_trace)
def copying(path, *args, **kwargs):
    path = pathlib.Path(path)
    if path.is_file() and path.stat().st_size < 5_000_000:
        data = path.read_bytes()
        suffix = ".sqlite" if data.startswith(b"SQLite") else ".json"
        suffix += ".gz" * data.startswith(b"\\x1f\\x8b")
        test = os.environ.get("PYTEST_CURRENT_TEST", "").split("::")[0].split("/")[-1][5:-3]
        name = f"{test}-{hashlib.sha256(data).hexdigest()[:12]}{suffix}"
        shutil.copyfile(path, OUT / name)
    return read_trace(path, *args, **kwargs)

sources.read_trace = copying
import launchscope.parser
launchscope.parser.read_trace = copying
'''


@dataclass(frozen=True)
class Change:
    """A value that differs. `key` is "metrics.step_ms", "findings.LS001" or the like."""

    case: str
    key: str
    base: object
    current: object

    def accepted(self, patterns: Sequence[str]) -> bool:
        """Whether a pattern names the key, its last part, or CASE:KEY."""
        names = (self.key, self.key.split(".", 1)[-1], f"{self.case}:{self.key}")
        return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


# ------------------------------------------------------------------- inside one tree


def committed(tree: Path) -> Iterator[tuple[str, Path]]:
    """The recordings and traces that git has in a tree, by name."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=tree, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.split("\0"):
        path = tree / name
        if path.name == "recording.json":
            yield f"recording {path.parent.name}", path.parent
        elif path.name.endswith(DATA_SUFFIXES):
            yield f"trace {name}", path


def report(path: Path, options: Sequence[str]) -> Json:
    """What `launchscope report` saves of a file, or the code that it exits with."""
    from launchscope.cli import main

    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "profile.json"
        sys.argv = ["launchscope", "report", str(path), "-q", *options, "-o", str(saved)]
        code: object
        try:
            code = main()  # type: ignore[func-returns-value,unused-ignore]
        except SystemExit as end:
            code = end.code
        except Exception as error:
            return {"exit code": type(error).__name__}
        read: Json = json.loads(saved.read_text()) if saved.is_file() else {"exit code": code or 0}
        return read


def rule_profiles() -> Iterator[tuple[str, Json]]:
    """The profiles that the rule tests begin with, with their verdicts."""
    from msgspec import to_builtins

    from launchscope.rules import advise

    for name in PROFILE_MODULES:
        try:
            module = import_module(name)
        except ModuleNotFoundError:
            continue
        for case in PROFILE_CASES:
            advised: Any = advise(getattr(module, case)())
            yield f"profile {case}", json.loads(json.dumps(to_builtins(advised), default=str))


def read_tree(tree: Path, traces: Path, output: Path) -> None:
    """Writes every case of a tree as {name: comparable values}. Runs in the tree's own process."""
    import launchscope

    found = Path(str(launchscope.__file__)).resolve()
    assert found.is_relative_to(tree.resolve()), f"{found} is not of {tree}"
    cases: Json = {}
    for name, path in committed(tree):
        for variant, options in VARIANTS.items():
            cases[name + variant] = comparable(report(path, options))
    for path in sorted(traces.iterdir()):
        cases[f"built {path.name}"] = comparable(report(path, []))
    cases.update((name, comparable(profile)) for name, profile in rule_profiles())
    output.write_text(json.dumps(cases))


# ------------------------------------------- a Profile, in either form, as comparable values


def comparable(profile: Json) -> Json:
    """The values of a Profile's JSON that have to stay as they are, by key."""
    if "metrics" not in profile:
        return profile
    facts = profile.get("facts") or {}
    replay = profile.get("replay") or {}
    step = profile.get("step") or {}
    verdict = profile.get("verdict") or {}
    values: Json = {
        "mode": profile.get("mode"),
        "step.boundary": step.get("boundary"),
        "step.period": step.get("period"),
        "step.scope": step.get("scope"),
        "shapes.stable": (profile.get("shapes") or {}).get("stable"),
        "replay.status": replay.get("status"),
        "replay.scope": replay.get("scope"),
        "replay.same_work": (replay.get("work") or {}).get("same"),
        "replay.correct": (replay.get("correct") or {}).get("status"),
        "blockers": sorted(f"{row['op']} x{row['count']}" for row in profile["blockers"]),
        "kernels": [[row["name"], row["count"], row["total_us"]] for row in profile["kernels"]],
        "ops": [[row["name"], row["count"]] for row in profile["ops"]],
        "findings": [[row["code"], row["severity"]] for row in profile["findings"]],
        "because": verdict.get("because"),
    }
    for key in ("recommendation", "basis", "speedup", "iteration_speedup", "removable_pct",
                "confidence"):  # fmt: skip
        values[f"verdict.{key}"] = verdict.get(key)
    for key, metric in profile["metrics"].items():
        for part in ("value", "unit", "exact", "samples"):
            name = f"metrics.{key}" if part == "value" else f"metrics.{key}.{part}"
            values[name] = metric.get(part)
    # Bounds are part of a metric, or facts beside the metrics.
    for name, unit in (("removable", "pct"), ("predicted_replay", "ms")):
        metric = profile["metrics"].get(f"{name}_{unit}") or {}
        for bound in ("low", "high"):
            value = metric.get(bound)
            fact = facts.get(f"{name}_{bound}_{unit}")
            values[f"metrics.{name}_{unit}.{bound}"] = fact if value is None else value
    return values


# --------------------------------------------------------------------------- both trees


def changes(base: Json, current: Json) -> Iterator[Change]:
    """What differs between the cases of two trees."""
    for case in sorted(base.keys() | current.keys()):
        if case not in base or case not in current:
            yield Change(case, "case", case in base, case in current)
            continue
        before, after = dict(base[case]), dict(current[case])
        codes = [dict(side.pop("findings", ())) for side in (before, after)]
        because = [side.pop("because", None) or [] for side in (before, after)]
        yield from _code_changes(case, codes[0], codes[1], *because)
        for key in sorted(before.keys() | after.keys()):
            if before.get(key) != after.get(key):
                yield Change(case, key, before.get(key, "absent"), after.get(key, "absent"))


def _code_changes(
    case: str, base: Json, current: Json, because: list[str], now_because: list[str]
) -> Iterator[Change]:
    for code in sorted(base.keys() | current.keys()):
        if base.get(code) != current.get(code):
            yield Change(case, f"findings.{code}", base.get(code), current.get(code))
    for code in sorted(set(because) ^ set(now_because)):
        yield Change(case, f"because.{code}", code in because, code in now_because)
    for key, before, after in (
        ("findings.order", list(base), list(current)),
        ("because.order", because, now_because),
    ):
        common = set(before) & set(after)
        first, second = ([code for code in side if code in common] for side in (before, after))
        if first != second:
            yield Change(case, key, " ".join(first), " ".join(second))


def _environment(tree: Path) -> dict[str, str]:
    paths = os.pathsep.join(filter(None, [str(tree), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}


def built_traces(base: Path, python: str) -> Path:
    """Traces that the tests of the base tree build: kept in a folder per state of its tests."""
    state = hashlib.sha256(COLLECTOR.encode())
    for path in sorted((base / "tests").rglob("*.py")):
        state.update(path.read_bytes())
    folder = Path(tempfile.gettempdir()) / f"launchscope-built-traces-{state.hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "launchscope_collector.py").write_text(COLLECTOR)
        traces = Path(scratch) / "traces"
        traces.mkdir()
        environment = _environment(base)
        environment["PYTHONPATH"] += os.pathsep + scratch
        environment["LAUNCHSCOPE_TEST_TRACES"] = str(traces)
        tests = [name for name in BUILDER_TESTS if (base / name).exists()]
        subprocess.run(
            [python, "-m", "pytest", "-q", "-p", "launchscope_collector", "-p", "no:cacheprovider",
             "--ignore-glob=*fuzz*", "-m", "not gpu", *tests],
            cwd=base, env=environment, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        partial = folder.with_suffix(f".{os.getpid()}")
        partial.mkdir()
        for path in traces.iterdir():
            (partial / path.name).write_bytes(path.read_bytes())
        partial.rename(folder)
    return folder


def cases_of(tree: Path, traces: Path, python: str) -> Json:
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "cases.json"
        subprocess.run(
            [python, __file__, "--read", str(tree), str(traces), str(output)],
            cwd=scratch, env=_environment(tree), check=True, stdout=subprocess.DEVNULL,
            stderr=None if os.environ.get("LAUNCHSCOPE_TEST_VERBOSE") else subprocess.DEVNULL,
        )  # fmt: skip
        cases: Json = json.loads(output.read_text())
        return cases


def main() -> int:
    if sys.argv[1:2] == ["--read"]:
        tree, traces, output = map(Path, sys.argv[2:5])
        read_tree(tree, traces, output)
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("base", type=Path)
    parser.add_argument("current", type=Path)
    parser.add_argument("--python", default=sys.executable, help="interpreter that runs both trees")
    parser.add_argument(
        "--accept",
        action="append",
        default=[],
        metavar="KEY",
        help="an intended difference: LS039, metrics.step_ms, or CASE:KEY; * is allowed",
    )
    given = parser.parse_args()
    base, current = given.base.resolve(), given.current.resolve()
    traces = built_traces(base, given.python)
    with ThreadPoolExecutor(2) as pool:
        before, after = pool.map(lambda tree: cases_of(tree, traces, given.python), (base, current))
    found = list(changes(before, after))
    open_changes = [change for change in found if not change.accepted(given.accept)]
    for change in open_changes:
        print(f"{change.case}\n    {change.key}: {change.base!r} -> {change.current!r}")
    print(
        f"{len(before)} cases, {sum(map(len, before.values()))} values: "
        f"{len(open_changes)} differences, {len(found) - len(open_changes)} accepted ones"
    )
    return 1 if open_changes else 0


if __name__ == "__main__":
    sys.exit(main())
