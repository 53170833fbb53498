"""What a signal handler or a thread of the script raises reaches it, whatever code runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.model import Schedule
from tests.runner.children import recorded

# Each step is interrupted once, at a random moment or soon after it; `lost` counts the errors that
# did not arrive. Quiet steps come first: torch itself swallows errors in its first one.
STORM = """
import random, signal, sys, threading, time
import torch
random.seed(1)
class Late(Exception):
    pass
def handler(signum, frame):
    raise {error}
def interrupt_later(seconds):
    {interrupt}
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    torch.set_grad_enabled(True)  # which an interrupted optimizer leaves disabled
    opt.zero_grad()
    net(torch.randn(8, 4).to("cpu")).sum().backward()
    opt.step()
for _ in range(20):
    step()
signal.signal(signal.SIGALRM, handler)
raised = lost = took = 0
for i in range(120):
    try:
        begun = time.perf_counter()
        seconds = random.uniform(1e-5, max(took, 2e-3))
        interrupt_later(seconds)
        step()
        took = time.perf_counter() - begun
        while time.perf_counter() < begun + seconds + 2:
            pass
        lost += 1
    except {kind}:
        raised += 1
open("result", "w").write(f"raised {{raised}} lost {{lost}}")
"""
ALARM = "signal.setitimer(signal.ITIMER_REAL, seconds)"
ASYNCHRONOUS = """
    import ctypes
    thread = ctypes.c_ulong(threading.get_ident())
    raises = ctypes.pythonapi.PyThreadState_SetAsyncExc
    threading.Timer(seconds, lambda: raises(thread, ctypes.py_object({kind}))).start()
"""
STORMS = {
    "a timeout": STORM.format(error='TimeoutError("late")', kind="TimeoutError", interrupt=ALARM),
    "an error of its own": STORM.format(error="Late", kind="Late", interrupt=ALARM),
    "an exit": STORM.format(error="SystemExit(3)", kind="SystemExit", interrupt=ALARM),
    "an interrupt": STORM.format(
        error="KeyboardInterrupt", kind="KeyboardInterrupt", interrupt=ALARM
    ),
    "a thread": STORM.format(
        error="None", kind="Late", interrupt=ASYNCHRONOUS.format(kind="Late").strip()
    ),
}


@pytest.mark.parametrize("name", STORMS)
def test_no_error_from_outside_is_lost_in_an_inspected_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = recorded(tmp_path, STORMS[name], schedule=Schedule(inspect=200, full=True))
    assert (tmp_path / "result").read_text() == "raised 120 lost 0", result.events
