"""What is installed here and what can be measured with it."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from typing import Literal

import msgspec
from msgspec import Struct

from launchscope import __version__

_TIMEOUT_S = 120

# Runs in the interpreter that would run the script, in a process of its own: it may crash.
# Python or PYTHONPATH puts the working directory on sys.path, whose files are not to run here.
# For `-c`, 3.13 imports from there before the first statement, so this comes through stdin.
_PROBE = """
import os, sys
found = [path or "." for path in sys.path]
sys.path[:] = [p for p in found if not (os.path.exists(p) and os.path.samefile(p, "."))]
import json, platform

def report(state, name, text):
    print(json.dumps([state, name, text]), flush=True)

def attempt(name, works, fails, action):
    try:
        found = action()
        report("ok" if found else "missing", name, works if found else fails)
    except Exception as error:
        report("missing", name, f"{fails}: {type(error).__name__}: {error}")

def traces():
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        torch.zeros(8, device="cuda").add_(1)
        torch.cuda.synchronize()
    return any(event.device_type == torch.autograd.DeviceType.CUDA for event in seen.events())

def captures():
    x, graph = torch.zeros(8, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
        x.add_(1)
    graph.replay()
    torch.cuda.synchronize()
    return True

report("ok", "python", f"{platform.python_version()} ({sys.executable})")
try:
    import torch
except Exception as error:
    report("missing", "torch", f"{type(error).__name__}: {error}")
    sys.exit()
cuda = torch.version.cuda
build = f"built for CUDA {cuda}" if cuda else "built without CUDA"
report("ok", "torch", f"{torch.__version__}, {build}")
if not torch.cuda.is_available():
    report("note", "CUDA device", "PyTorch finds none: rehearsals only")
    sys.exit()
devices = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
report("ok", "CUDA device", ", ".join(devices))
attempt("CUPTI", "kernels can be traced", "kernels cannot be traced", traces)
attempt("CUDA graphs", "a capture and its replay worked", "no capture worked", captures)
"""


State = Literal["ok", "missing", "note"]


class Diagnosis(Struct, frozen=True):
    """One check and its result."""

    state: State
    name: str
    text: str


class DoctorResult(Struct, frozen=True):
    """All checks, and what follows from them."""

    diagnoses: tuple[Diagnosis, ...]
    conclusion: str
    has_torch: bool


def doctor(python: str | None = None) -> DoctorResult:
    """Look at an interpreter (None: this one), its GPU, and what launchscope itself needs."""
    found = _probe(python or sys.executable)
    works = {diagnosis.name for diagnosis in found if diagnosis.state == "ok"}
    found.append(Diagnosis("ok", "launchscope", __version__))
    return DoctorResult(tuple(found), _conclusion(works), "torch" in works)


def _probe(interpreter: str) -> list[Diagnosis]:
    """What the interpreter reports, until it crashes if it does."""
    try:
        result = subprocess.run(
            [interpreter, "-"],
            input=_PROBE,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [Diagnosis("missing", "python", f"{interpreter} cannot be started: {error}")]
    found = []
    for line in result.stdout.splitlines():
        with suppress(msgspec.MsgspecError, UnicodeError):  # what a library prints
            found.append(Diagnosis(*msgspec.json.decode(line, type=tuple[State, str, str])))
    if result.returncode != 0:
        last = "".join(result.stderr.strip().splitlines()[-1:])
        found.append(Diagnosis("missing", "probe", f"exit code {result.returncode}: {last}"))
    return found


def _conclusion(works: set[str]) -> str:
    if "torch" not in works:
        return "Nothing can be measured: this interpreter has no PyTorch (see --python)."
    if "CUDA device" not in works:
        return (
            "No GPU: launchscope profile rehearses a script here (structure, no times), and "
            "launchscope report shows what was recorded elsewhere."
        )
    if {"CUPTI", "CUDA graphs"} <= works:
        return "Everything can be measured here."
    return "Steps can be timed here; reports show what is missing above as not measured."
