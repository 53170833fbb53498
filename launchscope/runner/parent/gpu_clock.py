"""The clock of the GPU while steps are timed, and what slowed it down, from NVML.

NVML is asked from this process at the end of the timing pass, so that the script's own process
does nothing more. Where the library or a figure is missing, nothing is known.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from launchscope.model import GpuClock
from launchscope.runner.protocol import events

_LIBRARY = "libnvidia-ml.so.1"
# Of nvml.h.
_CLOCK_SM = 1
_REASONS = {
    0x08: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}


class ClockWatch:
    """Takes in the events of one child. `found` is None until the timing pass has ended."""

    def __init__(self, load: Callable[[str], Any] = ctypes.CDLL) -> None:
        self.found: GpuClock | None = None
        self._load = load
        self._uuid: str | None = None

    def on_event(self, event: events.Event) -> None:
        match event:
            case events.DeviceKnown():
                self._uuid = event.device_uuid
            case events.PassEnded(name="timing") if self._uuid is not None:
                self.found = self._ask(f"GPU-{self._uuid.removeprefix('GPU-')}".encode())

    def _ask(self, uuid: bytes) -> GpuClock | None:
        handle, clock, bits = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_ulonglong()
        try:
            nvml = self._load(_LIBRARY)
            failed = (
                nvml.nvmlInit_v2()
                or nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(handle))
                or nvml.nvmlDeviceGetClockInfo(handle, _CLOCK_SM, ctypes.byref(clock))
                or nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle, ctypes.byref(bits))
            )
            nvml.nvmlShutdown()
        except (OSError, AttributeError):  # no driver, or another version of it
            return None
        throttled = tuple(name for bit, name in _REASONS.items() if bits.value & bit)
        return None if failed else GpuClock(float(clock.value), throttled)
