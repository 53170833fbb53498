"""Baselines: small, sorted, one per workload and device, and never overwritten by accident."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from launchscope.errors import InputError, UsageError
from launchscope.gate import baseline_place, merged
from launchscope.gate.baseline import file_name
from launchscope.gate.measurement import processes_of, range_of
from launchscope.parser import read_profile
from tests.gate.profiles import checked, elsewhere, gpu, item, rehearsal


def write(folder: Path, profile: object, workload: str = "train") -> Path:
    return baseline_place(str(folder)).write(workload, profile)  # type: ignore[arg-type]


def test_a_baseline_is_a_profile_without_samples_that_gives_the_same_answer(
    tmp_path: Path,
) -> None:
    measured = merged([gpu({"iteration_ms": ms}) for ms in (9.0, 9.4, 9.2)])
    kept = read_profile(write(tmp_path, measured))
    assert not any(metric.samples for metric in kept.metrics.values())
    assert (kept.verdict, kept.findings, processes_of(kept)) == (None, (), 3)
    assert range_of(kept, "iteration_ms") == range_of(measured, "iteration_ms")
    now = gpu({"iteration_ms": 9.85})
    for limits in ((), ("iteration_ms=+5%",)):
        assert checked(now, kept, *limits).outcome == checked(now, measured, *limits).outcome


@pytest.mark.parametrize("profile", [gpu(), rehearsal(blockers=[item()])], ids=["gpu", "rehearsal"])
def test_a_baseline_is_small_sorted_and_the_same_each_time(profile: object, tmp_path: Path) -> None:
    first = write(tmp_path / "a", profile).read_bytes()
    later = elsewhere(profile, recorded_at="2027-01-01", git="abc", platform="other")  # type: ignore[arg-type]
    assert write(tmp_path / "b", later).read_bytes() == first
    assert len(first) < 6000
    keys = list(json.loads(first))
    assert keys == sorted(keys)


def test_a_folder_holds_one_file_per_workload_device_and_world_size(tmp_path: Path) -> None:
    place = baseline_place(str(tmp_path / "baselines"))
    profiles = (gpu(), elsewhere(gpu(), world_size=8), elsewhere(gpu(), device="A100"), rehearsal())
    for profile in profiles:
        place.write("train", profile)
    place.write("Eval step", gpu())
    assert sorted(path.name for path in (tmp_path / "baselines").iterdir()) == [
        "eval-step.nvidia-h200.json",
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


def test_a_path_named_like_a_file_is_one(tmp_path: Path) -> None:
    assert write(tmp_path / "new" / "base.json", gpu()) == tmp_path / "new" / "base.json"


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"schema": "launchscope/profile/9"}', b'{"a": 1}', b"\xff\xfe"]
)
def test_what_is_no_baseline_is_neither_read_nor_overwritten(
    content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "base.json"
    path.write_bytes(content)
    place = baseline_place(str(path))
    with pytest.raises(InputError):
        place.find("train", gpu())
    with pytest.raises(InputError):
        place.write("train", gpu())
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "base.json", gpu())
    before = path.read_bytes()

    def full(self: Path, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(UsageError, match="No space left"):
        write(path, gpu({"launches_per_step": 1}))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    real = write(tmp_path / "real", gpu())
    link = tmp_path / "link.json"
    link.symlink_to(real)
    baseline_place(str(link)).write("train", gpu({"launches_per_step": 1}))
    assert link.is_symlink()
    assert read_profile(real).value("launches_per_step") == 1


def test_a_place_that_cannot_be_looked_at_is_a_sentence() -> None:
    place = baseline_place("n" * 300 + ".json")  # longer than a name may be
    with pytest.raises(InputError, match="cannot look for the baseline"):
        place.require_readable()
    with pytest.raises(InputError, match="cannot look for the baseline"):
        place.find("train", gpu())
    with pytest.raises(InputError, match="cannot look for the baseline"):
        place.write("train", gpu())


# -------------------------------------------------------------------------------- git


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose only commit holds a folder of baselines."""
    folder = tmp_path / "repository"
    write(folder / "sub" / "baselines", gpu())
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q", "-b", "main"), ("add", "."), (*identity, "commit", "-qm", "one")):
        subprocess.run(["git", *words], cwd=folder, check=True)
    write(folder / "sub" / "baselines", gpu({"launches_per_step": 1}))
    monkeypatch.chdir(folder / "sub")
    return folder


