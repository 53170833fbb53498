"""Puts hooks, streams and, without a GPU, the rehearsal into a freshly imported torch."""

from __future__ import annotations

import functools
import os
import threading

from launchscope.runner.child.hooks.patches import runs_function_of
from launchscope.runner.child.machine import environment_of, has_no_gpu
from launchscope.runner.child.observe.observer import RunObserver
from launchscope.runner.child.ops.rehearsal import RehearsalFindings, install_rehearsal
from launchscope.runner.child.seeds import seed_torch
from launchscope.runner.child.step_controller import StepController
from launchscope.runner.child.torch_types import Device, Stream, Torch
from launchscope.runner.protocol.events import RehearsalStarted
from launchscope.runner.protocol.folder import ChildFolder, Plan
from launchscope.runner.protocol.observation import Observation


def attach(torch: Torch, folder: ChildFolder, plan: Plan) -> StepController:
    """Called once, right after the script's own `import torch`."""
    if plan.strategy is not None:
        seed_torch(torch)
    controller = StepController(torch, folder, plan)
    controller.install()
    if has_no_gpu(torch):
        install_rehearsal(torch, controller.rehearsal)
        folder.emit(RehearsalStarted())
        folder.write("environment", environment_of(torch, on_gpu=False))
        return controller
    if plan.side_stream:
        SideStreams(torch).install()
    torch.cuda._lazy_call(lambda: folder.write("environment", environment_of(torch, on_gpu=True)))
    return controller


def observe(torch: Torch, folder: ChildFolder, observation: Observation) -> RunObserver:
    """In place of `attach`, where the run is compared with another one."""
    if has_no_gpu(torch):
        install_rehearsal(torch, RehearsalFindings())
        folder.emit(RehearsalStarted())
    observer = RunObserver(torch, folder, observation)
    observer.install()
    return observer


class SideStreams:
    """One side stream per device, current from the script's first CUDA call on, on each thread.

    A capture is impossible on the legacy default stream, and AccumulateGrad nodes made there would
    tie a later capture to it, so the switch has to come before the first forward. It never
    initializes CUDA: torch makes the switch when the script initializes CUDA, and again after each
    `set_device`.
    """

    def __init__(self, torch: Torch):
        self._torch = torch
        self._process = os.getpid()
        self._streams: dict[int, Stream] = {}

    def install(self) -> None:
        cuda = self._torch.cuda
        cuda._lazy_call(self._switch)
        original_set_device, original_run = cuda.set_device, threading.Thread.run

        @functools.wraps(original_set_device)
        def set_device(device: Device) -> None:
            original_set_device(device)
            if cuda.is_initialized():
                self._switch()

        @functools.wraps(original_run)
        def run(thread: threading.Thread) -> None:
            # The current stream is per thread: without this a thread of the script that drives
            # the GPU starts on the default stream.
            # The pin-memory thread of a DataLoader keeps torch's stream.
            if self._streams and not runs_function_of("torch", thread):
                self._switch()
            original_run(thread)

        cuda.set_device = set_device
        threading.Thread.run = run  # type: ignore[method-assign, assignment]

    def _switch(self) -> None:
        if os.getpid() != self._process:
            return
        cuda = self._torch.cuda
        device = cuda.current_device()
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = cuda.Stream(device)
        # A stream that somebody chose stays: compiled code calls set_device inside captures.
        on_default = self._torch._C._cuda_getCurrentStream(device)[0] == 0
        if on_default:
            stream.wait_stream(cuda.current_stream(device))
            cuda.set_stream(stream)
