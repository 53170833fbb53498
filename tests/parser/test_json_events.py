"""Cutting JSON into events, wherever the blocks of the file happen to end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from launchscope.parser import json_events as jsonevents
from launchscope.parser.json_events import BeyondRepairError, Events
from tests.builders import trace
from tests.kineto_text import LAYOUTS

AWKWARD = (
    'brace } and { and "quoted" \\ back\\\\slash ] [ ,',
    '},{"ph":"X"',
    "\\",
    '\\"',
    "ends with a backslash \\",
    "é ü 漢 \u2028",
)


def blocks(text: str, size: int) -> Iterator[bytes]:
    data = text.encode()
    for start in range(0, len(data), size):
        yield data[start : start + size]


def cut(text: str, size: int) -> tuple[list[object], Events]:
    events = Events(blocks(text, size))
    return [json.loads(b"{" + piece + b"}") for pieces in events for piece in pieces], events


def awkward() -> dict[str, Any]:
    built = trace().step()
    for name in AWKWARD:
        built.op(name).launch(name=name)
    return built.document()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000, 1 << 20])
def test_every_event_comes_out_whole_in_every_layout(layout: str, size: int) -> None:
    document = awkward()
    found, events = cut(LAYOUTS[layout](document), size)
    assert found == document["traceEvents"]
    assert events.complete
    assert events.strays == 0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [3, 100, 1000, 1 << 20])
@pytest.mark.parametrize("nested", [False, True])
def test_events_that_are_taken_many_at_a_time_are_the_same(
    layout: str, size: int, nested: bool
) -> None:
    document = awkward()
    # Objects in a list look like events in one.
    arguments = {"frames": [{"line": 1}, {"line": 2}]} if nested else {}
    events = [event | {"args": event["args"] | arguments} for event in document["traceEvents"]]
    text = LAYOUTS[layout]({**document, "traceEvents": events, "more": [{"a": 1}, {"b": 2}]})
    found: list[object] = []
    taken = []

    def take(text: bytes) -> bool:
        try:
            taken.append(json.loads(text))
        except ValueError:
            return False
        found.extend(taken[-1])
        return True

    source = Events(blocks(text, size), take)
    for pieces in source:
        found += [json.loads(b"{%b}" % piece) for piece in pieces]
    assert found == events
    assert source.complete
    assert b'"more"' in source.head + source.tail
    assert taken or nested or size != 1000


@pytest.mark.parametrize("layout", LAYOUTS)
def test_behind_events_that_were_not_taken_the_next_ones_are(layout: str) -> None:
    document = awkward()
    refused: list[bytes] = []
    taken: list[object] = []

    def take(text: bytes) -> bool:
        if not refused:
            refused.append(text)
            return False
        try:
            taken.extend(json.loads(text))
        except ValueError:  # a name looks like the place between two events
            return False
        return True

    source = Events(blocks(LAYOUTS[layout](document), 800), take)
    cut = [json.loads(b"{%b}" % piece) for pieces in source for piece in pieces]
    assert taken
    names = [event["name"] for event in (*cut, *taken)]
    assert sorted(names) == sorted(event["name"] for event in document["traceEvents"])


def test_a_bare_list_is_a_list_of_events() -> None:
    document = awkward()
    found, events = cut(json.dumps(document["traceEvents"]), 50)
    assert found == document["traceEvents"]
    assert events.complete


def test_arguments_may_hold_objects_and_lists() -> None:
    event = {"ph": "X", "args": {"list": [{"a": [1, {"b": "}"}]}, {"c": {}}]}}
    found, _ = cut(json.dumps({"traceEvents": [event, event]}), 9)
    assert found == [event, event]


def test_items_that_are_no_objects_are_counted() -> None:
    found, events = cut('{"traceEvents": [{"a": 1}, "text", [1, 2], {"b": 2}, 17, null]}', 11)
    assert found == [{"a": 1}, {"b": 2}]
    assert events.strays == 2  # numbers and null leave no trace of themselves


def test_fields_before_and_after_the_events_are_kept() -> None:
    _, events = cut('{"first": 1, "traceEvents": [{"a": 1}], "last": 2}', 8)
    assert events.head.startswith(b'{"first": 1')
    assert b'"last": 2' in events.tail


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_file_that_breaks_off_keeps_its_whole_events(layout: str) -> None:
    document = awkward()
    text = LAYOUTS[layout](document)
    for end in range(text.index("traceEvents") + 20, len(text) - 40, 41):
        found, events = cut(text[:end], 100)
        assert found == document["traceEvents"][: len(found)]
        if len(found) < len(document["traceEvents"]):
            assert not events.complete


@pytest.mark.parametrize("text", ["", "{}", '{"traceEvents": 5}', '{"traceEvents": ', "hello"])
def test_a_file_without_a_list_of_events_is_refused(text: str) -> None:
    with pytest.raises(BeyondRepairError, match="no list of events"):
        cut(text, 4)


@pytest.mark.parametrize("filling", [b" ", b"\0", b'"', b"["])
def test_a_file_that_goes_on_without_an_event_is_given_up(
    filling: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonevents, "MAX_EVENT", 1 << 20)

    def endless() -> Iterator[bytes]:
        yield b'{"traceEvents": ['
        while True:
            yield filling * (1 << 18)

    with pytest.raises(BeyondRepairError, match="no end of an event"):
        for _ in Events(endless()):
            pass
