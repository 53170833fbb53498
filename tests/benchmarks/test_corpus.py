from __future__ import annotations

import argparse
import gzip
import json
import pickle
import struct
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.benchmarks.corpus import __main__ as corpus
from tests.benchmarks.corpus import adoptions, data, obtain, table
from tests.benchmarks.foreign.obtain import git

RECORDINGS = Path(__file__).parents[2] / "sample_workloads" / "recordings"
SCRIPT = corpus.Script(
    "a-script", "vision", "plain", "owner/name", "inside", ["run.py", "--steps", "3"],
    {"../words.txt": "words"}, [], True, path=[".."],
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "parts", "least"),
    [("sample", ["scripts", "distributed"], 45), ("fresh", ["scripts"], 15)],
)
def test_a_list_names_repositories_and_generators_that_exist(
    name: str, parts: list[str], least: int
) -> None:
    scripts = [script for part in parts for script in corpus.sample(part, name)]
    content = obtain.stored(name)
    identifiers = [script.id for script in scripts]
    assert len(set(identifiers)) == len(identifiers) >= least
    assert {script.repository for script in scripts} == set(content["repositories"])
    for script in scripts:
        assert set(script.data.values()) <= set(data.GENERATORS), script.id
        assert not any(Path(where).is_absolute() for where in (*script.data, *script.path))
    for each in content["repositories"].values():
        assert len(each["commit"]) == 40
        assert each["paths"]


def test_the_sample_has_scripts_of_many_kinds() -> None:
    assert {script.kind for script in corpus.sample()} >= {
        "vision", "language", "diffusion", "reinforcement learning", "graphs", "physics",
        "Gaussian processes", "recommendation", "generation", "GAN", "flows",
    }  # fmt: skip


def test_the_fresh_list_is_drawn_by_its_rule() -> None:
    fresh, known = obtain.stored("fresh"), obtain.stored("sample")
    assert len(fresh["repositories"]) >= 10
    assert not set(fresh["repositories"]) & set(known["repositories"])
    drawn = [script.repository for script in corpus.sample(name="fresh")]
    count = len(fresh["repositories"])
    firsts, seconds = drawn[:count], drawn[count:]
    assert firsts == sorted(fresh["repositories"], key=str.lower)
    assert seconds == sorted(set(seconds), key=str.lower)


@pytest.mark.parametrize("name", obtain.LISTS)
def test_a_script_that_was_left_out_has_a_reason(name: str) -> None:
    excluded = obtain.stored(name)["excluded"]
    assert excluded
    assert all(each["script"] and each["because"] for each in excluded)


def test_made_digits_of_two_tones_are_as_the_script_reads_them(tmp_path: Path) -> None:
    data.binarized_mnist(tmp_path / "digits.npz")
    with np.load(tmp_path / "digits.npz") as content:
        rows = {name: content[name] for name in content.files}
    assert {name: row.shape for name, row in rows.items()} == {
        "train_data": (20_000, 784), "valid_data": (5_000, 784),
    }  # fmt: skip
    assert rows["train_data"].dtype == np.float32
    assert set(np.unique(rows["valid_data"])) == {0, 1}


def test_the_digits_are_in_the_idx_format(tmp_path: Path) -> None:
    data.mnist(tmp_path)
    images = (tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte").read_bytes()
    labels = (tmp_path / "MNIST" / "raw" / "train-labels-idx1-ubyte").read_bytes()
    assert struct.unpack(">HBBIII", images[:16]) == (0, 8, 3, 60_000, 28, 28)
    assert len(images) == 16 + 60_000 * 28 * 28
    assert struct.unpack(">HBBI", labels[:8]) == (0, 8, 1, 60_000)
    assert set(labels[8:]) == set(range(10))


def test_generated_data_is_the_same_every_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        data.words(tmp_path / name / "train.txt")
        data.mutag(tmp_path / name)
    one, two = (sorted((tmp_path / name).rglob("*.txt")) for name in ("one", "two"))
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]


def test_a_citation_graph_has_a_known_class_and_known_neighbors_for_each_node(
    tmp_path: Path,
) -> None:
    data.cora(tmp_path)
    nodes = [line.split("\t") for line in (tmp_path / "cora.content").read_text().splitlines()]
    names = {node[0] for node in nodes}
    assert {len(node) for node in nodes} == {data.FEATURES + 2}
    assert len({node[-1] for node in nodes}) == data.CLASSES
    assert set((tmp_path / "cora.cites").read_text().split()) <= names


