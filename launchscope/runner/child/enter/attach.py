"""Puts hooks, streams and, without a GPU, the rehearsal into a freshly imported torch."""

from __future__ import annotations

import functools
import os
import random
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from launchscope.runner.child.enter.machine import index_of_device
from launchscope.runner.child.events.hooks import runs_function_of
from launchscope.runner.child.facts.torch_types import Module, Stream, Torch, Value
from launchscope.runner.child.rehearsal.findings import RehearsalFindings

_SEED = 20_260_115


class Controller(Protocol):
    """Follows the script of this process from the import of torch to its end. `unwound`: nothing of
    the script runs but its exit handlers and finalizers."""

    finished: bool
    unwound: bool

    @property
    def suspect(self) -> str | None: ...
    def absorbs(self, error: BaseException) -> bool: ...
    def script_ended(self) -> None: ...


@dataclass(frozen=True)
class Entry:
    """What the entry point of a plan returns. `attach` is called with the script's torch; `sources`
    are the contents of files, by real path, that are to be another one than theirs."""

    attach: Callable[[Torch, RehearsalFindings], Controller | None]
    sources: Mapping[str, bytes] = field(default_factory=dict)


def is_pytorch(module: Value) -> bool:
    """Whether a module named torch is PyTorch, and not a file of that name beside the script."""
    return isinstance(getattr(getattr(module, "_C", None), "TensorBase", None), type)


class SideStreams:
    """One side stream per device, current from the script's first CUDA call on, on each thread.

    A capture is impossible on the legacy default stream, and AccumulateGrad nodes made there would
    tie a later capture to it, so the switch has to come before the first forward. It never
    initializes CUDA: torch makes the switch when the script initializes CUDA, and again after each
    `set_device`. A script may also compute on a device that is not the current one: the device of
    its rank, by convention, or of the model.
    """

    def __init__(self, torch: Torch):
        self._torch = torch
        self._process = os.getpid()
        self._streams: dict[int, Stream] = {}
        self._set_device = torch.cuda.set_device

    def install(self) -> None:
        cuda, original_run = self._torch.cuda, threading.Thread.run
        cuda._lazy_call(self._begin)
        self._switch_after(cuda, "set_device")
        accelerator = getattr(self._torch, "accelerator", None)
        of_accelerator = ("set_device_index", "set_device_idx")  # torch 2.6 has the second only
        name = next((name for name in of_accelerator if hasattr(accelerator, name)), None)
        if name is not None:
            self._switch_after(accelerator, name)

        @functools.wraps(original_run)
        def run(thread: threading.Thread) -> None:
            # The current stream is per thread: without this a thread of the script that drives
            # the GPU starts on the default stream.
            # The pin-memory thread of a DataLoader keeps torch's stream.
            if self._streams and not runs_function_of("torch", thread):
                self._use(*self._streams)
            original_run(thread)

        threading.Thread.run = run  # type: ignore[method-assign, assignment]

    def _switch_after(self, owner: Value, name: str) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def set_device(*args: Value, **kwargs: Value) -> None:
            original(*args, **kwargs)
            if self._torch.cuda.is_initialized():
                self._use(self._torch.cuda.current_device())

        setattr(owner, name, set_device)

    def _begin(self) -> None:
        """The script initializes CUDA. A stream takes memory of its device, so ranks take none of
        the first one, which is current until they choose theirs."""
        cuda, rank = self._torch.cuda, os.environ.get("LOCAL_RANK", "")
        has_own = rank.isdecimal() and int(rank) < cuda.device_count()
        self._use(int(rank) if has_own else cuda.current_device())

    def use_device_of(self, module: Module) -> None:
        """A forward of a model that may be on another device than the current one is about to
        begin."""
        index = index_of_device([module])
        if index is not None:
            self._use(index)

    def _use(self, *devices: int) -> None:
        """Make our streams the current ones of these devices. The current device stays."""
        if os.getpid() != self._process:
            return
        cuda = self._torch.cuda
        for device in devices:
            # A stream that somebody chose stays: compiled code calls set_device inside captures.
            if self._torch._C._cuda_getCurrentStream(device)[0] != 0:
                continue
            current = cuda.current_device()
            stream = self._streams.get(device)
            if stream is None:
                stream = self._streams[device] = cuda.Stream(device)
            stream.wait_stream(cuda.current_stream(device))
            cuda.set_stream(stream)
            if device != current:
                self._set_device(current)


def seed_python() -> None:
    """For runs that are compared with one another; seeds that the script sets replace ours."""
    random.seed(_SEED)


def seed_torch(torch: Torch) -> None:
    """And NumPy, which torch has imported where it is installed."""
    torch.manual_seed(_SEED)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(_SEED)