@pytest.mark.parametrize("path", ["baselines", "baselines/", "baselines/train.nvidia-h200.json"])
def test_a_baseline_is_read_from_a_git_revision(path: str, repository: Path) -> None:
    found = baseline_place(f"git:main:{path}").find("train", gpu())
    assert found is not None
    assert found.profile.value("launches_per_step") == 555
    assert found.place == "git:main:baselines/train.nvidia-h200.json"


def test_a_path_of_a_git_revision_is_taken_from_here_or_is_absolute(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = repository / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    for path in ("../sub/baselines", str(repository / "sub" / "baselines")):
        assert baseline_place(f"git:main:{path}").find("train", gpu()) is not None
    assert baseline_place("git:main:baselines").find("train", gpu()) is None


def test_a_repository_of_another_owner_is_said_to_be_one(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("LANGUAGE", "de")
    with pytest.raises(UsageError, match="dubious ownership") as caught:
        baseline_place("git:main:baselines")
    assert "safe.directory" in str(caught.value.hint)


def test_what_a_git_revision_does_not_hold_is_missing(repository: Path) -> None:
    assert baseline_place("git:main:nowhere").find("train", gpu()) is None
    assert baseline_place("git:main:baselines").find("other", gpu()) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("git:nowhere:baselines", "knows no revision 'nowhere'"),
        ("git:--help:baselines", "knows no revision"),
        ("git:main", "names no file of a git revision"),
        ("git::baselines", "names no file of a git revision"),
    ],
)
def test_a_git_revision_that_does_not_exist_is_refused(
    text: str, said: str, repository: Path
) -> None:
    with pytest.raises(UsageError, match=said):
        baseline_place(text)


def test_git_outside_of_a_repository_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(UsageError, match="in no git repository"):
        baseline_place("git:main:baselines")


def test_history_is_not_written(repository: Path) -> None:
    with pytest.raises(UsageError, match="git's history"):
        baseline_place("git:main:baselines").write("train", gpu())


def test_merged_profiles_keep_what_the_first_ran() -> None:
    first = gpu()
    joined = merged([first, replace(gpu({"launches_per_step": 556}), kernels=())])
    assert joined.kernels == first.kernels
    assert joined.facts.ranges == {"launches_per_step": (555, 556)}


def test_a_place_where_nothing_may_be_written_is_told_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def access(path: Path, mode: int) -> bool:
        asked.append(Path(path))
        return False

    monkeypatch.setattr("os.access", access)
    for place in (tmp_path, tmp_path / "new" / "folder", tmp_path / "train.json"):
        with pytest.raises(UsageError, match="cannot write the baseline"):
            baseline_place(str(place)).require_writable()
    assert asked == [tmp_path] * 3


def test_names_in_any_script_have_a_file_of_their_own() -> None:
    names = ["обучение", "проверка", "train", "träin"]
    assert file_name(names[0], rehearsal()) == "обучение.rehearsal.json"
    assert len({file_name(name, rehearsal()) for name in names}) == len(names)


def test_a_baseline_keeps_that_not_every_process_met_a_blocker(tmp_path: Path) -> None:
    joined = merged([rehearsal(blockers=[item()]), rehearsal()])
    place = baseline_place(str(tmp_path))
    place.write("train", joined)
    found = place.find("train", rehearsal())
    assert found is not None
    assert found.profile.facts.blocker_ranges == {"aten._local_scalar_dense": (0, 1)}


def test_ranges_of_blockers_that_are_none_are_damage(tmp_path: Path) -> None:
    place = baseline_place(str(tmp_path / "train.json"))
    path = place.write("train", merged([rehearsal(blockers=[item()]), rehearsal()]))
    path.write_bytes(path.read_bytes().replace(b":[0,1]", b":[1,0]"))
    with pytest.raises(InputError, match="ranges of its blockers do not run upwards"):
        place.find("train", rehearsal())
