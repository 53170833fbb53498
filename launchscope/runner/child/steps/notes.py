"""Sentences on what a script does with its step, for the notes of the report."""

from __future__ import annotations

NO_BACKWARD = (
    "the forwards run with gradients enabled, but no backward() was seen: inference wants "
    "torch.inference_mode(), and a step that trains through torch.autograd.grad has to be marked "
    "with `with launchscope.step():`"
)
FORWARD_ALONE = (
    "the step is the forward alone, as asked for: the backward and the optimizer are no part of "
    "it, and a graph of it cannot be trained through"
)
MARKED_LATE = (
    "the marks of the script begin after {} steps: they are the steps that are measured, and what "
    "came before is left out"
)
MARKED_TOO_LATE = (
    "the script marks its steps only after {} others, when those had been measured: the marks were "
    "not used; to wait for them, take --step-from marker"
)
