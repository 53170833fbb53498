"""What is installed here and what can be measured with it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

_TIMEOUT_S = 120

# Runs in the interpreter that would run the script, in a process of its own: it may crash.
_PROBE = """
import json, platform, sys

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
    return any(str(event.device_type).endswith("CUDA") for event in seen.events())

def captures():
    x, graph = torch.zeros(8, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
        x.add_(1)
    graph.replay()
    torch.cuda.synchronize()
    return True

report("ok", "python", f"{platform.python_version()} ({sys.executable})")
try:
    import nvtx
    report("ok", "nvtx", getattr(nvtx, "__version__", "installed"))
except Exception:
    report("note", "nvtx", "not in this interpreter; launchscope lends its own copy")
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
try:
    with open("/proc/driver/nvidia/version") as file:
        words = file.readline().split()
    report("ok", "driver", next(word for word in words if word[0].isdigit()))
except (OSError, StopIteration):
    report("note", "driver", "version unknown")
attempt("CUPTI", "kernels can be traced", "kernels cannot be traced", traces)
attempt("CUDA graphs", "a capture and its replay worked", "no capture worked", captures)
"""


@dataclass(frozen=True)
class Diagnosis:
    """One thing that was looked at, and what was found."""

    state: Literal["ok", "missing", "note"]
    name: str
    text: str


@dataclass(frozen=True)
class DoctorResult:
    """Everything that was looked at, and what follows from it."""

    diagnoses: tuple[Diagnosis, ...]
    conclusion: str
    has_torch: bool


def doctor(python: str | None = None) -> DoctorResult:
    """Look at an interpreter (None: this one), its GPU, and what launchscope itself needs."""
    found = _probe(python or sys.executable)
    works = {diagnosis.name for diagnosis in found if diagnosis.state == "ok"}
    diagnoses = (
        *found,
        *(_installed(name) for name in ("launchscope", "msgspec", "pandas", "rich", "typer")),
        _folder("temporary files", Path(tempfile.gettempdir()), "missing"),
        _folder("this folder", Path.cwd(), "note"),
    )
    return DoctorResult(diagnoses, _conclusion(works), "torch" in works)


def _probe(interpreter: str) -> list[Diagnosis]:
    """What the interpreter reports, until it crashes if it does."""
    try:
        result = subprocess.run(
            [interpreter, "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        problem = f"cannot be started: {error.strerror or error}"
        return [Diagnosis("missing", "python", f"{interpreter} {problem}")]
    except subprocess.TimeoutExpired:
        problem = f"did not answer within {_TIMEOUT_S} s"
        return [Diagnosis("missing", "python", f"{interpreter} {problem}")]
    found = []
    for line in result.stdout.splitlines():
        with suppress(ValueError, TypeError):  # what a library prints
            found.append(Diagnosis(*json.loads(line)))
    if result.returncode != 0:
        last = (result.stderr.strip().splitlines() or ["no output"])[-1]
        text = f"{interpreter} ended with exit code {result.returncode}: {last}"
        found.append(Diagnosis("missing", "probe", text))
    return found


def _installed(name: str) -> Diagnosis:
    try:
        return Diagnosis("ok", name, version(name))
    except PackageNotFoundError:
        if name == "launchscope":
            return Diagnosis("note", name, "runs from its sources, not installed")
        return Diagnosis("missing", name, "not installed: install launchscope again")


def _folder(name: str, path: Path, otherwise: Literal["missing", "note"]) -> Diagnosis:
    try:
        with tempfile.TemporaryFile(dir=path):
            return Diagnosis("ok", name, f"{path} is writable")
    except OSError as error:
        return Diagnosis(otherwise, name, f"{path} is not writable: {error.strerror or error}")


def _conclusion(works: set[str]) -> str:
    if "torch" not in works:
        return (
            "Nothing can be measured: this interpreter has no PyTorch (--python chooses another)."
        )
    if "CUDA device" not in works:
        return (
            "No GPU: launchscope profile rehearses a script here (structure, no times), and "
            "launchscope report shows what was recorded elsewhere."
        )
    if {"CUPTI", "CUDA graphs"} <= works:
        return "Everything can be measured here."
    return "Steps can be timed here; reports show what is missing above as not measured."
