"""What the parent reads of a run while its child writes, and after the child has died."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from launchscope.model import Reason, Schedule, Target, TraceResult
from launchscope.runner.parent.child_report import ChildReport
from launchscope.runner.parent.collect import Collected
from launchscope.runner.parent.run_folder import RunFolder
from launchscope.runner.protocol.events import (
    EVENT_TYPES,
    ChildEnded,
    DeviceKnown,
    Event,
    Note,
    PassSkipped,
    PassStarted,
    ScriptEnded,
)
from launchscope.runner.protocol.folder import EVENTS_FILE, PLAN_FILE, ChildFolder, Plan
from launchscope.visible import visible, without_commands

EVENTS: tuple[Event, ...] = (
    PassStarted("warmup", 10),
    DeviceKnown(True),
    PassSkipped("replay", Reason("hung")),
    PassStarted("timing", 30, 61.5),
    Note("a sentence"),
    ScriptEnded(steps=4, searching=True),
    ChildEnded(),
)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run-1")
    folder.create(Plan(Target("script", "train.py"), (), Schedule()))
    return folder


def test_events_arrive_once_and_as_they_were_sent(folder: RunFolder) -> None:
    child = ChildFolder(folder.path)
    for event in EVENTS[:4]:
        child.emit(event)
    assert folder.events() == list(EVENTS[:4])
    for event in EVENTS[4:]:
        child.emit(event)
    assert folder.events() == list(EVENTS[4:])
    assert folder.events() == []


def test_no_file_of_a_recording_acts_on_what_prints_it(tmp_path: Path) -> None:
    text = "\x1b]0;evil\x07\x7f\x9b##[error]##vso[x]\udce9\n::error::x"
    plan = Plan(Target("script", text, (text,)), (), Schedule())
    folder = RunFolder(tmp_path / "run-1")
    folder.create(plan)
    child = ChildFolder(folder.path)
    child.emit(Note(text))
    child.write("pass-x", {text: text})
    written = [path.read_text() for path in folder.path.iterdir() if path.suffix]
    assert len(written) == 3
    for line in "".join(written).splitlines():
        assert line == visible(line) == without_commands(line)
    valid = text.replace("\udce9", "\\xe9")
    assert folder.events() == [Note(valid)]
    assert json.loads((folder.path / "pass-x.json").read_bytes()) == {valid: valid}
    assert json.loads((folder.path / PLAN_FILE).read_bytes())["target"]["args"] == [text]


@pytest.mark.parametrize(
    "damage",
    [
        b'{"event": "Note", "te\n',
        b'{"event": "Note"}\n',
        b'{"event": "Unheard"}\n',
        b'{"event": "DeviceKnown", "on_gpu": "perhaps"}\n',
        b"\xff\xfe\x00\n",
        b"\n",
        b"[]\n",
    ],
)
def test_a_damaged_line_of_a_dying_child_loses_that_line_only(
    folder: RunFolder, damage: bytes
) -> None:
    child = ChildFolder(folder.path)
    child.emit(EVENTS[0])
    with (folder.path / EVENTS_FILE).open("ab") as log:
        log.write(damage)
    child.emit(EVENTS[1])
    with (folder.path / EVENTS_FILE).open("ab") as log:
        log.write(b'{"event": "Note", "text": "no end of li')
    report = ChildReport()
    for event in folder.events():
        report.on_event(event)
    assert (report.current_pass, report.on_gpu, report.notes) == ("warmup", True, [])


def test_every_event_has_a_name_of_its_own() -> None:
    assert all(name == kind.__name__ for name, kind in EVENT_TYPES.items())


def test_texts_that_are_not_valid_unicode_do_not_cost_their_event(folder: RunFolder) -> None:
    ChildFolder(folder.path).emit(Note("tr\udce9.py"))
    assert folder.events() == [Note("tr\\xe9.py")]


def test_a_result_of_another_form_is_a_failure_of_its_pass(folder: RunFolder) -> None:
    child = ChildFolder(folder.path)
    child.write("pass-trace", {"file": 3})
    with pytest.raises(msgspec.ValidationError):
        folder.read("pass-trace", TraceResult)
    collected = Collected(folder.path.parent)
    collected.take(ChildReport(folder=folder.path, ended=True))
    assert collected.results == {}
    assert collected.failures["trace"].code == "unreadable_result"
