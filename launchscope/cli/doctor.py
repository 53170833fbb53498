"""launchscope doctor: what is installed here and what can be measured with it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from launchscope.cli import options
from launchscope.cli.state import console

_TIMEOUT_S = 120

# Runs in the interpreter that would run the script, as one process of its own: it may crash.
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
class Check:
    """One line: whether it is well, what was looked at, and what was found."""

    state: str  # ok | missing | note
    name: str
    said: str


def doctor(
    python: options.Python = None,
    verbose: options.Verbose = False,
    config: options.Config = None,
) -> int:
    """Say what is installed here and what can be measured with it."""
    from launchscope.config import load_settings

    screen = console()
    screen.verbose = verbose
    interpreter = load_settings({"python": python}, config=config).python or sys.executable
    found = _probe(interpreter)
    checks = [*_interpreter(interpreter, found), *_device(found), *_own(), *_folders()]
    width = max(len(check.name) for check in checks)
    lines = [f"{check.state:<8} {check.name:<{width}}  {check.said}" for check in checks]
    screen.out("\n".join(lines) + f"\n\n{_conclusion(found)}\n")
    return 0 if "torch" in found else 3


def _probe(interpreter: str) -> dict[str, Any]:
    """What the interpreter has to say; `error` when it says nothing usable."""
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
        return {"error": f"gave no answer within {_TIMEOUT_S} s"}
    try:
        found = json.loads(result.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        last = (result.stderr.strip().splitlines() or ["no output"])[-1]
        return {"error": f"ended with exit code {result.returncode}: {last}"}
    return dict(found)


def _interpreter(interpreter: str, found: dict[str, Any]) -> list[Check]:
    if "error" in found:
        return [Check("missing", "python", f"{interpreter} {found['error']}")]
    checks = [Check("ok", "python", f"{found['python']} ({found['executable']})")]
    if "torch" in found:
        build = f"built for CUDA {found['cuda']}" if found["cuda"] else "built without CUDA"
        checks.append(Check("ok", "torch", f"{found['torch']}, {build}"))
    else:
        checks.append(Check("missing", "torch", found.get("torch_error", "cannot be imported")))
    if "nvtx" in found:
        checks.append(Check("ok", "nvtx", f"{found['nvtx']}: steps and passes are NVTX ranges"))
    else:
        checks.append(
            Check("note", "nvtx", "not in this interpreter; launchscope lends it its own copy")
        )
    return checks


def _device(found: dict[str, Any]) -> list[Check]:
    if "torch" not in found:
        return []
    if not found.get("available"):
        return [Check("note", "CUDA device", "none that PyTorch can use: rehearsals only")]
    devices = found.get("devices", [])
    checks = [Check("ok", "CUDA device", ", ".join(devices) or "present, without a name")]
    driver = _driver()
    checks.append(
        Check("ok", "driver", driver) if driver else Check("note", "driver", "version unknown")
    )
    if found.get("cupti"):
        checks.append(Check("ok", "CUPTI", "kernels can be traced"))
    else:
        why = found.get("torch_error", "a traced operation showed no kernel")
        checks.append(Check("missing", "CUPTI", f"kernels cannot be traced: {why}"))
    if found.get("graphs"):
        checks.append(Check("ok", "CUDA graphs", "a capture and its replay worked"))
    else:
        why = found.get("torch_error", "not tried")
        checks.append(Check("missing", "CUDA graphs", f"no capture worked: {why}"))
    return checks


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
    lines = result.stdout.strip().splitlines()
    return lines[0] if lines else None


def _own() -> list[Check]:
    """The libraries launchscope itself stands on, in its own interpreter."""
    return [_installed(name) for name in ("launchscope", "msgspec", "pandas", "rich", "typer")]


def _installed(name: str) -> Check:
    try:
        return Check("ok", name, version(name))
    except PackageNotFoundError:
        if name == "launchscope":
            return Check("note", name, "runs from its sources, not installed")
        return Check("missing", name, "not installed: install launchscope again")


def _folders() -> list[Check]:
    places = (("temporary files", Path(tempfile.gettempdir())), ("this folder", Path.cwd()))
    return [_writable(name, path) for name, path in places]


def _writable(name: str, path: Path) -> Check:
    try:
        with tempfile.TemporaryFile(dir=path):
            return Check("ok", name, f"{path} can be written")
    except OSError as error:
        state = "missing" if name == "temporary files" else "note"
        return Check(state, name, f"{path} cannot be written: {error.strerror or error}")


def _conclusion(found: dict[str, Any]) -> str:
    if "torch" not in found:
        return "Nothing can be measured: this interpreter has no PyTorch (--python names another)."
    if not found.get("available"):
        return (
            "No GPU: launchscope profile rehearses a script here (structure, no times), and "
            "launchscope report shows what was recorded elsewhere."
        )
    if found.get("cupti") and found.get("graphs"):
        return "Everything can be measured here."
    return "Steps can be timed here; what is missing above will be told as not measured."
