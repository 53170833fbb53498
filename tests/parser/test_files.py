"""Recordings survive the way to disk and back; what is foreign is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from launchscope.analysis import build_profile
from launchscope.errors import InputError
from launchscope.model import InspectResult, PassFailure, Profile, Reason, Recording
from launchscope.parser import read_profile, read_recording
from launchscope.report import render
from tests.builders import recording, timing
from tests.report.others import traced
from tests.shapes import tensors


def on_disk(directory: Path, value: Recording) -> Path:
    fields = msgspec.to_builtins(value)
    del fields["directory"]
    path = directory / "recording.json"
    path.write_text(json.dumps(fields))
    return path


def test_a_recording_round_trips_from_its_directory_and_its_file(tmp_path: Path) -> None:
    value = recording(
        tmp_path,
        timing=timing(steps=3),
        inspect=InspectResult(1, ("a",), (tensors("(4,) int64"),), (5,), ()),
        failures=(PassFailure("replay", Reason("process_died", {"exit_code": -9})),),
    )
    path = on_disk(tmp_path, value)
    assert read_recording(tmp_path) == value
    assert read_recording(path) == value


def test_the_directory_is_where_the_file_lies_now(tmp_path: Path) -> None:
    path = on_disk(tmp_path, recording(tmp_path))
    fields = {**json.loads(path.read_text()), "directory": "/somewhere/else"}
    path.write_text(json.dumps(fields))
    assert read_recording(path).directory == str(tmp_path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "damaged"),
        ('{"schema": NaN}', "invalid character"),
        ("[]", "is not a launchscope Profile"),
        ("{}", "is not a launchscope Profile"),
        ('{"schema": "launchscope/profile/1"}', r"another version .* \(launchscope/profile/1\)"),
        ('{"schema": "launchscope/profile/99"}', r"another version .* \(launchscope/profile/99\)"),
        ('{"schema": "launchscope/recording/2"}', "of another kind"),
        ('{"schema": "launchscope/profile/2"}', "damaged"),
        ('{"schema": 7}', "is not a launchscope Profile"),
    ],
)
def test_what_is_no_profile_is_refused(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(content)
    with pytest.raises(InputError, match=says):
        read_profile(path)


def test_a_file_that_memory_may_not_hold_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text('{"schema": "launchscope/profile/2", ')
    os.truncate(path, 1 << 40)  # without a byte on the disk
    with pytest.raises(InputError, match="no Profile is as large as 1,048,576 MiB"):
        read_profile(path)


def test_a_missing_file_and_an_empty_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no Profile at"):
        read_profile(tmp_path / "none.json")
    with pytest.raises(InputError, match="no recording at"):
        read_recording(tmp_path)


def test_a_recording_with_a_field_of_the_wrong_type_is_damaged(tmp_path: Path) -> None:
    path = on_disk(tmp_path, recording(tmp_path))
    path.write_text(path.read_text().replace('"runs": 1', '"runs": "one"'))
    with pytest.raises(InputError, match="damaged"):
        read_recording(path)


def test_unknown_fields_of_a_later_minor_change_are_ignored(tmp_path: Path) -> None:
    profile = replace(build_profile(recording(tmp_path)), notes=("n",))
    fields = {**msgspec.to_builtins(profile), "new_field": 1}
    path = tmp_path / "p.json"
    path.write_text(json.dumps(fields))
    assert isinstance(read_profile(path), Profile)


@pytest.mark.parametrize(
    ("column", "value"), [("label", 10_000), ("label", -1), ("duration_ns", None)]
)
def test_a_timeline_that_cannot_be_drawn_is_damage(
    tmp_path: Path, column: str, value: int | None
) -> None:
    made = json.loads(render(traced(), "json"))
    lane = made["timelines"]["eager"]["lanes"][0]
    lane[column] = lane[column][1:] + ([] if value is None else [value])
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(made))
    with pytest.raises(InputError, match="timeline"):
        read_profile(file)
