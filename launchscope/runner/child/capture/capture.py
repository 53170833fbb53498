"""Captures whatever the script does between two points into a CUDA graph, in place."""

from __future__ import annotations

import ctypes
import gc
import time
from dataclasses import dataclass
from typing import Any


@dataclass
class CapturedStep:
    """A graph that replays one step, and what making it cost."""

    graph: Any
    capture_ms: float
    instantiate_ms: float | None
    nodes: int | None
    free_before: int

    def replay(self) -> None:
        self.graph.replay()


class Capture:
    """`begin` where the step begins, `end` where it ends; the calls between are recorded."""

    def __init__(self, torch: Any):
        self._torch = torch
        self._collecting = gc.isenabled()
        try:  # torch 2.8 and later: the graph is kept, so that it can be counted and timed
            self._graph = torch.cuda.CUDAGraph(keep_graph=True)
            self._kept = True
        except TypeError:
            self._graph = torch.cuda.CUDAGraph()
            self._kept = False
        self._context: Any = None

    def begin(self) -> None:
        """Raises what torch raises if a capture cannot start here."""
        torch = self._torch
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
        self._free_before = torch.cuda.mem_get_info()[0]
        # A collection in the middle could free CUDA objects that must not be touched.
        gc.disable()
        self._begun = time.perf_counter()
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
            self._restore_collector()
        captured = time.perf_counter()
        nodes = instantiate_ms = None
        if self._kept:
            nodes = count_nodes(self._graph.raw_cuda_graph())
            before = time.perf_counter()
            self._graph.instantiate()
            instantiate_ms = (time.perf_counter() - before) * 1e3
        return CapturedStep(
            self._graph,
            (captured - self._begun) * 1e3,
            instantiate_ms,
            nodes,
            self._free_before,
        )

    def abandon(self) -> None:
        """Give up without touching CUDA: after a failed capture any call may abort."""
        self._restore_collector()

    def _restore_collector(self) -> None:
        if self._collecting:
            gc.enable()


def count_nodes(raw_graph: int) -> int | None:
    """Nodes of a cudaGraph_t, asked of the CUDA runtime that torch has loaded; None if absent."""
    library = _loaded_runtime()
    if library is None:
        return None
    count = ctypes.c_size_t(0)
    function = library.cudaGraphGetNodes
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
    if function(ctypes.c_void_p(raw_graph), None, ctypes.byref(count)) != 0:
        return None
    return int(count.value)


def _loaded_runtime() -> ctypes.CDLL | None:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                path = line.rstrip("\n").split(maxsplit=5)[-1]
                if "libcudart" in path:
                    return ctypes.CDLL(path)
    except OSError:
        return None
    return None
