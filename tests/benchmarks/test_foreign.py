from __future__ import annotations

import hashlib
import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pytest

from launchscope.model import Recommendation
from tests.benchmarks.foreign import obtain, oracle
from tests.benchmarks.foreign.__main__ import doubt, expected, step_right

HERE = Path(obtain.__file__).parent


def stored(name: str) -> Any:
    return json.loads((HERE / name).read_text())


def test_every_trace_of_the_sample_is_judged_and_counted() -> None:
    traces = stored("sample.json")["traces"]
    files = [trace["file"] for trace in traces]
    assert len(set(files)) == len({trace["sha256"] for trace in traces}) == len(files) >= 60
    assert max(Counter(trace["family"] for trace in traces).values()) <= 3
    assert [each["file"] for each in stored("judged.json")] == files
    assert list(stored("facts.json")) == files


def test_a_judgement_names_verdicts_that_exist() -> None:
    for judged in stored("judged.json"):
        assert set(judged["may"]) <= {*get_args(Recommendation), "refused"}, judged["file"]
        for limits in filter(None, (judged["removable"], judged["step_ms"])):
            assert 0 <= limits[0] < limits[1]
        assert judged["because"]


def test_a_verdict_is_doubted_if_it_or_its_share_is_not_the_judged_one() -> None:
    judged = {"may": ["stay_eager", "inconclusive"], "removable": [0, 0.1], "step_ms": [1, 2]}
    row: dict[str, Any] = {"verdict": "stay_eager", "removable_pct": 5.0}
    assert doubt(row, judged) is None
    assert doubt(row | {"verdict": "adopt"}, judged)
    assert doubt(row | {"removable_pct": 50.0}, judged)
    assert doubt(row | {"verdict": "inconclusive", "removable_pct": 50.0}, judged) is None


@pytest.mark.parametrize(
    ("boundary", "length", "right"),
    [("marker", 1.5, True), ("marker", 5.0, False), ("none", 1.5, False)],
)
def test_a_step_is_right_if_it_is_as_long_as_the_judged_one(
    boundary: str, length: float, right: bool
) -> None:
    profile = {
        "verdict": {"recommendation": "adopt"},
        "step": {"boundary": boundary},
        "metrics": {"iteration_ms": {"value": length}, "step_ms": {"value": None}},
    }
    assert step_right(profile, {"step_ms": [1, 2]}) is right


def event(category: str, name: str, begin: float, dur: float, **args: object) -> dict[str, object]:
    """A complete event of Kineto."""
    return {
        "ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": begin, "dur": dur,
        "args": args,
    }  # fmt: skip


def test_the_oracle_counts_launches_graphs_and_waits() -> None:
    events = [
        event("cuda_runtime", "cudaLaunchKernel", 0, 2, correlation=1),
        event("kernel", "k", 5, 10, correlation=1, device=0, stream=7),
        event("cuda_runtime", "cudaGraphLaunch", 20, 2, correlation=2),
        event("kernel", "k", 30, 10, correlation=2, device=0, stream=7),
        event("kernel", "k", 40, 10, correlation=2, device=0, stream=7),
        event("cuda_runtime", "cudaMemcpyAsync", 52, 2, correlation=3),
        event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 55, 1, correlation=3, device=0),
        event("cuda_runtime", "cudaStreamSynchronize", 56, 5),
        event("kernel", "k", 70, 10, correlation=99, device=0, stream=7),
    ]
    facts = oracle.count(oracle.read_kineto(json.dumps({"traceEvents": events}).encode()))
    assert facts["orphans"] == 1
    assert facts["devices"]["0"]["busy"] == 41
    assert facts["devices"]["0"]["span"] == 75
    assert expected(facts) == {
        "launches": 1, "kernels": 3, "memcpys": 1, "memsets": 0, "graph_launches": 1, "syncs": 1,
        "busy_ms": 0.041,
    }  # fmt: skip


@pytest.mark.child
def test_a_file_is_taken_from_its_commit_and_refused_if_it_is_another_one(tmp_path: Path) -> None:
    repository = tmp_path / "mirrors" / "owner+name" / "repo"
    repository.mkdir(parents=True)
    (repository / "trace.json").write_text("{}")
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    for command in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "a")):
        subprocess.run(["git", "-C", repository, *command], check=True)
    commit = obtain.git(repository, "rev-parse", "HEAD").decode().strip()
    (repository / "trace.json").unlink()
    digest = hashlib.sha256(b"{}").hexdigest()
    trace = obtain.Trace("owner+name/trace.json", "owner/name", commit, "trace.json", digest)
    folder, mirrors = tmp_path / "traces", tmp_path / "mirrors"
    assert "sha256" in (obtain.obtain(trace._replace(sha256="0"), folder, mirrors) or "")
    assert obtain.obtain(trace._replace(path="absent.json"), folder, mirrors)
    assert obtain.obtain(trace, folder, mirrors) is None
    assert (folder / trace.file).read_text() == "{}"
