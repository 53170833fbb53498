"""Lightning: `Trainer(callbacks=[GraphedSteps()])` runs the steps of an unmodified module under
`graphed`.

The whole step (forward, zero_grad, backward, clipping, optimizer) runs where Lightning calls
`training_step`. Lightning's loop, its counters and its hooks run as ever around it, and the methods
that it calls afterwards for the rest of the step do nothing, because that is done.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from launchscope.graphed import GraphedStep, graphed

from .adapter import Adapter
from .parameters import may_use
from .replacing import nothing, overrides

# Two packages with the same classes, and a script may use either, or import it later.
_PACKAGES: list[Any] = [
    importlib.import_module(name)
    for name in ("lightning.pytorch", "pytorch_lightning")
    if importlib.util.find_spec(name.partition(".")[0]) is not None
]
if not _PACKAGES:
    text = "Lightning is not installed; it is in the extra `lightning` of launchscope"
    raise ModuleNotFoundError(text)
_CALLBACKS = [package.Callback for package in _PACKAGES]
_MODULES = [package.LightningModule for package in _PACKAGES]

# What runs between the parts of a step, where a graph leaves no room for it.
_BETWEEN = (
    "on_before_zero_grad", "on_before_backward", "on_after_backward", "on_before_optimizer_step",
)  # fmt: skip
# Numbers that are others in each call, by their place: a step that uses none is given zeros.
_COUNTERS = (
    ("training_step", 2, "batch_idx"),
    ("optimizer_zero_grad", 1, "epoch"),
    ("optimizer_zero_grad", 2, "batch_idx"),
)
_DONE = ("backward", "optimizer_zero_grad")


class GraphedSteps(Adapter, *_CALLBACKS):  # type: ignore[misc]
    """`options` are those of `graphed`."""

    def __init__(self, **options: Any):
        super().__init__(options)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._begin(refusal, self._install, trainer, pl_module)

    def on_train_end(self, *_: Any) -> None:
        self._end()

    def on_exception(self, *_: Any) -> None:
        """Also of Ctrl-C, which ends a training without `on_train_end`."""
        self._end()

    def _install(self, trainer: Any, module: Any) -> GraphedStep[Any, Any]:
        step: GraphedStep[Any, Any] = graphed(**self._options)(_step_of(module, trainer))
        replayed = _Replayed(step, trainer, module)
        put = self._replacements.put
        put(module, "training_step", replayed.training_step)
        put(trainer.precision_plugin, "optimizer_step", replayed.optimizer_step)
        for name in _DONE:
            put(module, name, nothing)
        return step


def refusal(trainer: Any, module: Any) -> str | None:
    """Why the steps of a module cannot run as graphs; None if they can, as far as one knows."""
    if not module.automatic_optimization:
        return "the module optimizes manually; put its step under launchscope.graphed"
    if len(trainer.optimizers) != 1:
        return f"there are {len(trainer.optimizers)} optimizers"
    if trainer.world_size > 1 or trainer.strategy.model is not module:
        name = type(trainer.strategy).__name__
        return f"{name} wraps the module for {trainer.world_size} ranks"
    if getattr(trainer.precision_plugin, "scaler", None) is not None:
        return 'precision "16-mixed" scales the loss; use "bf16-mixed"'
    closure = inspect.signature(trainer.optimizers[0].step).parameters.get("closure")
    if closure is not None and closure.default is closure.empty:
        return f"{type(trainer.optimizers[0]).__name__} calls the whole step by itself"
    for name in ("training_step", *_DONE):
        if name in vars(module):
            return f"{name} of the module was replaced, as torch.compile does"
    for name, place, number in _COUNTERS:
        if may_use(type(module), getattr(type(module), name), place):
            return f"{name} may use {number}, another number in each call; leave it out"
    for owner in (module, *trainer.callbacks):
        for name in (*_BETWEEN, "optimizer_step") if owner is module else _BETWEEN:
            if overrides(owner, name, _MODULES if owner is module else _CALLBACKS):
                return f"{type(owner).__name__}.{name}() runs in the middle of the step"
    return None


def _step_of(module: Any, trainer: Any) -> Callable[..., Any]:
    """The step as a graph contains it, with what the module is before it is changed here."""
    kind, optimizer, clip = type(module), trainer.optimizers[0], _clipping(module, trainer)
    device = module.device.type

    def step(batch: Any, share: int, begins: bool, ends: bool) -> Any:
        """What `training_step` returns, and the calls of `log` in it. Of the `share` batches whose
        gradients are accumulated it is one that begins a step of the optimizer or ends it."""
        logged: list[Any] = []
        module.log = functools.partial(_note, logged)
        try:
            output = kind.training_step(module, *batch)
        finally:
            del module.log
        loss = output.get("loss") if isinstance(output, Mapping) else output
        with torch.autocast(device, enabled=False):
            if begins:
                kind.optimizer_zero_grad(module, 0, 0, optimizer)
            if loss is not None:
                kind.backward(module, loss / share)
            if ends:
                clip(optimizer)
                optimizer.step()
        return output, logged

    step.__qualname__ = f"{kind.__qualname__}.training_step"
    return step


def _clipping(module: Any, trainer: Any) -> Callable[[Any], Any]:
    """The module's own clipping, or what Lightning's does."""
    value, algorithm = trainer.gradient_clip_val, trainer.gradient_clip_algorithm
    if overrides(module, "configure_gradient_clipping", _MODULES):
        given = {"gradient_clip_val": value, "gradient_clip_algorithm": algorithm}
        return functools.partial(type(module).configure_gradient_clipping, module, **given)
    if not value:
        return nothing
    by_value = algorithm is not None and algorithm.value == "value"
    clip = torch.nn.utils.clip_grad_value_ if by_value else torch.nn.utils.clip_grad_norm_
    return lambda optimizer: clip(
        [parameter for group in optimizer.param_groups for parameter in group["params"]], value
    )


class _Replayed:
    """In place of methods of the module and of its precision plugin."""

    def __init__(self, step: GraphedStep[Any, Any], trainer: Any, module: Any):
        self._step, self._trainer, self._module = step, trainer, module
        self._begins, self._ends = True, False

    def optimizer_step(self, optimizer: Any, model: Any, closure: Any, **_: Any) -> Any:
        """Lightning calls this with the last of the batches whose gradients are accumulated."""
        self._ends = True
        return closure()

    def training_step(self, *batch: Any) -> Any:
        if len(batch) > 1:
            batch = batch[0], 0, *batch[2:]
        counts = self._trainer.accumulate_grad_batches, self._begins, self._ends
        self._begins, self._ends = self._ends, False
        output, logged = self._step(batch, *counts)
        for names, settings in logged:
            self._module.log(*names, **settings)
        return output


def _note(logged: list[Any], *args: Any, **kwargs: Any) -> None:
    logged.append((args, kwargs))
