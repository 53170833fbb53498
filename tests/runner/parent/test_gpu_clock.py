"""NVML is asked at the ends of the timed passes, and may lack anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from launchscope.model import GpuClock
from launchscope.runner.parent.gpu_clock import ClockWatch
from launchscope.runner.protocol.events import DeviceKnown, PassEnded

UUID = "1c2d-3e4f"
REASONS = "nvmlDeviceGetCurrentClocksThrottleReasons"


class Nvml:
    """Stands for the library, with the functions that this driver has."""

    def __init__(self, *lacks: str, clocks: tuple[int, ...] = (1980,), reasons: int = 0) -> None:
        self._lacks, self._clocks, self._reasons = lacks, list(clocks), reasons

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name in self._lacks:
            raise AttributeError(name)
        return lambda *given: int(getattr(self, f"_{name}")(*given))

    def _nvmlInit_v2(self) -> int:  # noqa: N802
        return 0

    def _nvmlShutdown(self) -> int:  # noqa: N802
        return 0

    def _nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> bool:  # noqa: N802
        return uuid != f"GPU-{UUID}".encode()

    def _nvmlDeviceGetClockInfo(self, handle: Any, kind: int, clock: Any) -> int:  # noqa: N802
        clock._obj.value = self._clocks.pop(0)
        return 0

    def _nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, bits: Any) -> int:  # noqa: N802
        bits._obj.value = self._reasons
        return 0


@pytest.mark.parametrize(
    ("nvml", "passes", "uuid", "found"),
    [
        (Nvml(), ("timing",), UUID, GpuClock(1980.0, ())),
        (Nvml(), ("timing",), f"GPU-{UUID}", GpuClock(1980.0, ())),
        (
            Nvml(clocks=(1410,), reasons=0x28),
            ("timing",),
            UUID,
            GpuClock(1410.0, ("hw_slowdown", "sw_thermal_slowdown")),
        ),
        (Nvml(), ("trace",), UUID, None),
        (Nvml(), ("timing",), None, None),
        (Nvml(), ("timing",), "another", None),
        (Nvml(REASONS), ("timing",), UUID, None),
    ],
)
def test_clock_and_reasons_of_the_timed_passes(
    nvml: Nvml, passes: tuple[str, ...], uuid: str | None, found: GpuClock | None
) -> None:
    watch = ClockWatch(lambda name: nvml)
    watch.on_event(DeviceKnown(True, uuid))
    for name in passes:
        watch.on_event(PassEnded(name, 1.0))
    assert watch.found == found


def test_without_a_driver_nothing_is_known() -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    watch = ClockWatch(missing)
    watch.on_event(DeviceKnown(True, UUID))
    watch.on_event(PassEnded("timing", 1.0))
    assert watch.found is None
