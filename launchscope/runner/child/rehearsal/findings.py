"""What a rehearsal finds that no operation shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from launchscope.model import SourceLine
from launchscope.runner.child.facts.step_ops import HostTensors
from launchscope.runner.child.facts.torch_types import Value
from launchscope.runner.protocol.events import Remark


@dataclass
class RehearsalFindings:
    """What the script used of the GPU that does not exist."""

    named_cuda: bool = False
    named_device: bool = False  # any device, cuda or not
    used_autocast: bool = False  # for CUDA, which casts nothing on the CPU
    capturing: bool = False  # the script captures a graph now
    joins_captures: bool = False  # all until the end of a call are one step
    on_capture: Callable[[bool], None] = lambda begins: None  # called where it begins and ends
    optimizer_lines: dict[int, SourceLine | None] = field(default_factory=dict)  # by id
    host: HostTensors = field(default_factory=HostTensors)
    reading_nodes: set[str] = field(default_factory=set)  # of a backward, that read a value
    library: Value = None
    remarks: list[Remark] = field(default_factory=list)
