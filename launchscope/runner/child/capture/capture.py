"""Captures what the script does between two points into a CUDA graph, and times its replay."""

from __future__ import annotations

import ctypes
import itertools
from dataclasses import dataclass
from statistics import median
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING

from launchscope.runner.child.capture.cuda_events import timing_events
from launchscope.runner.child.capture.ranks import CaptureRanks
from launchscope.runner.child.capture.state import DeviceState, OptimizerFlags
from launchscope.runner.child.capture.stubs import Stubs
from launchscope.runner.child.facts.torch_types import Graph, Storage, Tensor, Torch

if TYPE_CHECKING:
    from launchscope.graphed.capture import GraphCapture, SavedState

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
    """Records the calls between `begin` and `end` into `graph`; keeps what that and the first
    replay cost."""

    def __init__(self, torch: Torch, saved: SavedState | None = None):
        """`saved` is what `repair` puts back."""
        self.capture_ms = self.first_replay_ms = 0.0
        self.instantiate_ms: float | None = None
        self.nodes: int | None = None
        self.memory_mib = 0.0
        self._free_before = 0  # bytes on the device
        self.graph: Graph = None
        self._torch = torch
        self._saved = saved
        self._capture: GraphCapture | None = None

    def begin(self) -> None:
        """Raises what torch raises if a capture cannot start here."""
        from launchscope.graphed.capture import (
            GraphCapture,  # imports torch, as the script did by now
        )

        cuda = self._torch.cuda
        # torch 2.8 and later can keep the graph, to count its nodes and time instantiation.
        capture = GraphCapture(keep_graph=hasattr(cuda.CUDAGraph, "raw_cuda_graph"))
        self._capture = capture
        self._free_before = cuda.mem_get_info()[0]
        self._start = perf_counter()
        capture.__enter__()
        capture.begin()

    def end(self) -> None:
        """Raises what torch raises if the capture failed; no CUDA call is safe then, but `repair`
        may help."""
        assert self._capture is not None
        self.graph = self._capture.end()
        self._capture.__exit__()
        self.capture_ms = (perf_counter() - self._start) * 1e3
        if hasattr(self.graph, "raw_cuda_graph"):
            self.nodes = _count_nodes(self._torch, self.graph.raw_cuda_graph())
            start = perf_counter()
            self.graph.instantiate()
            self.instantiate_ms = (perf_counter() - start) * 1e3

    def replay(self) -> None:
        """Nothing ran during the capture: do its work."""
        began = perf_counter()
        self.graph.replay()
        self._torch.cuda.synchronize()
        self.first_replay_ms = (perf_counter() - began) * 1e3
        used = self._free_before - self._torch.cuda.mem_get_info()[0]
        self.memory_mib = max(0.0, used / 2**20)

    def repair(self) -> bool:
        """After an error: put back what was saved before `begin`; False if CUDA stays unusable."""
        if self._capture is None or self._saved is None:  # CUDA did not even get that far
            return False
        self._capture.__exit__()
        return self._capture.repair(self._saved)


class Bursts:
    """Times eager steps and replays in alternating bursts, because GPU clocks drift under load.

    Call `open` and `close` around each eager step and `after_step` once it is over. The first step
    of a burst does not count. `steps` is the number of steps of all bursts. A burst of replays
    leaves the state as it was.
    """

    def __init__(self, torch: Torch, live: LiveReplay, steps: int, ranks: CaptureRanks):
        self._torch = torch
        self._ranks = ranks
        self.live = live
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
        times = [a.elapsed_time(b) for a, b in zip(self._events[::2], self._events[1::2])]
        self.eager.append(tuple(times[1:]))
        self._timed = 0
        self._replay_burst()

    def _replay_burst(self) -> None:
        torch, live = self._torch, self.live
        replay, now = live.graph.replay, perf_counter_ns
        live.flags.apply()
        live.state.save()
        self._ranks.check()
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
        self._host_us[0].append(host_us[0])
        self._host_us[1].extend(host_us[1:])


def _count_nodes(torch: Torch, raw_graph: int) -> int | None:
    """The nodes of a cudaGraph_t; None if the CUDA runtime cannot be asked."""
    try:  # torch has loaded it, so that it is found by its name alone
        runtime = ctypes.CDLL(f"libcudart.so.{str(torch.version.cuda).split('.')[0]}")
    except OSError:
        return None
    graph, count = ctypes.c_void_p(raw_graph), ctypes.c_size_t(0)
    failed = runtime.cudaGraphGetNodes(graph, None, ctypes.byref(count))
    return None if failed else count.value
