"""The clock of the GPU while steps are timed, and what slowed it down, from NVML.

NVML is asked from this process at the ends of the timed passes, so that the script's own process
does nothing more. Where the library or a figure is missing, nothing is known.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from launchscope.model import GpuClock
from launchscope.runner.protocol import events

_LIBRARY = "libnvidia-ml.so.1"
_TIMED = ("timing", "timing_second")
# Of nvml.h.
_CLOCK_SM = 1
_REASONS = {
    0x08: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}


class ClockWatch:
    """Takes in the events of one child. `found` is None until a timed pass has ended; of two, it
    has the lower clock, and what slowed down either."""

    def __init__(self, load: Callable[[str], Any] = ctypes.CDLL) -> None:
        self.found: GpuClock | None = None
        self._load = load
        self._uuid: str | None = None

    def on_event(self, event: events.Event) -> None:
        match event:
            case events.DeviceKnown():
                self._uuid = event.device_uuid
            case events.PassEnded(name=name) if name in _TIMED and self._uuid is not None:
                now = self._ask(f"GPU-{self._uuid.removeprefix('GPU-')}".encode())
                before = self.found or now
                if now is not None and before is not None:
                    throttled = {*before.throttled, *now.throttled}
                    lower = min(before.sm_mhz, now.sm_mhz)
                    self.found = GpuClock(lower, tuple(sorted(throttled)))

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
