"""Lightning: `Trainer(callbacks=[GraphedSteps()])` runs the steps of an unmodified module under
`graphed`.

The whole step (forward, zero_grad, backward, clipping, optimizer) runs where Lightning calls
`training_step`. Lightning's loop, its counters and its hooks run as ever around it, and the methods
that it calls afterwards for the rest of the step do nothing, because that is done.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import operator
import sys
from collections.abc import Callable
from typing import Any

import torch

from launchscope.graphed import GraphedStep, Stats, graphed

from .replacing import Replacements, nothing, overrides
from .summary import summary, tell
from .unread import Unread

# Two packages with the same classes: that of the script.
_of_old = "pytorch_lightning" in sys.modules and "lightning" not in sys.modules
pl: Any = importlib.import_module("pytorch_lightning" if _of_old else "lightning.pytorch")

# What runs between the parts of a step, where a graph leaves no room for it.
_BETWEEN = (
    "on_before_zero_grad", "on_before_backward", "on_after_backward", "on_before_optimizer_step",
)  # fmt: skip

# Its code names no `param_groups`: the guards take code that does for code that reads the rate.
_groups = operator.attrgetter("param_groups")
_DONE = ("backward", "optimizer_zero_grad", "configure_gradient_clipping")


class GraphedSteps(pl.Callback):  # type: ignore[misc]
    """`options` are those of `graphed`. `refusal` says why the steps run without it; None if they
    run under `graphed`."""

    def __init__(self, **options: Any):
        super().__init__()
        self.refusal: str | None = None
        self._options = options
        self._graphed: GraphedStep[Any, Any] | None = None
        self._replacements = Replacements()

    @property
    def stats(self) -> Stats | None:
        """What became of the steps; None before the first, or if `refusal` says why."""
        return None if self._graphed is None else self._graphed.stats

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.refusal = refusal(trainer, pl_module)
        if self.refusal is None:
            self._install(trainer, pl_module)

    def on_train_end(self, *_: Any) -> None:
        self._replacements.undo()
        tell(summary(self.stats, self.refusal))

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Also of Ctrl-C, which ends a training without `on_train_end`."""
        self.on_train_end()

    def _install(self, trainer: Any, module: Any) -> None:
        self._graphed = graphed(**self._options)(_step_of(module, trainer))
        replayed = _Replayed(self, self._graphed, trainer, module)
        put = self._replacements.put
        put(module, "training_step", replayed.training_step)
        put(module, "optimizer_step", replayed.optimizer_step)
        for name in _DONE:
            put(module, name, nothing)
        put(trainer.optimizers[0], "step", _call_closure)


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
    if inspect.signature(trainer.optimizers[0].step).parameters["closure"].default is not None:
        return f"{type(trainer.optimizers[0]).__name__} calls the whole step by itself"
    for name in ("training_step", *_DONE):
        if name in vars(module):
            return f"{name} of the module was replaced, as torch.compile does"
    owners = [(module, pl.LightningModule)]
    owners += [(callback, pl.Callback) for callback in trainer.callbacks]
    for owner, base in owners:
        for name in (*_BETWEEN, "optimizer_step") if owner is module else _BETWEEN:
            if overrides(owner, base, name):
                return f"{type(owner).__name__}.{name}() runs in the middle of the step"
    return None


def _step_of(module: Any, trainer: Any) -> Callable[..., Any]:
    """The step as a graph contains it, with what the module and the optimizer are before they are
    changed here."""
    kind, optimizer = type(module), trainer.optimizers[0]
    optimize, clip = optimizer.step, _clipping(module, trainer)
    device = module.device.type

    def step(args: Any, kwargs: Any, epoch: Any, share: int, begins: bool, ends: bool) -> Any:
        """What `training_step` returns, and the calls of `log` in it. Of the `share` batches whose
        gradients are accumulated it is one that begins a step of the optimizer or ends it."""
        logged: list[Any] = []
        module.log = functools.partial(_note, logged)
        try:
            output = kind.training_step(module, *args, **kwargs)
        finally:
            del module.log
        loss = output["loss"] if isinstance(output, dict) else output
        with torch.autocast(device, enabled=False):
            if begins:
                kind.optimizer_zero_grad(module, epoch, args[1] if len(args) > 1 else 0, optimizer)
            if loss is not None:
                kind.backward(module, loss / share)
            if ends:
                clip(optimizer)
                optimize()
        return output, logged

    step.__qualname__ = f"{kind.__qualname__}.training_step"
    return step


def _clipping(module: Any, trainer: Any) -> Callable[[Any], Any]:
    """The module's own clipping, or what Lightning's does."""
    value, algorithm = trainer.gradient_clip_val, trainer.gradient_clip_algorithm
    if overrides(module, pl.LightningModule, "configure_gradient_clipping"):
        given = {"gradient_clip_val": value, "gradient_clip_algorithm": algorithm}
        return functools.partial(type(module).configure_gradient_clipping, module, **given)
    if not value:
        return nothing
    by_value = algorithm is not None and algorithm.value == "value"
    clip = torch.nn.utils.clip_grad_value_ if by_value else torch.nn.utils.clip_grad_norm_
    return lambda optimizer: clip(_parameters(optimizer), value)


def _parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in _groups(optimizer) for parameter in group["params"]]


class _Replayed:
    """In place of methods of the module."""

    def __init__(self, steps: GraphedSteps, step: GraphedStep[Any, Any], trainer: Any, module: Any):
        self._steps, self._trainer, self._module = steps, trainer, module
        self._run: Callable[..., Any] = step
        self._run_eagerly: Callable[..., Any] = inspect.unwrap(step)
        self._optimizer_step = module.optimizer_step
        self._numbers = Unread(), Unread()
        self._begins, self._ends = True, False

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Lightning calls this with the last of the batches whose gradients are accumulated."""
        self._ends = True
        self._optimizer_step(*args, **kwargs)

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        epoch, index = self._numbers
        if len(args) > 1:
            args = args[0], index.holding(args[1]), *args[2:]
        if index.was_read:
            self._run = self._run_eagerly
            self._steps.refusal = "training_step reads batch_idx, another number in each call"
        counts = self._trainer.accumulate_grad_batches, self._begins, self._ends
        now = epoch.holding(self._module.current_epoch)
        self._begins, self._ends = self._ends, False
        output, logged = self._run(args, kwargs, now, *counts)
        for names, settings in logged:
            self._module.log(*names, **settings)
        return output


def _note(logged: list[Any], *args: Any, **kwargs: Any) -> None:
    logged.append((args, kwargs))


def _call_closure(closure: Callable[[], Any] | None = None, **_: Any) -> Any:
    return None if closure is None else closure()
