"""All that `graphed` asks of CUDA. Tests put an emulation in the place of `gpu`."""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

Generators = Iterable[torch.Generator]

# Of torch.backends.cuda and .cudnn, which ask the same and take three times as long.
_FLAGS = (
    "cublas_allow_fp16_reduced_precision_reduction cublas_allow_bf16_reduced_precision_reduction "
    "cublas_allow_fp16_accumulation flash_sdp_enabled mem_efficient_sdp_enabled math_sdp_enabled "
    "cudnn_sdp_enabled cudnn_enabled cudnn_benchmark cudnn_deterministic"
)
_KERNEL_FLAGS: list[Callable[[], Any]] = [
    getattr(torch._C, f"_get_{name}")
    for name in _FLAGS.split()
    if hasattr(torch._C, f"_get_{name}")  # torch 2.6 has no setting for the accumulation
]


class Gpu:
    type = "cuda"

    def available(self) -> bool:
        return torch.cuda.is_available()

    def capturing(self) -> bool:
        return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()

    def device(self) -> int:
        return torch.cuda.current_device()

    def stream(self) -> Any:
        return torch.cuda.current_stream()

    def make_stream(self) -> Any:
        return torch.cuda.Stream()

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    @contextlib.contextmanager
    def on(self, side: Any) -> Iterator[None]:
        """Inside, work goes to the side stream, ordered with the caller's at both ends.

        Autograd remembers the stream on which a parameter was first used; for a capture that must
        not be the default stream.
        """
        outer = torch.cuda.current_stream()
        side.wait_stream(outer)
        try:
            with torch.cuda.stream(side):
                yield
        finally:
            outer.wait_stream(side)

    def make_pool(self) -> Any:
        return torch.cuda.graph_pool_handle()

    def begin(self, pool: Any, generators: Generators, keep_graph: bool = False) -> Any:
        graph = torch.cuda.CUDAGraph(keep_graph=True) if keep_graph else torch.cuda.CUDAGraph()
        for generator in generators:
            graph.register_generator_state(generator)
        # In the global mode a DataLoader's pin-memory thread breaks a capture.
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        return graph

    def end(self, graph: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a part without GPU work is an empty graph
            graph.capture_end()

    def give_up(self, graph: Any, pool: Any) -> None:
        """End a capture that failed. torch may leave its allocator as in a capture then: it returns
        no memory to the GPU, and empty_cache() fails."""
        with contextlib.suppress(RuntimeError):  # torch has said what is wrong
            self.end(graph)
            return
        device = torch.cuda.current_device()
        name, old = "_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool"  # torch 2.6
        with contextlib.suppress(RuntimeError, AttributeError):  # it has ended, or has another name
            getattr(torch._C, name if hasattr(torch._C, name) else old)(device, pool)
            torch._C._cuda_releasePool(device, pool)

    def clear_workspaces(self) -> None:
        """The next product of matrices gets new scratch memory from cuBLAS, which keeps one piece
        for each stream: a graph needs its own, because others clear that of the warm-up."""
        torch._C._cuda_clearCublasWorkspaces()

    def generators(self, more: Generators) -> list[torch.Generator]:
        return [torch.cuda.default_generators[torch.cuda.current_device()], *more]

    def clone_state(self, generator: torch.Generator) -> Any:
        return generator.clone_state()

    def repair(self, generator: torch.Generator, clone: Any) -> None:
        generator.graphsafe_set_state(clone)

    def host_random_state(self) -> torch.Tensor:
        return torch.get_rng_state()

    def usable(self) -> bool:
        """Whether GPU work runs, random numbers included."""
        try:
            torch.rand(1, device="cuda")
            torch.cuda.synchronize()
        except RuntimeError:
            return False
        return True

    def forget_errors(self) -> None:
        """CUDA keeps the last error of each thread until a kernel launched there raises it: a
        library that gave up in the capture has not. Backwards may run in another thread."""
        with contextlib.suppress(RuntimeError):
            torch.zeros(1, device="cuda")
        with (
            contextlib.suppress(RuntimeError),
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autograd.set_multithreading_enabled(True),
        ):
            torch.zeros(1, device="cuda", requires_grad=True).neg().backward()

    def reserved(self) -> int:
        return torch.cuda.memory_reserved()

    def free(self) -> int:
        return torch.cuda.mem_get_info()[0]

    def collect(self) -> None:
        """Make room. Garbage is searched only where memory may be short: with torch loaded, that
        takes a tenth of a second. Pinned memory that is free waits for events, which a capture
        cannot ask."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        if free < total / 2:
            gc.collect()
            torch.cuda.empty_cache()
        getattr(torch._C, "_host_emptyCache", lambda: None)()

    def flags(self) -> tuple[Any, ...]:
        """Settings that choose kernels."""
        return self.precisions(), *[ask() for ask in _KERNEL_FLAGS]

    def precisions(self) -> tuple[Any, ...]:
        """torch 2.9 has a setting for each operation; the older questions are errors then."""
        get = getattr(torch._C, "_get_fp32_precision_getter", None)
        if get is not None:
            return get("generic", "all"), *(get("cuda", what) for what in ("matmul", "conv", "rnn"))
        allowed = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        return torch.get_float32_matmul_precision(), *allowed


gpu: Any = Gpu()


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """What a collection runs is no part of the step (a library's callback, a finalizer), and a CUDA
    object that it frees would break a capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
