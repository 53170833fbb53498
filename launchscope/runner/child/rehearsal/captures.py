"""What a script captures itself, and how its processes communicate, on a machine without a GPU.

A captured block runs once, as the step to inspect. A replay runs nothing.
"""

from __future__ import annotations

import functools
import inspect
import sys
from typing import ClassVar

from launchscope.runner.child.facts.patching import wrap
from launchscope.runner.child.facts.source_lines import user_line
from launchscope.runner.child.facts.torch_types import Function, Torch, Value
from launchscope.runner.child.rehearsal.findings import RehearsalFindings
from launchscope.runner.protocol.events import Remark

_POOL = (0, 0)


def install_captures(torch: Torch, findings: RehearsalFindings) -> None:
    cuda = torch.cuda
    graph = type("CUDAGraph", (_Graph,), {"findings": findings, "__module__": "torch.cuda"})
    replaced: dict[str, Value] = {
        "CUDAGraph": graph,
        "graph": _Block,
        "graph_pool_handle": lambda: _POOL,
        "is_current_stream_capturing": lambda: findings.capturing,
        "make_graphed_callables": _graphed_callables(findings, cuda.make_graphed_callables),
    }
    for name, ours in replaced.items():
        setattr(cuda, name, ours)
        setattr(cuda.graphs, name, ours)
    if torch.distributed.is_available():
        _communicate_on_cpu(torch, findings)


class _Graph:
    """Replaces torch.cuda.CUDAGraph."""

    findings: ClassVar[RehearsalFindings]
    _is_captured = False

    def __init__(self, keep_graph: bool = False):
        self.findings.named_cuda = True

    def capture_begin(self, *args: Value, **kwargs: Value) -> None:
        self.findings.capturing = True
        self.findings.on_capture(True)

    def capture_end(self) -> None:
        self._is_captured = True
        self.findings.capturing = False
        if not self.findings.joins_captures:
            self.findings.on_capture(False)

    def replay(self) -> None:
        if not self._is_captured:
            raise RuntimeError("replay() of a CUDA graph into which nothing was captured")

    def pool(self) -> tuple[int, int]:
        return _POOL

    def reset(self) -> None:
        self._is_captured = False

    def register_generator_state(self, generator: Value) -> None:
        self.findings.host.registered.append(generator)

    def instantiate(self, *args: Value) -> None:
        """What needs a GPU."""

    enable_debug_mode = debug_dump = instantiate


class _Block:
    """Replaces torch.cuda.graph."""

    def __init__(self, cuda_graph: _Graph, *args: Value, **kwargs: Value):
        self.cuda_graph = cuda_graph

    def __enter__(self) -> None:
        self.cuda_graph.capture_begin()

    def __exit__(self, error: Value, *rest: Value) -> None:
        if error is None:  # else it is no block that could be captured
            self.cuda_graph.capture_end()
        self.cuda_graph.findings.capturing = False


def _graphed_callables(findings: RehearsalFindings, original: Function) -> Function:
    """Runs as on a GPU. All that it captures is one step."""

    def call(*args: Value, **kwargs: Value) -> Value:
        findings.remarks.append(Remark("graphed_callables", user_line(sys._getframe(1))))
        findings.joins_captures = True
        result = original(*args, **kwargs)
        findings.joins_captures = False
        findings.on_capture(False)
        return result

    return call


def _communicate_on_cpu(torch: Torch, findings: RehearsalFindings) -> None:
    """Process groups of NCCL become those of Gloo, and DDP takes a model on the CPU."""
    for name in ("init_process_group", "new_group"):
        wrap(torch.distributed, name, functools.partial(_with_gloo, findings))
    wrap(torch.nn.parallel.DistributedDataParallel, "__init__", functools.partial(_ddp, findings))


def _with_gloo(findings: RehearsalFindings, original: Function) -> Function:
    signature = inspect.signature(original)

    def call(*args: Value, **kwargs: Value) -> Value:
        given = signature.bind(*args, **kwargs).arguments
        if "nccl" in str(given.get("backend")):
            findings.named_cuda = True
            given["backend"] = "gloo"
        given.pop("device_id", None)
        return original(**given)

    return call


def _ddp(findings: RehearsalFindings, original: Function) -> Function:
    signature = inspect.signature(original)

    def init(*args: Value, **kwargs: Value) -> None:
        findings.remarks.append(Remark("ddp", user_line(sys._getframe(1))))
        given = signature.bind(*args, **kwargs).arguments
        original(**given | {"device_ids": None, "output_device": None})

    return init
