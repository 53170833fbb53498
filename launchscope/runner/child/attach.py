"""Puts hooks, streams and, without a GPU, the rehearsal into a freshly imported torch."""

from __future__ import annotations

import glob
import os

from launchscope.model import Environment
from launchscope.runner.child.capture.streams import SideStreams
from launchscope.runner.child.step_controller import StepController
from launchscope.runner.child.torch_types import Torch
from launchscope.runner.protocol.events import RehearsalStarted
from launchscope.runner.protocol.folder import ChildFolder
from launchscope.runner.protocol.plan import Plan


def attach(torch: Torch, folder: ChildFolder, plan: Plan) -> StepController:
    """Called once, right after the script's own `import torch`."""
    controller = StepController(torch, folder, plan)
    controller.install()
    if has_no_gpu(torch):
        from launchscope.runner.child.ops.rehearsal import install_rehearsal

        install_rehearsal(torch, controller.rehearsal)
        folder.emit(RehearsalStarted())
        folder.write("environment", environment_of(torch, on_gpu=False))
        return controller
    if plan.side_stream:
        SideStreams(torch).install()
    torch.cuda._lazy_call(lambda: folder.write("environment", environment_of(torch, on_gpu=True)))
    return controller


def has_no_gpu(torch: Torch) -> bool:
    """Whether this process can have no CUDA device, found out without touching CUDA.

    To ask CUDA itself would fix CUDA_VISIBLE_DEVICES and spoil later forks.
    """
    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        return True
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return True
    return not (glob.glob("/dev/nvidia[0-9]*") or os.path.exists("/dev/dxg"))


def environment_of(torch: Torch, *, on_gpu: bool) -> Environment:
    """What a reader of the measurements has to know. Without a GPU the device is None."""
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
    """What the kernel module says; nvidia-smi would cost a process."""
    try:
        with open("/proc/driver/nvidia/version", encoding="ascii", errors="replace") as file:
            words = file.readline().split()
    except OSError:
        return None
    return next((word for word in words if word[:1].isdigit() and "." in word), None)
