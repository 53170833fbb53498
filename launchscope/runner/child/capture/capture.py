"""Captures what the script does between two points into a CUDA graph, and times its replay."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from launchscope.runner.child.capture.ranks import CaptureRanks
from launchscope.runner.child.capture.state import DeviceState, OptimizerFlags
from launchscope.runner.child.capture.stubs import Stubs
from launchscope.runner.child.clock import clock
from launchscope.runner.child.cuda_events import timing_events
from launchscope.runner.child.torch_types import Graph, Storage, Tensor, Torch

if TYPE_CHECKING:
    from launchscope.graph_step import GraphCapture, SavedState

_BURSTS = 5
_SHORTEST_BURST = 2


@dataclass
class LiveReplay:
    """A captured step with everything that the passes after the capture need to replay it."""

    graph: Graph
    state: DeviceState
    flags: OptimizerFlags
    kept: list[Storage | Tensor]  # memory that the graph reads
    stubs: Stubs | None = None  # set if the graph leaves out blocking operations

    def release(self) -> None:
        """Free the graph and its memory; it cannot be replayed after this."""
        self.state.forget()
        self.graph.reset()
        self.kept.clear()


class Capture:
    """Records the calls between `begin` and `end` into `graph`; keeps what that cost."""

    def __init__(self, torch: Torch):
        self.capture_ms = 0.0
        self.instantiate_ms: float | None = None
        self.nodes: int | None = None
        self.free_before = 0  # bytes on the device
        self.graph: Graph = None
        self._torch = torch
        self._capture: GraphCapture | None = None

    def begin(self) -> None:
        """Raises what torch raises if a capture cannot start here."""
        from launchscope.graph_step import GraphCapture  # imports torch, as the script did by now

        cuda = self._torch.cuda
        # torch 2.8 and later can keep the graph, to count its nodes and time instantiation.
        capture = GraphCapture(keep_graph=hasattr(cuda.CUDAGraph, "raw_cuda_graph"))
        self._capture = capture
        self.free_before = cuda.mem_get_info()[0]
        self._start = clock.perf_counter()
        capture.__enter__()
        capture.begin()

    def end(self) -> None:
        """Raises what torch raises if the capture failed; no CUDA call is safe then, but `repair`
        may help."""
        assert self._capture is not None
        self.graph = self._capture.end()
        self._capture.__exit__()
        self.capture_ms = (clock.perf_counter() - self._start) * 1e3
        if hasattr(self.graph, "raw_cuda_graph"):
            self.nodes = _count_nodes(self.graph.raw_cuda_graph())
            start = clock.perf_counter()
            self.graph.instantiate()
            self.instantiate_ms = (clock.perf_counter() - start) * 1e3

    def repair(self, saved: SavedState) -> bool:
        """After an error: put back what was saved before `begin`; False if CUDA stays unusable."""
        if self._capture is None:  # CUDA did not even get that far
            return False
        self._capture.__exit__()
        return self._capture.repair(saved)


class Bursts:
    """Times eager steps and replays in alternating bursts, because GPU clocks drift under load.

    Call `open` and `close` around each eager step and `after_step` once it is over. The first step
    of a burst does not count. `steps` is the number of steps of all bursts. A burst of replays
    leaves the state as it was.
    """

    def __init__(self, torch: Torch, live: LiveReplay, steps: int, ranks: CaptureRanks):
        self._torch = torch
        self._ranks = ranks
        self._live = live
        self._length = max(_SHORTEST_BURST, round(steps / _BURSTS)) + 1
        # Two per eager step. A burst of replays needs one before the first and one after each.
        self._events = timing_events(torch, 2 * self._length)
        self._opened = False
        self._timed = 0
        # Of the first call of each burst, which finds the GPU idle, and of the others.
        self._host_us: tuple[list[float], list[float]] = [], []
        self.eager: list[tuple[float, ...]] = []
        self.replay: list[tuple[float, ...]] = []

    @property
    def done(self) -> bool:
        return len(self.replay) >= _BURSTS

    @property
    def host_us(self) -> tuple[float, ...]:
        """Median host time of one replay call; empty before the first burst.

        Where the driver's queue has no room for a second replay, its call lasts as long as the
        first replay does. That is the GPU's time, and no host waits so in a loop.
        """
        return (min(map(median, self._host_us)),) if self.replay else ()

    def open(self) -> None:
        self._events[2 * self._timed].record()
        self._opened = True

    def close(self) -> None:
        """Does nothing without an `open`, or the second time after it."""
        if self._opened:
            self._events[2 * self._timed + 1].record()
            self._timed += 1
            self._opened = False

    def after_step(self) -> None:
        """Once the eager burst is complete, read it and time a burst of replays."""
        self._opened = False
        if self._timed < self._length:
            return
        self._torch.cuda.synchronize()
        events = self._events
        times = [a.elapsed_time(b) for a, b in zip(events[::2], events[1::2])]
        self._timed = 0
        self.eager.append(tuple(times[1:]))
        self._replay_burst()

    def _replay_burst(self) -> None:
        torch, live = self._torch, self._live
        replay, now = live.graph.replay, clock.perf_counter_ns
        with self._ranks.together():
            live.flags.apply()
            live.state.save()
        torch.cuda.synchronize()
        events = self._events[: self._length + 1]
        host_us = []
        events[0].record()
        for event in events[1:]:
            start = now()
            replay()
            host_us.append((now() - start) / 1e3)
            event.record()
        torch.cuda.synchronize()
        live.state.restore()
        live.flags.revert()
        torch.cuda.synchronize()
        times = [a.elapsed_time(b) for a, b in itertools.pairwise(events)]
        self.replay.append(tuple(times[1:]))
        for kept, calls in zip(self._host_us, (host_us[:1], host_us[1:])):
            kept += calls


def _count_nodes(raw_graph: int) -> int | None:
    """The nodes of a cudaGraph_t; None if the CUDA runtime cannot be asked."""
    runtime = _loaded_runtime()
    if runtime is None:
        return None
    count = ctypes.c_size_t(0)
    function = runtime.cudaGraphGetNodes
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
    if function(ctypes.c_void_p(raw_graph), None, ctypes.byref(count)) != 0:
        return None
    return int(count.value)


def _loaded_runtime() -> ctypes.CDLL | None:
    """The CUDA runtime library that torch has loaded into this process."""
    with (
        contextlib.suppress(OSError),
        open("/proc/self/maps", encoding="utf-8", errors="replace") as maps,
    ):
        for line in maps:
            path = line.rstrip("\n").split(maxsplit=5)[-1]
            if "libcudart" in path:
                return ctypes.CDLL(path)
    return None
