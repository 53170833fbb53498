"""What is installed here and what can be measured with it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

_TIMEOUT_S = 120

# Runs in the interpreter that would run the script, in a process of its own: it may crash.
_PROBE = """
import json, platform, sys
found = {"python": platform.python_version(), "executable": sys.executable}
try:
    import nvtx
    found["nvtx"] = getattr(nvtx, "__version__", "installed")
except Exception as error:
    found["nvtx_error"] = f"{type(error).__name__}: {error}"
try:
    import torch
    found["torch"] = torch.__version__
    found["cuda"] = torch.version.cuda
    found["available"] = torch.cuda.is_available()
    if found["available"]:
        found["devices"] = [
            torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())
        ]
        from torch.profiler import ProfilerActivity, profile
        x = torch.zeros(8, device="cuda")
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            x.add_(1)
            torch.cuda.synchronize()
        kinds = [str(event.device_type) for event in seen.events()]
        found["cupti"] = any(kind.endswith("CUDA") for kind in kinds)
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.graph(graph, stream=stream):
            x.add_(1)
        graph.replay()
        torch.cuda.synchronize()
        found["graphs"] = True
except Exception as error:
    found["torch_error"] = f"{type(error).__name__}: {error}"
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Diagnosis:
    """One thing that was looked at, and what was found. A note limits nothing by itself."""

    state: Literal["ok", "missing", "note"]
    name: str
    text: str


@dataclass(frozen=True)
class Doctor:
    """All of them, what follows from them, and whether PyTorch is there at all."""

    diagnoses: tuple[Diagnosis, ...]
    conclusion: str
    has_torch: bool


def doctor(python: str | None = None) -> Doctor:
    """Look at an interpreter (None: this one), its GPU, and what launchscope itself needs."""
    interpreter = python or sys.executable
    found = _probe(interpreter)
    diagnoses = (
        *_interpreter(interpreter, found),
        *_device(found),
        *(_installed(name) for name in ("launchscope", "msgspec", "pandas", "rich", "typer")),
        _folder("temporary files", Path(tempfile.gettempdir()), "missing"),
        _folder("this folder", Path.cwd(), "note"),
    )
    return Doctor(diagnoses, _conclusion(found), "torch" in found)


def _probe(interpreter: str) -> dict[str, Any]:
    """What the interpreter reports; `error` if it reports nothing."""
    try:
        result = subprocess.run(
            [interpreter, "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        return {"error": f"cannot be started: {error.strerror or error}"}
    except subprocess.TimeoutExpired:
        return {"error": f"did not answer within {_TIMEOUT_S} s"}
    try:
        return dict(json.loads(result.stdout.strip().splitlines()[-1]))
    except (IndexError, ValueError):
        last = (result.stderr.strip().splitlines() or ["no output"])[-1]
        return {"error": f"ended with exit code {result.returncode}: {last}"}


def _interpreter(interpreter: str, found: dict[str, Any]) -> list[Diagnosis]:
    if "error" in found:
        return [Diagnosis("missing", "python", f"{interpreter} {found['error']}")]
    python = Diagnosis("ok", "python", f"{found['python']} ({found['executable']})")
    if "torch" in found:
        build = f"built for CUDA {found['cuda']}" if found["cuda"] else "built without CUDA"
        torch = Diagnosis("ok", "torch", f"{found['torch']}, {build}")
    else:
        torch = Diagnosis("missing", "torch", found.get("torch_error", "cannot be imported"))
    if "nvtx" in found:
        nvtx = Diagnosis("ok", "nvtx", f"{found['nvtx']}: steps and passes are NVTX ranges")
    else:
        nvtx = Diagnosis("note", "nvtx", "not in this interpreter; launchscope lends its own copy")
    return [python, torch, nvtx]


def _device(found: dict[str, Any]) -> list[Diagnosis]:
    if "torch" not in found:
        return []
    if not found.get("available"):
        return [Diagnosis("note", "CUDA device", "PyTorch finds none: rehearsals only")]
    devices = ", ".join(found.get("devices", []))
    driver = _driver()
    diagnoses = [
        Diagnosis("ok", "CUDA device", devices or "present, without a name"),
        Diagnosis("ok" if driver else "note", "driver", driver or "version unknown"),
    ]
    for key, name, works, fails, untried in (
        ("cupti", "CUPTI", "kernels can be traced", "kernels cannot be traced",
         "a traced operation showed no kernel"),
        ("graphs", "CUDA graphs", "a capture and its replay worked", "no capture worked",
         "not tried"),
    ):  # fmt: skip
        if found.get(key):
            diagnoses.append(Diagnosis("ok", name, works))
        else:
            why = found.get("torch_error", untried)
            diagnoses.append(Diagnosis("missing", name, f"{fails}: {why}"))
    return diagnoses


def _driver() -> str | None:
    try:
        result = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.partition("\n")[0].strip() or None


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


def _conclusion(found: dict[str, Any]) -> str:
    if "torch" not in found:
        return (
            "Nothing can be measured: this interpreter has no PyTorch (--python chooses another)."
        )
    if not found.get("available"):
        return (
            "No GPU: launchscope profile rehearses a script here (structure, no times), and "
            "launchscope report shows what was recorded elsewhere."
        )
    if found.get("cupti") and found.get("graphs"):
        return "Everything can be measured here."
    return "Steps can be timed here; reports show what is missing above as not measured."
