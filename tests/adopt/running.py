"""Runs a script in this process and notes where it makes the calls of its step."""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from launchscope.adopt.child.observer import StepWatch
from launchscope.adopt.observation import Observation
from launchscope.adopt.record import ITERATION
from launchscope.adopt.rewrite import Step
from launchscope.model import StepCall
from launchscope.runner.child.events.events import StepObserver
from launchscope.runner.child.events.hooks import Hooks
from launchscope.runner.child.events.step_pattern import (
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    ZERO_GRAD,
    Token,
)
from launchscope.runner.child.facts import source_lines
from launchscope.runner.child.steps.step_calls import StepCalls


class _Notes(StepObserver):
    """Every call, and whether it was made with gradients."""

    def __init__(self) -> None:
        self.calls = StepCalls()

    def forward_begin(self, key: str, module: Any, args: Any, kwargs: Any) -> None:
        self.calls.add(Token(FORWARD, key, torch.is_grad_enabled()))

    def backward_begin(self) -> None:
        self.calls.add(Token(BACKWARD, BACKWARD))

    def zero_grad_begin(self) -> None:
        self.calls.add(Token(ZERO_GRAD, ZERO_GRAD))

    def optimizer_begin(self, key: str) -> None:
        self.calls.add(Token(OPTIMIZER, key))

    def places(self, file: Path) -> list[StepCall]:
        every = list(self.calls.calls)
        trains = any(token.kind == BACKWARD for token, *_ in every)
        found = [
            replace(call, what="inference") if trains and not token.trains else call
            for token, call, _ in every
        ]
        return [_place(call, file) for call in dict.fromkeys(found)]


def _place(call: StepCall, file: Path) -> StepCall:
    """Without the frames of the tests."""
    # Below the folder in which the tests were started, files have short names.
    frames = (replace(f, file=os.path.join(source_lines._START, f.file)) for f in call.frames)
    return replace(call, frames=tuple(frame for frame in frames if frame.file == str(file)))


def run(source: bytes, file: Path) -> tuple[str, dict[str, torch.Tensor]]:
    """What the script prints, and the tensors that it leaves, by their names."""
    shown = io.StringIO()
    space: dict[str, Any] = {"__name__": "__main__", "__file__": str(file)}
    with contextlib.redirect_stdout(shown):
        exec(compile(source, str(file), "exec"), space)
    left: dict[str, torch.Tensor] = {}
    for name, value in space.items():
        if isinstance(value, torch.nn.Module):
            left.update((f"{name}.{key}", part) for key, part in value.state_dict().items())
        elif isinstance(value, torch.Tensor):
            left[name] = value.detach()
    return shown.getvalue(), left


def seen(step: Step) -> Observation:
    """What an eager run of the script shows of its lines."""
    watch = StepWatch(torch, trains=step.trains)

    def begin() -> None:
        if not watch.is_over:
            watch.begin(sys._getframe(1))

    watch.install()
    setattr(builtins, ITERATION, begin)
    run(step.marked.content, step.source.file)
    watch.end()
    return watch.result()


def observed(source: bytes, file: Path) -> tuple[str, dict[str, torch.Tensor], list[StepCall]]:
    """The same, and the places of the calls."""
    notes = _Notes()
    hooks = Hooks(torch, notes)
    hooks.install()
    try:
        return *run(source, file), notes.places(file)
    finally:
        hooks.remove()