def test_planetoid_files_cover_every_node_once(tmp_path: Path) -> None:
    data.planetoid(tmp_path)
    raw = tmp_path / "Cora" / "raw"
    content = {
        name: pickle.loads((raw / f"ind.cora.{name}").read_bytes())
        for name in ("x", "tx", "allx", "y", "ty", "ally", "graph")
    }
    tests = [int(line) for line in (raw / "ind.cora.test.index").read_text().split()]
    assert len(content["allx"]) + len(content["tx"]) == len(content["graph"]) == data.NODES
    assert tests == list(range(len(content["allx"]), data.NODES))
    assert np.array_equal(content["allx"][: len(content["x"])], content["x"])
    assert (content["ty"].sum(axis=1) == 1).all()


def test_each_line_of_a_graph_data_set_is_about_a_node_that_exists(tmp_path: Path) -> None:
    data.proteins(tmp_path)
    raw = tmp_path / "PROTEINS" / "raw"
    graphs = (raw / "PROTEINS_graph_indicator.txt").read_text().split()
    ends = (raw / "PROTEINS_A.txt").read_text().replace(",", " ").split()
    assert max(map(int, ends)) == len(graphs)
    assert min(map(int, ends)) == 1
    labels = (raw / "PROTEINS_graph_labels.txt").read_text().split()
    assert len(labels) == int(graphs[-1]) == 1113


def test_images_are_png_files_with_as_many_rows_as_they_claim(tmp_path: Path) -> None:
    data.bsds300(tmp_path)
    image = (tmp_path / "BSDS300" / "images" / "test" / "0.png").read_bytes()
    assert image[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">IIBB", image[16:26]) == (481, 321, 8, 2)
    size = struct.unpack(">I", image[33:37])[0]
    assert len(zlib.decompress(image[41 : 41 + size])) == 321 * (3 * 481 + 1)


def test_characters_fill_what_the_scripts_read(tmp_path: Path) -> None:
    data.character_tokens(tmp_path)
    meta = pickle.loads((tmp_path / "meta.pkl").read_bytes())
    tokens = np.fromfile(tmp_path / "train.bin", dtype=np.uint16)
    assert tokens.max() == meta["vocab_size"] - 1 == 64
    data.enwik8(tmp_path / "enwik8.gz")
    assert (tmp_path / "enwik8.gz").stat().st_size < 4e6
    with gzip.open(tmp_path / "enwik8.gz") as content:
        assert len(content.read()) == 95_000_000


def repository(folder: Path, source: str) -> None:
    inside = folder / "owner+name" / "inside"
    inside.mkdir(parents=True)
    (inside / "run.py").write_text(source)
    (folder / "owner+name" / "beside.py").write_text("TEXT = 'found'\n")


@pytest.mark.child
def test_a_script_runs_on_a_copy_with_its_data_and_folders(tmp_path: Path) -> None:
    repository(tmp_path, "import beside, sys; open('../words.txt').read(); sys.exit(len(sys.argv))")
    result = corpus.run(SCRIPT, tmp_path, 60, {}, plain=True)
    assert (result["exit"], result["plain"], result["profile"]) == (3, True, None)
    assert not (tmp_path / "owner+name" / "words.txt").exists()


@pytest.mark.child
def test_a_failure_is_told_by_its_last_lines(tmp_path: Path) -> None:
    repository(tmp_path, "raise OSError('no such data')")
    result = corpus.run(SCRIPT, tmp_path, 60, {}, plain=True)
    assert result["exit"] == 1
    assert result["said"][-1] == "OSError: no such data"


@pytest.mark.child
def test_a_script_that_runs_on_is_ended_with_its_children(tmp_path: Path) -> None:
    child = "import os, time; open('child', 'w').write(str(os.getpid())); time.sleep(600)"
    repository(
        tmp_path, f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    )
    inside = tmp_path / "owner+name" / "inside"
    log = tmp_path / "log"
    command = [sys.executable, "run.py"]
    assert corpus.finish(command, inside, corpus.environment(inside, SCRIPT), 5, log) is None
    process = Path("/proc", (inside / "child").read_text(), "cmdline")
    while process.exists() and b"sleep" in process.read_bytes():
        time.sleep(0.01)  # the kernel ends a killed process when it comes to that


