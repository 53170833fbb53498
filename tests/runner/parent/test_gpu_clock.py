"""NVML is asked around the timed passes, and may lack anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from launchscope.model import GpuClock
from launchscope.runner.parent.gpu_clock import ClockWatch
from launchscope.runner.protocol.events import DeviceKnown, PassEnded, PassStarted

UUID = "1c2d-3e4f"


class Nvml:
    """Stands for the library, with the functions that this driver has."""

    def __init__(self, *lacks: str, clocks: tuple[int, ...] = (1980,), reasons: int = 0) -> None:
        self._lacks, self._clocks, self._reasons = lacks, list(clocks), reasons
        self.hot_ns = 0
        self.opened = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name in self._lacks:
            raise AttributeError(name)
        return lambda *given: int(getattr(self, f"_{name}")(*given))

    def _nvmlInit_v2(self) -> int:  # noqa: N802
        self.opened += 1
        return 0

    def _nvmlShutdown(self) -> int:  # noqa: N802
        self.opened -= 1
        return 0

    def _nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> bool:  # noqa: N802
        return uuid != f"GPU-{UUID}".encode()

    def _nvmlDeviceGetClockInfo(self, handle: Any, kind: int, clock: Any) -> int:  # noqa: N802
        clock._obj.value = self._clocks.pop(0) if len(self._clocks) > 1 else self._clocks[0]
        return 0

    def _nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, bits: Any) -> int:  # noqa: N802
        bits._obj.value = self._reasons
        return 0

    def _nvmlDeviceGetViolationStatus(self, handle: Any, policy: int, time: Any) -> int:  # noqa: N802
        time._obj.violation_ns = self.hot_ns
        return 0


def watched(nvml: Nvml, *passes: str, uuid: str | None = UUID, hot_ns: int = 0) -> ClockWatch:
    def load(name: str) -> Nvml:
        assert name == "libnvidia-ml.so.1"
        return nvml

    watch = ClockWatch(load)
    watch.on_event(DeviceKnown(True, uuid))
    for name in passes:
        watch.on_event(PassStarted(name, 30))
        nvml.hot_ns += hot_ns
        watch.on_event(PassEnded(name, 1.0))
    assert nvml.opened == 0
    return watch


def test_the_lowest_clock_of_the_timed_passes_counts() -> None:
    found = watched(Nvml(clocks=(1980, 1755)), "timing", "trace", "timing_second").found
    assert found == GpuClock(1755.0, ())
    assert watched(Nvml(), "trace", "inspect").found is None


@pytest.mark.parametrize(
    ("reasons", "hot_ns", "throttled"),
    [
        (0x4, 0, ()),  # the power limit, which a heavy step always meets
        (0x1, 0, ()),  # idle
        (0x40 | 0x4, 0, ("hw_thermal_slowdown",)),
        (0, 5, ("thermal",)),
    ],
)
def test_heat_is_known_from_the_reasons_of_now_and_the_time_since_the_start(
    reasons: int, hot_ns: int, throttled: tuple[str, ...]
) -> None:
    found = watched(Nvml(reasons=reasons), "timing", hot_ns=hot_ns).found
    assert found == GpuClock(1980.0, throttled)


def test_what_nvml_does_not_give_is_not_known() -> None:
    old = Nvml("nvmlDeviceGetViolationStatus", "nvmlDeviceGetCurrentClocksThrottleReasons")
    assert watched(old, "timing").found == GpuClock(1980.0, None)
    assert watched(Nvml(), "timing", uuid="another").found is None
    assert watched(Nvml(), "timing", uuid=None).found is None

    def missing(name: str) -> Nvml:
        raise OSError(name)

    watch = ClockWatch(missing)
    for event in (DeviceKnown(True, UUID), PassStarted("timing", 30), PassEnded("timing", 1.0)):
        watch.on_event(event)
    assert watch.found is None
