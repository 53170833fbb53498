"""The real command on a terminal, with traces, files and words that want to take it over."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import pyte
import pytest

from launchscope.cli import main
from launchscope.visible import visible
from tests.builders import TraceBuilder, loop_trace
from tests.kineto_text import kineto_text

# Sets the clipboard and the title, clears the screen in two ways, begins a command of CI on a line
# of its own, turns the direction of the text, and ends in a byte that is no UTF-8.
EVIL = "e\x1b]52;c;ZXZpbA==\x07\x1b]0;evil\x07\x1b[2J\x9b2J\n::error::x\r\u202e" + os.fsdecode(
    b"\xe9"
)
_ALLOWED = {
    "draw", "linefeed", "carriage_return", "select_graphic_rendition", "erase_in_line", "cursor_up",
    "set_mode", "reset_mode",
}  # fmt: skip
TRAIN = """
import torch
net = torch.nn.Linear(2, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(30):
    opt.zero_grad()
    net(torch.ones(1, 2)).sum().backward()
    opt.step()
"""


class _Asked:
    """Keeps what a text asks of the screen."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: self.names.add(name)


def step(builder: TraceBuilder) -> None:
    for index in range(6):
        builder.op("aten::mul").work(20).launch(kernel_us=4, name=f"{EVIL[:-1]} kernel {index % 3}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace with such kernels, a script and settings, in a folder and files of such names."""
    folder = tmp_path_factory.mktemp("hostile") / EVIL
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system takes no such name")
    (folder / f"{EVIL}.json").write_text(kineto_text(loop_trace(5, step).document()))
    (folder / f"{EVIL}.py").write_text(TRAIN)
    (folder / f"{EVIL}.toml").write_text(f"[tool.launchscope]\n'{visible(EVIL)}' = 1\n")
    return folder


RUN_EACH = """
import json, sys
from launchscope.cli import main
for words in json.loads(sys.argv[1]):
    print(f"\\nexit code {main(words)}\\nthe next command", flush=True)
"""


def on_terminal(folder: Path, commands: Sequence[Sequence[str]], **environ: str) -> list[str]:
    """What each of the commands, one after the other, writes to its terminal."""
    ours, its = pty.openpty()
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TERM": "xterm", **environ}
    process = subprocess.Popen(
        [sys.executable, "-c", RUN_EACH, json.dumps(commands)],
        stdin=its, stdout=its, stderr=its, cwd=folder, env=environment,
    )  # fmt: skip
    os.close(its)
    written = b"".join(chunks(ours))
    os.close(ours)
    process.wait(timeout=60)
    # A terminal of eight bits takes each byte for a sign.
    encoding = "latin-1" if "PYTHONIOENCODING" in environ else "utf-8"
    return written.decode(encoding).split("the next command")[:-1]


def chunks(descriptor: int) -> Iterator[bytes]:
    with contextlib.suppress(OSError):  # the last process that had the terminal open has ended
        while chunk := os.read(descriptor, 65536):
            yield chunk


ON_TERMINAL = [
    ("report", f"{EVIL}.json", "-o", f"{EVIL}.md", "-o", f"{EVIL}.csv", "-o", f"{EVIL}.sarif"),
    ("report", f"{EVIL}.json", "-f", "json"),
    ("profile", "-m", EVIL),
    ("profile", f"{EVIL}.py", EVIL),
]
REFUSED = [
    ("report", f"{EVIL} missing"),
    ("report", f"{EVIL}.json", "--step-range", EVIL),
    ("report", f"{EVIL}.json", f"--{EVIL}"),
    ("report", f"{EVIL}.json", "--config", f"{EVIL}.toml"),
    ("rules", EVIL),
    (EVIL,),
    ("profile", f"{EVIL} missing.py"),
    ("profile", "--timing", EVIL, f"{EVIL}.py"),
    ("doctor", "--python", EVIL),
    ("check", "--limit", f"{EVIL}=1", f"{EVIL}.py"),
]


@pytest.mark.child
def test_the_terminal_shows_names_and_does_nothing_they_say(folder: Path) -> None:
    texts = on_terminal(folder, ON_TERMINAL, GITHUB_ACTIONS="true")
    codes = [int(text.split()[-1]) for text in texts]
    assert codes == [0, 0, 0, 0]
    for text in texts:
        asked = _Asked()
        pyte.Stream(cast("pyte.Screen", asked)).feed(text)
        assert asked.names <= _ALLOWED
        screen = pyte.Screen(250, 4 * text.count("\n") + 8)
        pyte.Stream(screen).feed(text)
        assert screen.title == ""
        shown = [line.rstrip() for line in screen.display]
        assert not [line for line in shown if line.lstrip().startswith("::")]
        assert "]52;c;ZXZpbA" in "".join("".join(line.split()) for line in shown)


@pytest.mark.child
@pytest.mark.parametrize("words", REFUSED, ids=lambda words: " ".join(words).replace(EVIL, "EVIL"))
def test_a_message_quotes_a_word_visibly(
    folder: Path,
    words: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    assert main(list(words)) in (2, 3)
    shown = "".join(capsys.readouterr())
    assert "]52;c;ZXZpbA" in shown
    assert all(visible(line) == line for line in shown.split("\n"))
    assert "bug in launchscope" not in shown
