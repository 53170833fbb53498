"""The two streams, and what the environment says about them."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from launchscope.cli.console import Console
from launchscope.host import Blocks
from launchscope.runner.parent.child_watch import ProgressEvent


class Screen(io.StringIO):
    """A stream that may be a terminal."""

    def __init__(self, terminal: bool = False) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def console(terminal: bool = False, environ: dict[str, str] | None = None) -> Console:
    return Console(Screen(terminal), Screen(terminal), environ or {})


def stderr_of(given: Console) -> str:
    assert isinstance(given.stderr, Screen)
    return given.stderr.getvalue()


@pytest.mark.parametrize(
    ("terminal", "environ", "color"),
    [
        (False, {}, False),
        (True, {}, True),
        (True, {"NO_COLOR": "1"}, False),
        (False, {"FORCE_COLOR": "1"}, True),
        (False, {"FORCE_COLOR": "0"}, False),
        (True, {"TERM": "dumb"}, False),
        (False, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_color(terminal: bool, environ: dict[str, str], color: bool) -> None:
    given = console(terminal, environ)
    assert given.has_color(given.stdout) is color


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_blocks_are_ascii_for_a_terminal_that_knows_no_utf_8(encoding: str) -> None:
    """In UTF-8 the last byte of `Û` begins a control sequence of such a terminal."""
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding)
    value = {"Û": ["\u0430\U0001f600", "::a"]}
    data = json.dumps(value, ensure_ascii=False).encode()
    Console(stream, Screen(), {}).out(Blocks(lambda: iter([data[:9], data[9:]])))
    assert written.getvalue().isascii()
    assert json.loads(written.getvalue()) == value


@pytest.mark.parametrize(
    ("environ", "columns", "width"),
    [({}, "", 100), ({"CI": "true"}, "", 120), ({}, "87", 87), ({}, "5", 60), ({}, "999", 200)],
)
def test_width_off_a_terminal(
    environ: dict[str, str], columns: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert console(environ=environ).width == width


def test_progress_is_one_line_of_a_terminal_that_is_gone_once_the_script_has_ended() -> None:
    given = console(True, {"TERM": "xterm"})
    given.on_event(ProgressEvent("pass", "timing", "timing", total=30))
    given.note("a note")
    given.on_event(ProgressEvent("pass", "timing", "timing", done=7, total=30))
    assert "launchscope: timing 7/30" in stderr_of(given)
    given.on_event(ProgressEvent("pass_end", "timing", "timing", text="0.4 s"))
    assert "launchscope: timing, 0.4 s" in stderr_of(given)
    given.on_event(ProgressEvent("pass", "trace", "tracing", total=5))
    given.on_event(ProgressEvent("ended"))
    assert stderr_of(given).endswith("\r\x1b[1A\x1b[2K")


@pytest.mark.parametrize(("terminal", "environ"), [(False, {}), (True, {"CI": "1"})])
def test_off_a_terminal_and_in_ci_there_are_only_lines(
    terminal: bool, environ: dict[str, str]
) -> None:
    given = console(terminal, {**environ, "NO_COLOR": "1"})
    given.on_event(ProgressEvent("run", text="running train.py"))
    given.on_event(ProgressEvent("pass", "timing", "timing", total=30))
    given.note("a note")
    given.on_event(ProgressEvent("pass_end", "timing", "timing", text="0.4 s"))
    given.on_event(ProgressEvent("ended"))
    assert stderr_of(given) == (
        "launchscope: running train.py\nnote: a note\nlaunchscope: timing, 0.4 s\n"
    )


def test_quiet_silences_all_but_errors() -> None:
    given = console(True)
    given.quiet = True
    given.message("timing")
    given.note("a note")
    assert stderr_of(given) == ""
    given.error("no such file", "did you mean train.py?")
    assert "no such file" in stderr_of(given)


def test_a_stream_that_cannot_encode_a_character_gets_an_escape() -> None:
    buffer = io.BytesIO()
    stdout: Any = io.TextIOWrapper(buffer, encoding="ascii")
    Console(stdout, Screen(), {}).out("9.01 ± 0.04 ms\n")
    assert buffer.getvalue() == b"9.01 ~ 0.04 ms\n"
