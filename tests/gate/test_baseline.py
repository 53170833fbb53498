"""Baselines: small, sorted, one per workload and device, and never overwritten by accident."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from launchscope.errors import InputError, UsageError
from launchscope.gate.baseline import baseline_folder, file_name
from launchscope.gate.measurement import range_of
from launchscope.model import Metric
from launchscope.parser import read_profile
from tests.gate.profiles import checked, elsewhere, gpu, item, rehearsal


def write(folder: Path, profile: object, workload: str = "train") -> Path:
    return Path(baseline_folder(str(folder)).write(workload, profile))  # type: ignore[arg-type]


def test_a_baseline_has_no_samples_and_gives_the_same_result(
    tmp_path: Path,
) -> None:
    counts = Metric(555, "1", exact=False, samples=(555.0, 556.0, 555.0))
    measured = gpu({"launches_per_step": counts})
    kept = read_profile(write(tmp_path, measured))
    assert not any(metric.samples for metric in kept.metrics.values())
    assert (kept.verdict, kept.findings) == (None, ())
    assert range_of(kept, "launches_per_step") == range_of(measured, "launches_per_step")
    for count in (556, 557):
        now = gpu({"launches_per_step": count})
        assert checked(now, kept).outcome == checked(now, measured).outcome


@pytest.mark.parametrize("profile", [gpu(), rehearsal(blockers=[item()])], ids=["gpu", "rehearsal"])
def test_a_baseline_is_small_sorted_and_the_same_each_time(profile: object, tmp_path: Path) -> None:
    first = write(tmp_path / "a", profile).read_bytes()
    later = elsewhere(profile, recorded_at="2027-01-01", git="abc", platform="other")  # type: ignore[arg-type]
    assert write(tmp_path / "b", later).read_bytes() == first
    assert len(first) < 6000
    keys = list(json.loads(first))
    assert keys == sorted(keys)


def test_a_folder_holds_one_file_per_workload_device_and_world_size(tmp_path: Path) -> None:
    place = baseline_folder(str(tmp_path / "baselines"))
    profiles = (gpu(), elsewhere(gpu(), world_size=8), elsewhere(gpu(), device="A100"), rehearsal())
    for profile in profiles:
        place.write("train", profile)
    place.write("Eval step", gpu())
    assert sorted(path.name for path in (tmp_path / "baselines").iterdir()) == [
        "eval-step-b91e9b.nvidia-h200.json",
        "train.a100.json",
        "train.nvidia-h200-x8.json",
        "train.nvidia-h200.json",
        "train.rehearsal.json",
    ]
    for profile in profiles:
        found = place.find("train", profile)
        assert found is not None
        assert found.profile.environment.device == profile.environment.device
        assert found.place.endswith(file_name("train", profile))
    assert place.find("other", gpu()) is None
    assert place.others("train")[0] == "train.a100.json"


FILE = "train.nvidia-h200.json"


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"schema": "launchscope/profile/9"}', b'{"a": 1}', b"\xff\xfe"]
)
def test_a_file_that_is_not_a_baseline_is_neither_read_nor_overwritten(
    content: bytes, tmp_path: Path
) -> None:
    (tmp_path / FILE).write_bytes(content)
    place = baseline_folder(str(tmp_path))
    with pytest.raises(InputError):
        place.find("train", gpu())
    with pytest.raises(InputError):
        place.write("train", gpu())
    assert (tmp_path / FILE).read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_what_is_no_file_and_what_no_reader_can_hold_is_damaged_input(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole", gpu()).read_bytes()
    nested = whole.rstrip()[:-1] + b',"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    number = whole.replace(b'"value": 555', b'"value": ' + b"9" * 5000)
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / FILE)
    for name, content in (("nested", nested), ("number", number)):
        (tmp_path / name).mkdir()
        (tmp_path / name / FILE).write_bytes(content)
    for name in ("pipe", "nested", "number"):
        place = baseline_folder(str(tmp_path / name))
        with pytest.raises(InputError, match="cannot be read as a Profile"):
            place.find("train", gpu())
        with pytest.raises(InputError, match="cannot be read as a Profile"):
            place.write("train", gpu())


def test_a_write_that_fails_leaves_the_old_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, gpu())
    before = path.read_bytes()

    def full(self: Path, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(UsageError, match="No space left"):
        write(tmp_path, gpu({"launches_per_step": 1}))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_an_inaccessible_place_is_an_error_with_one_sentence() -> None:
    place = baseline_folder("n" * 300)  # longer than a name may be
    with pytest.raises(InputError, match="cannot look for the baseline"):
        place.find("train", gpu())
    with pytest.raises(InputError, match="cannot look for the baseline"):
        place.write("train", gpu())


def test_a_place_that_is_not_writable_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def access(path: Path, mode: int) -> bool:
        asked.append(Path(path))
        return False

    monkeypatch.setattr("os.access", access)
    for place in (tmp_path, tmp_path / "new" / "folder"):
        with pytest.raises(UsageError, match="cannot write the baseline"):
            baseline_folder(str(place)).require_writable()
    assert asked == [tmp_path] * 2


def test_workload_names_in_any_script_get_distinct_files() -> None:
    names = ["обучение", "проверка", "train", "träin", "a b", "a/b", "a-b", "a.b", "a_b", "a", "?"]
    assert file_name(names[0], rehearsal()) == "обучение.rehearsal.json"
    assert len({file_name(name, rehearsal()) for name in names}) == len(names)


def test_a_blocker_without_a_line_is_read_back(tmp_path: Path) -> None:
    place = baseline_folder(str(tmp_path))
    blocker = replace(item(), where=None)
    place.write("train", rehearsal(blockers=[blocker]))
    found = place.find("train", rehearsal())
    assert found is not None
    assert found.profile.blockers == (blocker,)
