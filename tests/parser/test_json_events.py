"""Cutting JSON into events, wherever the blocks of the file happen to end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from launchscope.parser import columns as c
from launchscope.parser import json_events
from launchscope.parser.chrome_events import Decoder
from launchscope.parser.json_events import BeyondRepairError, Events
from tests.builders import trace
from tests.kineto_text import LAYOUTS

AWKWARD = (
    'brace } and { and "quoted" \\ back\\\\slash ] [ ,',
    "\\",
    '\\"',
    "ends with a backslash \\",
    "é ü 漢 \u2028",
)


def blocks(text: str, size: int) -> Iterator[bytes]:
    data = text.encode()
    for start in range(0, len(data), size):
        yield data[start : start + size]


class Reader:
    """Reads the names of events; `refused` are the numbers of the lists that it does not take."""

    def __init__(self, text: str, size: int, refused: range = range(0)) -> None:
        self.names: list[str] = []
        self.lists = 0
        self._refused = refused
        self.decoder = Decoder(lambda table, values: self.names.extend(values[c.NAME]))
        self.events = Events(blocks(text, size), self._take, self.decoder.repair)
        for _ in self.events:
            pass

    def _take(self, text: bytes) -> bool:
        self.lists += 1
        return self.lists - 1 not in self._refused and self.decoder.take(text)


def awkward() -> dict[str, Any]:
    built = trace().step()
    for name in AWKWARD:
        built.op(name).launch(name=name)
    return built.document()


def names_of(document: dict[str, Any]) -> list[str]:
    return sorted(event["name"] for event in document["traceEvents"] if event["ph"] == "X")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [1, 3, 64, 800, 1 << 20])
@pytest.mark.parametrize("refused", [range(0), range(1), range(1000)], ids=["none", "one", "all"])
def test_every_event_comes_out_whole_in_every_layout(
    layout: str, size: int, refused: range
) -> None:
    document = awkward()
    text = LAYOUTS[layout]({**document, "more": [{"a": 1}, {"b": 2}]})
    read = Reader(text, size, refused)
    assert sorted(read.names) == names_of(document)
    assert read.events.complete
    assert b'"more"' in read.events.head + read.events.tail
    assert read.lists or size < 9
    assert read.decoder.dropped == 0


@pytest.mark.parametrize("size", [9, 1 << 20])
def test_a_bare_list_is_a_list_of_events(size: int) -> None:
    document = awkward()
    read = Reader(json.dumps(document["traceEvents"]), size)
    assert sorted(read.names) == names_of(document)
    assert read.events.complete
    assert Reader("[]", size).events.complete


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_file_that_breaks_off_keeps_its_whole_events(layout: str) -> None:
    document = awkward()
    text = LAYOUTS[layout](document)
    in_order = Reader(text, 1 << 20).names
    for end in range(text.index("traceEvents") + 20, len(text) - 40, 41):
        read = Reader(text[:end], 100)
        assert set(read.names) <= set(in_order)
        assert read.decoder.dropped <= 1
        if len(read.names) < len(in_order):
            assert not read.events.complete


@pytest.mark.parametrize("text", ["", "{}", '{"traceEvents": 5}', '{"traceEvents": ', "hello"])
def test_a_file_without_a_list_of_events_is_refused(text: str) -> None:
    with pytest.raises(BeyondRepairError, match="no list of events"):
        Reader(text, 4)


@pytest.mark.parametrize("filling", [b" ", b"\0", b'"', b"["])
def test_a_file_that_goes_on_without_an_event_is_given_up(
    filling: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_events, "MAX_EVENT", 1 << 20)

    def endless() -> Iterator[bytes]:
        yield b'{"traceEvents": ['
        while True:
            yield filling * (1 << 18)

    with pytest.raises(BeyondRepairError, match="no end of an event"):
        for _ in Events(endless(), lambda text: False, lambda pieces: None):
            pass