def profiled(script: str, profile: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "id": script, "kind": "vision", "style": "plain", "gpu": True, "plain": False, "exit": 0,
        "seconds": 30.0, "profile": profile, "said": ["nothing to report on"],
    }  # fmt: skip


@pytest.mark.child
@pytest.mark.parametrize("recording", ["lstm", "amp_gradscaler", "generate"])
def test_the_values_of_a_profile_are_read(recording: str, tmp_path: Path) -> None:
    output = tmp_path / "profile.json"
    command = [sys.executable, "-m", "launchscope", "report", "-q", "-f", "json", "-o", str(output)]
    subprocess.run([*command, str(RECORDINGS / recording)], check=True, capture_output=True)
    profile = json.loads(output.read_text())
    found = corpus.summary(profile)
    assert found["verdict"] == profile["verdict"]["recommendation"]
    assert found["replay"] in ("measured", "what_if", "predicted", "none")
    assert found["replay"] == found["replay_status"] or found["replay_status"] not in table.MEASURED
    assert found["device"] == "NVIDIA H200"
    assert found["iteration_ms"] == profile["metrics"]["iteration_ms"]["value"]
    assert found["source"] == profile["metrics"]["replayed_iteration_ms"]["source"]
    low, high = found["removable_between_pct"]
    assert low is None or low <= found["removable_pct"] <= high
    row = table.cells(SCRIPT, profiled(SCRIPT.id, found))
    assert len(row) == len(table.HEADER)


def test_the_table_counts_what_was_measured_and_what_did_not_run(tmp_path: Path) -> None:
    measured = {
        "mode": "gpu", "replay": "measured", "verdict": "adopt", "step": {"boundary": "period"},
        "reason": None, "iteration_ms": 2.0, "removable_pct": None, "findings": ["LS001"],
        "shapes_stable": True,
    }  # fmt: skip
    scripts = [SCRIPT._replace(id=name) for name in ("measured", "nothing", "absent")]
    for name, profile in (("measured", measured), ("nothing", None)):
        (tmp_path / f"{name}.json").write_text(json.dumps(profiled(name, profile)))
    plain = profiled("absent", None) | {"plain": True}
    (tmp_path / "absent.json").write_text(json.dumps(plain))
    found = table.results(tmp_path)
    count = table.counts(scripts, found)
    assert (count["scripts"], count["ran"], count["profiles"]) == (3, 2, 1)
    assert (count["repeating"], count["repeating_measured"]) == (1, 1)
    lines = table.markdown(scripts, found).splitlines()
    assert "not measured" in lines[4]
    assert "nothing to report on" in lines[5]
    assert "not run" in lines[6]
    assert {line.count("|") for line in lines[2:7]} == {len(table.HEADER) + 1}


@pytest.mark.child
def test_only_what_the_scripts_need_is_taken_from_a_commit(tmp_path: Path) -> None:
    source = tmp_path / "mirrors" / "owner+name" / "repo"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "train.py").write_text("pass\n")
    (source / "large.bin").write_bytes(bytes(10))
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    for command in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "a")):
        subprocess.run(["git", "-C", source, *command], check=True)
    commit = git(source, "rev-parse", "HEAD").decode().strip()
    wanted = obtain.Repository("owner/name", commit, ["deep/*.py"])
    folder, mirrors = tmp_path / "scripts", tmp_path / "mirrors"
    folder.mkdir()
    assert obtain.obtain(wanted._replace(paths=["absent"]), folder, mirrors)
    assert obtain.obtain(wanted, folder, mirrors) is None
    files = [path for path in (folder / "owner+name").rglob("*") if path.is_file()]
    assert files == [folder / "owner+name" / "deep" / "train.py"]


def adopted(outcome: str, before_ms: float | None = None, after_ms: float | None = None) -> Any:
    times = {"before": before_ms, "after": after_ms}
    return {
        "outcome": outcome,
        "covered": None,
        "reason": None if outcome == "verified" else {"code": "not_faster", "details": {}},
        "where": None if outcome == "verified" else {"file": "train.py", "line": 7},
        "steps": 80,
        "values": 900,
        "exact": True,
        **{name: each and {"value": each} for name, each in times.items()},
    }


