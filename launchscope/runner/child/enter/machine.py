"""The machine that this process runs on: its GPU, and what keeps the process from it."""

from __future__ import annotations

import glob
import os
import platform
from collections.abc import Iterable

from launchscope.model import Environment, UnusedGpu
from launchscope.runner.child.facts.torch_types import Module, Torch

_HIDDEN = ("", "-1")  # what hides every GPU in CUDA_VISIBLE_DEVICES


def has_no_gpu(torch: Torch) -> bool:
    """Whether this process can have no CUDA device. To ask CUDA itself would fix
    CUDA_VISIBLE_DEVICES and spoil later forks."""
    return unused_gpu(torch) != UnusedGpu("script")


def unused_gpu(torch: Torch) -> UnusedGpu | None:
    """What keeps a script that uses no CUDA device from the GPU of its machine; None where the
    machine has none."""
    if not has_device():
        return None
    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        return UnusedGpu("build")
    return UnusedGpu("hidden" if is_hidden() else "script")


def has_device() -> bool:
    return bool(glob.glob("/dev/nvidia[0-9]*")) or os.path.exists("/dev/dxg")


def is_hidden() -> bool:
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in _HIDDEN


def environment_of(torch: Torch, *, on_gpu: bool) -> Environment:
    """What a reader of the measurements has to know. Without a GPU the device is None."""
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
        world_size=_world_size(torch),
    )


def index_of_device(modules: Iterable[Module]) -> int | None:
    """The CUDA device of the first parameter that is on one; None if none is."""
    devices = (parameter.device for module in modules for parameter in module.parameters())
    return next((int(device.index) for device in devices if device.type == "cuda"), None)


def other_device(torch: Torch, modules: Iterable[Module]) -> int | None:
    """The CUDA device of these modules, if it is not the current one."""
    index = index_of_device(modules) if torch.cuda.device_count() > 1 else None
    return index if index is not None and index != torch.cuda.current_device() else None


def _world_size(torch: Torch) -> int:
    """Of the process group, or of torchrun before there is one."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    text = os.environ.get("WORLD_SIZE", "")
    return max(1, int(text)) if text.isdecimal() else 1


def _driver_version() -> str | None:
    """What the kernel module says; nvidia-smi would cost a process."""
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8", errors="replace") as file:
            words = file.readline().split()
    except OSError:
        return None
    return next((word for word in words if word[:1].isdigit() and "." in word), None)
