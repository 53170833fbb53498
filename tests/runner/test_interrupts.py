"""What a signal handler or a thread of the script raises reaches it, whatever code runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.model import Schedule
from tests.runner.children import recorded

pytestmark = pytest.mark.child

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


# Every third step is broken off at some call of a function of launchscope's, as a debugger or a
# signal does. `left` counts the modes that are there between steps after the inspection.
DEBUGGED = """
import random, sys
import torch
random.seed({seed})
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 2)
    def forward(self, x):
        return self.inner(x)
calls = raised = done = at = 0
def traced(frame, event, argument):
    global calls
    if event == "call" and "launchscope/runner/child" in frame.f_code.co_filename:
        calls += 1
        if calls == at:
            raise {error}
net = Net()
opt = torch.optim.Adam(net.parameters())
def step():
    torch.set_grad_enabled(True)  # which an interrupted optimizer leaves disabled
    opt.zero_grad()
    net(torch.randn(8, 4).to("cpu")).sum().backward()
    opt.step()
for _ in range(3):
    step()
for number in range(240):
    at = random.randrange(1, max(2, calls)) if number % 3 == 0 else 0
    calls = 0
    sys.settrace(traced)  # an error ends the tracing
    try:
        step()
        done += 1
    except {error}:
        raised += 1
    finally:
        sys.settrace(None)
left = torch._C._len_torch_dispatch_stack()
open("result", "w").write(f"{{done + raised}} {{raised > 9}} {{left}}")
"""


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "TimeoutError"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_errors_from_outside_cost_neither_the_measurement_nor_leave_modes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str, seed: int
) -> None:
    monkeypatch.chdir(tmp_path)
    source = DEBUGGED.format(error=error, seed=seed)
    result = recorded(tmp_path, source, schedule=Schedule(inspect=20, full=True))
    assert (tmp_path / "result").read_text() == "240 True 0"
    assert result.recording.inspect is not None, result.events
    assert not result.recording.failures, result.events
    assert result.recording.inspect.steps >= 20


def test_a_forward_that_an_interrupt_has_left_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = """
    import torch
    class Net(torch.nn.Module):
        interrupted = False
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 2)
        def forward(self, x):
            if self.interrupted:
                raise KeyboardInterrupt
            return self.inner(x)
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(40):
        net.interrupted = step in (2, 14)
        try:
            opt.zero_grad()
            net(torch.randn(8, 4)).sum().backward()
            opt.step()
        except KeyboardInterrupt:
            pass
    """
    result = recorded(tmp_path, source, schedule=Schedule(full=True))
    assert result.recording.step is not None, result.events
    assert result.recording.step.names == ("Net", "backward", "SGD")
    assert result.recording.inspect is not None
