"""A headless Chromium, driven by its DevTools protocol over a pipe: no driver is needed."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-sync",
)  # fmt: skip
_PATIENCE_S = 60
_KEYS = {"ArrowLeft": 37, "ArrowRight": 39, "Tab": 9, "Enter": 13, "Escape": 27, "/": 191}


class Page:
    """One page that is shown. `errors`: what it wrote to the console, or threw."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []
        self.errors: list[str] = []
        (target,) = [
            found["targetId"]
            for found in self._call("Target.getTargets")["targetInfos"]
            if found["type"] == "page"
        ]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def show(self, path: Path, width: int = 1200, height: int = 900, *, dark: bool = False) -> None:
        """Loads the file in a window of this size, in a light or dark theme."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        self.errors.clear()
        self._events.clear()
        self._call("Page.navigate", url=path.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._receive()

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression, after what it waits for."""
        answer = self._call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True,
            userGesture=True,
        )  # fmt: skip
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def drawn(self, script: str) -> Any:
        """The value of an expression once the page has drawn what it was asked for."""
        wait = "new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))"
        return self.run(f"{wait}.then(() => {script})")

    def press(self, key: str) -> None:
        """One key, as a keyboard sends it."""
        text = {} if len(key) > 1 else {"text": key}
        code = _KEYS.get(key, ord(key.upper()) if len(key) == 1 else 0)
        for kind in ("keyDown", "keyUp"):
            self._call(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code,
                **(text if kind == "keyDown" else {}),
            )  # fmt: skip

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """A mouse event (mouseMoved, mousePressed, mouseReleased, mouseWheel) of the window."""
        if kind in ("mousePressed", "mouseReleased"):
            more = {"button": "left", "clickCount": 1, **more}
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def touch(self, *steps: Sequence[tuple[float, float]]) -> None:
        """Fingers on a touch screen: the places of each, from the touch to the end. A step with
        more or fewer of them adds or lifts the last ones."""
        before = 0
        for step in (*steps, ()):
            kind = "touchStart" if len(step) > before else "touchMove"
            if len(step) < before:
                kind = "touchEnd"
            points = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(step)]
            self._call("Input.dispatchTouchEvent", type=kind, touchPoints=points)
            before = len(step)

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """The page as a PNG file."""
        shot = self._call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        """The next message; events are kept."""
        until = time.monotonic() + _PATIENCE_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(until - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            received = os.read(self._read, 1 << 20)
            assert received, "the browser has ended"
            self._buffer += received
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        if "method" in found:
            self._events.append(found)
            given = found["params"]
            if found["method"] == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(given["exceptionDetails"]))
            elif found["method"] == "Runtime.consoleAPICalled" and given["type"] != "log":
                self.errors.append(json.dumps(given["args"]))
            elif found["method"] == "Log.entryAdded":
                self.errors.append(given["entry"]["text"])
        return found


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A browser with one page, whose files are below this folder."""
    assert BROWSER is not None
    for_browser, ours = os.pipe()
    our_answers, answers = os.pipe()
    # The browser reads commands from descriptor 3 and answers on 4.
    process = subprocess.Popen(
        [
            *("bash", "-c", f'exec "$@" 3<&{for_browser} 4>&{answers}', "bash", BROWSER, *FLAGS),
            *("--remote-debugging-pipe", f"--user-data-dir={folder / 'user'}", "about:blank"),
        ],
        pass_fds=(for_browser, answers),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(for_browser)
    os.close(answers)
    try:
        yield Page(our_answers, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(our_answers)
