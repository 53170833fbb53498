"""Progress on a real terminal, beside a script that prints in every way there is."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pyte
import pytest

from launchscope.cli.bottom_line import BottomLine
from launchscope.cli.console import Console
from tests.cli.test_hostile_terminal import chunks

ROWS, COLUMNS = 12, 70
SCRIPT = """
import os, sys, time, torch
print([os.isatty(n) for n in range(3)], os.get_terminal_size(), flush=True)
net = torch.nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(9):
    print(f"line {i} before, ", end="", flush=True)
    opt.zero_grad()
    time.sleep(0.15)
    loss = net(torch.ones(8, 4)).sum()
    print("in the middle, ", end="", flush=True)
    loss.backward()
    sys.stderr.write("of both streams, ")
    sys.stderr.flush()
    opt.step()
    print("after", flush=True)
    for k in range(3):
        sys.stderr.write(f"\\rbar {'#' * k}")
        sys.stderr.flush()
        time.sleep(0.05)
    print(f"\\n\\033[32mgreen {i}", end="\\033[0m\\n")
    print("\\n".join(f"much {i} {k}" for k in range(20)))
print("and no end", end="", flush=True)
"""


def open_terminal(rows: int = ROWS) -> tuple[int, int]:
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", rows, COLUMNS, 0, 0))
    return ours, its


class Shown:
    """A terminal's screen, with all rows that have left it."""

    def __init__(self) -> None:
        self.screen = pyte.HistoryScreen(COLUMNS, ROWS, history=10_000)
        self.stream = pyte.ByteStream(self.screen)

    def rows(self) -> list[str]:
        gone = ["".join(row[n].data for n in range(COLUMNS)) for row in self.screen.history.top]
        return [row.rstrip() for row in (*gone, *self.screen.display)]


def run(
    folder: Path, *words: str, during: Callable[[list[str]], None] = lambda rows: None
) -> Shown:
    ours, its = open_terminal()
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TERM": "xterm-256color"}
    for name in ("CI", "GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION"):
        environment.pop(name, None)
    process = subprocess.Popen(
        [sys.executable, *words], stdin=its, stdout=its, stderr=its, cwd=folder, env=environment
    )
    os.close(its)
    shown = Shown()
    for chunk in chunks(ours):
        shown.stream.feed(chunk)
        during([row.rstrip() for row in shown.screen.display])
    os.close(ours)
    assert process.wait(timeout=60) == 0
    return shown


@pytest.mark.child
def test_the_script_prints_as_with_python_above_a_line_of_ours(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    last_rows: list[str] = []

    def look(rows: list[str]) -> None:
        last_rows.append(rows[-1])
        assert not [row for row in rows[:-1] if re.search(r"launchscope: .*, (step|.* left)", row)]

    words = (
        "-m",
        "launchscope",
        "profile",
        "--warmup",
        "3",
        "--inspect",
        "4",
        "--full",
        "train.py",
    )
    profiled = run(tmp_path, *words, during=look).rows()
    plain = run(tmp_path, "train.py").rows()
    wanted = [row for row in plain if row]
    # From the run to its end: the one before it was stopped.
    start = len(profiled) - 1 - profiled[::-1].index(wanted[0])
    assert [row for row in profiled[start:] if row][: len(wanted)] == wanted
    assert wanted[-1] == "and no end"
    shown = {row for row in last_rows if row.startswith("launchscope: ")}
    assert "launchscope: finding the step, 3 steps" in shown
    assert "launchscope: [1/1] inspecting, 4 steps" in shown
    # Between the runs the lines that were held back, each from the beginning of a line.
    held = [row for row in profiled[:start] if row.startswith("launchscope: ")]
    assert held[-3].startswith("launchscope: finding the step, 3 steps, ")
    assert held[-2].startswith("launchscope: inspecting, 4 steps, ")
    assert held[-1].startswith("launchscope: running the script again")


class Row:
    """A line on a terminal that a test reads."""

    def __init__(self, rows: int = ROWS, term: str = "xterm") -> None:
        self.ours, self.its = open_terminal(rows)
        self.file = open(self.its, "w")  # noqa: SIM115
        self.line = BottomLine(self.file, {"TERM": term, "NO_COLOR": "1"})
        self.shown = Shown()

    def __enter__(self) -> Row:
        return self

    def __exit__(self, *raised: object) -> None:
        self.file.close()
        os.close(self.ours)

    def print(self, text: str) -> None:
        os.write(self.its, text.encode())

    def display(self) -> list[str]:
        time.sleep(0.05)
        os.set_blocking(self.ours, False)
        try:
            while chunk := os.read(self.ours, 65536):
                self.shown.stream.feed(chunk)
        except BlockingIOError:
            pass
        return [row.rstrip() for row in self.shown.screen.display]


def test_a_line_that_is_too_long_ends_in_an_ellipsis() -> None:
    with Row() as row:
        row.line.show("word " * 40)
        last = row.display()[-1]
        assert last.endswith("…")
        assert len(last) == COLUMNS - 1


def test_a_name_in_it_is_no_command_of_a_ci_service() -> None:
    """A container may have got the terminal of one, and no variable that tells."""
    with Row() as row:
        Console(sys.stdout, row.file, {"TERM": "xterm"}).status("read ##[error]x")
        assert row.display()[-1] == r"launchscope: read \x23#[error]x"


@pytest.mark.parametrize("beginning", ["", "a"])  # a wide sign may begin in the last column
def test_wide_signs_leave_the_row_no_sooner(beginning: str) -> None:
    with Row() as row:
        row.print("a script's line")
        row.line.show(beginning + "学" * (COLUMNS - 10))
        *others, last = row.display()
        assert others == ["a script's line", *[""] * (ROWS - 2)]
        assert last.rstrip(" …").endswith("学")
        row.line.show("short")
        assert row.display() == [*others, "short"]


def test_a_script_in_the_last_row_moves_up_by_one() -> None:
    with Row() as row:
        row.print("\n".join(f"line {n}" for n in range(ROWS)) + " goes")
        row.line.show("running")
        row.print(" on")
        assert row.display()[-2:] == [f"line {ROWS - 1} goes on", "running"]


def test_a_script_that_resets_the_terminal_gets_the_line_back_with_the_next_text() -> None:
    with Row() as row:
        row.line.show("running")
        row.print("\033c" + "\n".join(f"line {n}" for n in range(ROWS)))
        row.line.show("still running")
        assert row.display()[-2:] == [f"line {ROWS - 1}", "still running"]


def test_closing_it_leaves_the_whole_screen_and_the_cursor() -> None:
    with Row() as row:
        row.print("begun, ")
        row.line.show("running")
        row.line.close()
        row.print("done\n" + "\n".join(f"line {n}" for n in range(ROWS)))
        assert row.shown.screen.margins is None
        assert row.display()[-1] == f"line {ROWS - 1}"
        assert "begun, done" in row.shown.rows()


@pytest.mark.parametrize(("rows", "term"), [(3, "xterm"), (ROWS, "dumb"), (ROWS, "")])
def test_a_terminal_that_cannot_show_it_gets_nothing(rows: int, term: str) -> None:
    with Row(rows, term) as row:
        row.line.show("running")
        row.line.close()
        assert set(row.display()) == {""}


def test_a_line_begins_where_no_other_ends() -> None:
    with Row() as row:
        row.print("half a line")
        row.line.begin_line()
        row.print("ours\n")
        row.line.begin_line()
        row.print("and ours\n")
        assert row.display()[:3] == ["half a line", "ours", "and ours"]
