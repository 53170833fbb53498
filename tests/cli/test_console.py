"""The two streams, and what the environment says about them."""

from __future__ import annotations

import io
from typing import Any

import pytest

from launchscope.cli.console import Console


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


@pytest.mark.parametrize(
    ("environ", "width"), [({}, 100), ({"CI": "true"}, 120), ({"COLUMNS": "87"}, 87)]
)
def test_width_off_a_terminal(environ: dict[str, str], width: int) -> None:
    assert console(environ=environ).width == width


def test_a_status_line_is_shown_on_a_terminal_only() -> None:
    off, on, ci = console(), console(True), console(True, {"CI": "1"})
    for given in (off, on, ci):
        given.status("timing")
    assert (stderr_of(off), stderr_of(ci)) == ("", "")
    assert "timing" in stderr_of(on)


def test_the_next_line_replaces_a_status_line() -> None:
    given = console(True, {"NO_COLOR": "1"})
    given.status("timing")
    given.message("timing, 0.4 s")
    assert stderr_of(given).endswith("\r\033[Klaunchscope: timing, 0.4 s\n")


def test_quiet_silences_all_but_errors() -> None:
    given = console(True)
    given.quiet = True
    given.status("timing")
    given.message("timing")
    given.note("a note")
    assert stderr_of(given) == ""
    given.error("no such file", "did you mean train.py?")
    assert "no such file" in stderr_of(given)


def test_an_error_is_a_sentence_and_a_hint() -> None:
    given = console()
    given.error("tain.py: no such file", "did you mean train.py?")
    assert stderr_of(given) == "error: tain.py: no such file\nhint: did you mean train.py?\n"


def test_a_stream_that_cannot_encode_a_character_gets_a_replacement() -> None:
    buffer = io.BytesIO()
    stdout: Any = io.TextIOWrapper(buffer, encoding="ascii")
    Console(stdout, Screen(), {}).out("9.01 ± 0.04 ms\n")
    assert buffer.getvalue() == b"9.01 ? 0.04 ms\n"
