"""Captures whatever the script does between two points into a CUDA graph, in place."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import time
from dataclasses import dataclass

from launchscope.runner.child.capture.state import DeviceState, OptimizerFlags
from launchscope.runner.child.capture.stubs import Stubs
from launchscope.runner.child.torch_types import Graph, Mode, Storage, Torch


@dataclass
class CapturedStep:
    """A graph that replays one step, and the cost of making it."""

    graph: Graph
    capture_ms: float
    instantiate_ms: float | None
    nodes: int | None
    free_before: int

    def replay(self) -> None:
        self.graph.replay()


@dataclass
class LiveReplay:
    """A captured step with everything that the passes after the capture need to replay it."""

    step: CapturedStep
    state: DeviceState
    flags: OptimizerFlags
    kept: list[Storage]  # memory that the graph reads
    stubs: Stubs | None = None  # set if the graph leaves out blocking operations

    def release(self) -> None:
        """Free the graph and its memory; it cannot be replayed after this."""
        self.state.forget()
        self.step.graph.reset()
        self.kept.clear()


class Capture:
    """Records the calls between `begin` and `end`."""

    def __init__(self, torch: Torch):
        self._torch = torch
        self._gc_enabled = gc.isenabled()
        try:  # torch 2.8 and later can keep the graph, to count its nodes and time instantiation
            self._graph = torch.cuda.CUDAGraph(keep_graph=True)
            self._kept = True
        except TypeError:
            self._graph = torch.cuda.CUDAGraph()
            self._kept = False
        self._context: Mode = None

    def begin(self) -> None:
        """Raises what torch raises if a capture cannot start here."""
        torch = self._torch
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
        self._free_before = torch.cuda.mem_get_info()[0]
        # A collection during the capture could free CUDA objects, which would break it.
        gc.disable()
        self._start = time.perf_counter()
        self._context = torch.cuda.graph(
            self._graph,
            stream=torch.cuda.current_stream(),
            # Pin-memory threads of a DataLoader break a capture in the global mode.
            capture_error_mode="thread_local",
        )
        self._context.__enter__()

    def end(self) -> CapturedStep:
        """Raises what torch raises if the capture failed."""
        try:
            self._context.__exit__(None, None, None)
        finally:
            self._enable_gc()
        capture_ms = (time.perf_counter() - self._start) * 1e3
        nodes = instantiate_ms = None
        if self._kept:
            nodes = _count_nodes(self._graph.raw_cuda_graph())
            start = time.perf_counter()
            self._graph.instantiate()
            instantiate_ms = (time.perf_counter() - start) * 1e3
        return CapturedStep(self._graph, capture_ms, instantiate_ms, nodes, self._free_before)

    def abandon(self) -> None:
        """Give up without a CUDA call: after a failed capture any of them may abort."""
        self._enable_gc()

    def _enable_gc(self) -> None:
        if self._gc_enabled:
            gc.enable()


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
