"""Puts the script on a stream of its own, from its first CUDA call on.

A capture cannot be made on the legacy default stream, and AccumulateGrad nodes made
there would tie a later capture to it, so the switch has to come before the first
forward. CUDA is never initialised for it: torch is asked to run the switch when the
script itself initialises CUDA, and again after each `set_device`.
"""

from __future__ import annotations

import functools
import os
import threading
from typing import Any


class SideStreams:
    """One side stream per device, made current on every thread that asks."""

    def __init__(self, torch: Any):
        self._torch = torch
        self._owner = os.getpid()
        self._streams: dict[int, Any] = {}
        self._set_device = torch.cuda.set_device
        self.used = False

    def install(self) -> None:
        cuda = self._torch.cuda
        cuda._lazy_call(self._switch)
        original = self._set_device

        @functools.wraps(original)
        def set_device(device: Any) -> None:
            original(device)
            if cuda.is_initialized():
                self._switch()

        cuda.set_device = set_device
        run = threading.Thread.run

        @functools.wraps(run)
        def run_on_side_stream(thread: threading.Thread) -> None:
            # The current stream is per thread: a thread of the script's that drives the
            # GPU starts on the default stream otherwise.
            if self.used and os.getpid() == self._owner and not _is_torch_thread(thread):
                self._switch()
            run(thread)

        threading.Thread.run = run_on_side_stream  # type: ignore[method-assign, assignment]

    def _switch(self) -> None:
        if os.getpid() != self._owner:
            return
        cuda = self._torch.cuda
        device = cuda.current_device()
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = cuda.Stream(device)
        self.used = True
        # A stream that somebody chose stays: compiled code says set_device inside captures.
        if self._on_default(device):
            stream.wait_stream(cuda.current_stream(device))
            cuda.set_stream(stream)

    def _on_default(self, device: int) -> bool:
        stream_id: int = self._torch._C._cuda_getCurrentStream(device)[0]
        return stream_id == 0


def _is_torch_thread(thread: threading.Thread) -> bool:
    """The pin-memory thread of a DataLoader keeps torch's own choice of stream."""
    target = getattr(thread, "_target", None)
    return getattr(target, "__module__", "").startswith("torch.")