def test_adoptions_are_counted_beside_what_was_promised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {
        "one": adopted("verified", 9.0, 3.0),
        "two": adopted("verified", 8.0, 4.0),
        "three": adopted("failed", 5.0, 5.0) | {"recommendation": "adopt"},  # the corpus has none
        "large": adopted("not_needed"),
        "lost": None,
    }
    results = tmp_path / "results"
    results.mkdir()
    for name, adoption in found.items():
        row = {
            "id": name, "repository": "owner/name", "exit": 0, "seconds": 60.0,
            "adoption": adoption, "said": ["it ended"],
        }  # fmt: skip
        (results / f"{name}.json").write_text(json.dumps(row))
    profiles = {
        name: {"removable_pct": removable_pct, "verdict": "adopt"}
        for name, removable_pct in {"one": 75.0, "two": 50.0}.items()
    }
    adoptions.table(results, profiles, tmp_path / "table.json")
    content = json.loads((tmp_path / "table.json").read_text())
    assert (content["scripts"], content["wanted"], content["verified"]) == (5, 3, 2)
    assert content["off_projection_median_pct"] == pytest.approx(-12.5)
    rows = (tmp_path / "table.md").read_text().splitlines()
    assert all(row.count("|") == len(adoptions.HEADER) + 1 for row in rows)
    first = (
        "| one | owner/name | adopt | verified |  |  |  | 80 | 900 | bit for bit | 9.00 | 3.00 |"
    )
    assert f"{first} 3.00 | 4.00 | 60 |" in rows
    third = next(row for row in rows if row.startswith("| three"))
    assert "| not_faster | train.py:7 |" in third
    assert "verified: 2, 2 of 3 with a verdict for a graph" in capsys.readouterr().out


def test_rows_of_an_adoption_table_stay_for_scripts_that_did_not_run_again(tmp_path: Path) -> None:
    def result(name: str, seconds: float) -> None:
        (results / f"{name}.json").write_text(
            json.dumps({"id": name, "exit": 1, "seconds": seconds, "adoption": None})
        )

    results, output = tmp_path / "results", tmp_path / "table.json"
    results.mkdir()
    for name in ("one", "two"):
        result(name, 60.0)
    adoptions.table(results, {}, output)
    (results / "one.json").unlink()
    result("two", 70.0)
    adoptions.table(results, {}, output)
    rows = json.loads(output.read_text())["rows"]
    assert [(row["id"], row["seconds"]) for row in rows] == [("one", 60.0), ("two", 70.0)]


def campaign(folder: Path, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("results", type=Path)
    corpus.add_options(parser, limit_s=1.0)
    return parser.parse_args([str(folder), *words])


def test_jobs_share_the_gpus_and_run_in_their_order(tmp_path: Path) -> None:
    began: list[tuple[str, str]] = []
    both = threading.Barrier(2)

    def job(name: str) -> corpus.Job:
        def run(place: dict[str, str], limit_s: float) -> dict[str, Any]:
            began.append((name, place["CUDA_VISIBLE_DEVICES"]))
            if name != "c":
                both.wait(30)  # the first two run at the same time
            return {"id": name}

        return corpus.Job(name, run)

    arguments = campaign(tmp_path, "--at-once", "2", "--gpus", "2")
    corpus.run_jobs([job(name) for name in "abc"], arguments, str)
    assert {name for name, _ in began[:2]} == {"a", "b"}
    assert {gpu for _, gpu in began[:2]} == {"0", "1"}
    assert began[2][0] == "c"
    assert json.loads((tmp_path / "c.json").read_text()) == {"id": "c", "at_once": 2}


def test_a_job_runs_again_if_it_failed_and_only_within_the_budget(tmp_path: Path) -> None:
    ran: list[str] = []

    def job(name: str, seconds: float) -> corpus.Job:
        def run(place: dict[str, str], limit_s: float) -> dict[str, Any]:
            ran.append(name)
            return {"id": name}

        return corpus.Job(name, run, seconds)

    (tmp_path / "done.json").write_text("{}")
    (tmp_path / "failed.json").write_text(json.dumps({"error": "too slow"}))
    names = {"done": 1.0, "failed": 1.0, "long": 60.0, "short": 1.0}
    jobs = [job(name, seconds) for name, seconds in names.items()]
    corpus.run_jobs(jobs, campaign(tmp_path, "--budget", "30"), str)
    assert ran == ["failed", "short"]
