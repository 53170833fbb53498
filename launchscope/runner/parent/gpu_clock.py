"""The clock of the GPU while steps are timed, and whether heat slowed it down, from NVML.

NVML is asked from this process at the ends of the timed passes, so that the script's own process
does nothing more. Where the library or a figure is missing, nothing is known.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import Any

from launchscope.model import GpuClock
from launchscope.runner.protocol import events

_LIBRARY = "libnvidia-ml.so.1"
_TIMED = ("timing", "timing_second")
# Of nvml.h.
_CLOCK_SM, _POLICY_THERMAL = 1, 1
_REASONS = {
    0x08: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}


class _ViolationTime(ctypes.Structure):
    _fields_ = (("reference_us", ctypes.c_ulonglong), ("violation_ns", ctypes.c_ulonglong))


class ClockWatch:
    """Takes in the events of one child. `found` is None until a timed pass has ended."""

    def __init__(self, load: Callable[[str], Any] = ctypes.CDLL) -> None:
        self.found: GpuClock | None = None
        self._load = load
        self._uuid: str | None = None
        self._hot_ns: int | None = None  # in all, at the beginning of the pass

    def on_event(self, event: events.Event) -> None:
        match event:
            case events.DeviceKnown():
                self._uuid = event.device_uuid
            case events.PassStarted(name=name) if name in _TIMED:
                with self._device() as device:
                    self._hot_ns = None if device is None else device.hot_ns()
            case events.PassEnded(name=name) if name in _TIMED:
                with self._device() as device:
                    if device is not None:
                        self._add(device)

    def _add(self, device: _Device) -> None:
        reasons, hot_ns = device.reasons(), device.hot_ns()
        heated = None not in (hot_ns, self._hot_ns) and hot_ns != self._hot_ns
        throttled = {*(reasons or ()), *(("thermal",) if heated else ())}
        known = reasons is not None or hot_ns is not None
        clock = device.sm_mhz()
        if self.found is not None:  # of the first timed pass
            throttled |= {*(self.found.throttled or ())}
            known = known or self.found.throttled is not None
            clock = min((c for c in (clock, self.found.sm_mhz) if c is not None), default=None)
        self.found = GpuClock(clock, tuple(sorted(throttled)) if known else None)

    @contextlib.contextmanager
    def _device(self) -> Iterator[_Device | None]:
        library = None
        if self._uuid is not None:
            with contextlib.suppress(OSError):
                library = self._load(_LIBRARY)
        if library is None or library.nvmlInit_v2() != 0:
            yield None
            return
        try:
            handle = ctypes.c_void_p()
            name = f"GPU-{str(self._uuid).removeprefix('GPU-')}".encode()
            found = library.nvmlDeviceGetHandleByUUID(name, ctypes.byref(handle)) == 0
            yield _Device(library, handle) if found else None
        finally:
            library.nvmlShutdown()


class _Device:
    """One GPU; each figure is None where NVML does not give it."""

    def __init__(self, library: Any, handle: ctypes.c_void_p) -> None:
        self._library, self._handle = library, handle

    def sm_mhz(self) -> float | None:
        clock = ctypes.c_uint()
        asked = self._ask("nvmlDeviceGetClockInfo", _CLOCK_SM, clock)
        return float(clock.value) if asked else None

    def reasons(self) -> tuple[str, ...] | None:
        bits = ctypes.c_ulonglong()
        if not self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", bits):
            return None
        return tuple(name for bit, name in _REASONS.items() if bits.value & bit)

    def hot_ns(self) -> int | None:
        """How long heat has slowed the GPU down since the driver was loaded."""
        time = _ViolationTime()
        asked = self._ask("nvmlDeviceGetViolationStatus", _POLICY_THERMAL, time)
        return int(time.violation_ns) if asked else None

    def _ask(self, function: str, *arguments: Any) -> bool:
        *given, result = arguments
        try:
            call = getattr(self._library, function)
        except AttributeError:  # of another version of the driver
            return False
        return bool(call(self._handle, *given, ctypes.byref(result)) == 0)
