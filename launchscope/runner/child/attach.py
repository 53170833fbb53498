"""Puts hooks, streams and, without a GPU, the rehearsal into a freshly imported torch."""

from __future__ import annotations

import glob
import os
from typing import Any

from launchscope.model import Environment, Schedule
from launchscope.runner.child.capture.streams import SideStreams
from launchscope.runner.child.step_controller import StepController
from launchscope.runner.protocol.folder import ChildFolder
from launchscope.runner.protocol.plan import Plan


def attach(torch: Any, folder: ChildFolder, spec: dict[str, Any]) -> StepController:
    """Called once, right after the script's own `import torch`."""
    plan = Plan(
        passes=tuple(spec["passes"]),
        schedule=Schedule(**spec["schedule"]),
        stop_after=spec["stop_after"],
        allow_captures=spec["allow_captures"],
        side_stream=spec["side_stream"],
        adopt=spec.get("adopt"),
    )
    conductor = StepController(torch, folder, plan, spec["earlier"])
    conductor.install()
    if has_no_gpu(torch):
        from launchscope.runner.child.ops.rehearsal import Rehearsal

        Rehearsal(torch, conductor.live).install()
        folder.tell("rehearsal")
        folder.write("environment", environment_of(torch, on_gpu=False))
        return conductor
    if plan.side_stream:
        SideStreams(torch).install()
    torch.cuda._lazy_call(lambda: folder.write("environment", environment_of(torch, on_gpu=True)))
    return conductor


def has_no_gpu(torch: Any) -> bool:
    """Whether this process can have no CUDA device, told without touching CUDA.

    Asking CUDA itself would fix CUDA_VISIBLE_DEVICES and spoil later forks.
    """
    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        return True
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return True
    return not (glob.glob("/dev/nvidia[0-9]*") or os.path.exists("/dev/dxg"))


def environment_of(torch: Any, *, on_gpu: bool) -> Environment:
    """What a reader of the figures has to know. Without a GPU the device is None."""
    import platform

    device = driver = None
    if on_gpu:
        device = torch.cuda.get_device_properties(torch.cuda.current_device()).name
        driver = _driver_version()
    return Environment(
        device=device,
        torch=str(torch.__version__),
        cuda=torch.version.cuda,
        driver=driver,
        python=platform.python_version(),
        platform=platform.platform(terse=True),
        world_size=int(os.environ.get("WORLD_SIZE", "1")),
    )


def _driver_version() -> str | None:
    """The kernel module's own word, no process started for it."""
    try:
        with open("/proc/driver/nvidia/version", encoding="ascii", errors="replace") as file:
            words = file.readline().split()
    except OSError:
        return None
    return next((word for word in words if word[:1].isdigit() and "." in word), None)
