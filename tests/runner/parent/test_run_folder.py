"""What the parent reads of a run while its child writes, and after the child has died."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from launchscope.model import Reason, Schedule, Target, TraceResult
from launchscope.runner.parent.child_report import ChildReport
from launchscope.runner.parent.collect import Collected
from launchscope.runner.parent.run_folder import RunFolder
from launchscope.runner.protocol.events import (
    ChildEnded,
    DeviceKnown,
    Event,
    Note,
    PassSkipped,
    PassStarted,
    ScriptEnded,
)
from launchscope.runner.protocol.folder import EVENTS_FILE, ChildFolder, Plan

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


def test_a_result_of_another_form_is_a_failure_of_its_pass(folder: RunFolder) -> None:
    child = ChildFolder(folder.path)
    child.write("pass-trace", {"file": 3})
    with pytest.raises(msgspec.ValidationError):
        folder.read("pass-trace", TraceResult)
    collected = Collected(folder.path.parent)
    collected.take(ChildReport(folder=folder.path, ended=True))
    assert collected.results == {}
    assert collected.failures["trace"].code == "unreadable_result"
