"""The Trainer of transformers: `graph(trainer)`, and `trainer.train()` runs its steps under
`graphed`.

The whole step (forward, backward, clipping, optimizer, zero_grad) runs where the Trainer calls
`training_step`. Its loop, its state and its callbacks run as ever around it, and what it calls
afterwards for the rest of the step does nothing, because that is done.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers

from launchscope.graphed import GraphedStep, graphed

from .adapter import Adapter
from .replacing import Replacements, nothing, overrides


def graph(trainer: Any, **options: Any) -> GraphedSteps:
    """Run the steps of this trainer as CUDA graphs where `graphed` can; `options` are its options.
    Another call replaces what the last one did."""
    for callback in list(trainer.callback_handler.callbacks):
        if isinstance(callback, GraphedSteps):
            callback.remove()
    steps = GraphedSteps(trainer, options)
    trainer.add_callback(steps)
    return steps


class GraphedSteps(Adapter, transformers.TrainerCallback):  # type: ignore[misc]
    """What `graph` adds to a trainer."""

    def __init__(self, trainer: Any, options: dict[str, Any]):
        super().__init__(options)
        self._trainer, self._around = trainer, Replacements()
        self._around.put(trainer, "train", functools.partial(self._train, trainer.train))

    def remove(self) -> None:
        self._around.undo()
        self._trainer.remove_callback(self)

    def _train(self, train: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return train(*args, **kwargs)
        finally:
            self._end()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._begin(refusal, self._install, self._trainer)

    def _install(self, trainer: Any) -> GraphedStep[Any, Any]:
        step: GraphedStep[Any, Any] = graphed(**self._options)(_step_of(trainer))
        replayed = _Replayed(step, trainer)
        put = self._replacements.put
        put(trainer, "training_step", replayed.training_step)
        put(trainer.accelerator, "clip_grad_norm_", replayed.clip_grad_norm_)
        put(trainer.optimizer, "step", nothing)
        put(trainer.model, "zero_grad", nothing)
        return step


def refusal(trainer: Any) -> str | None:
    """Why the steps of a trainer cannot run as graphs; None if they can, as far as one knows."""
    arguments, accelerator = trainer.args, trainer.accelerator
    base = transformers.TrainerCallback
    if arguments.world_size > 1:
        return f"it trains on {arguments.world_size} ranks"
    if trainer.model_wrapped is not trainer.model:
        return f"the model is wrapped in {type(trainer.model_wrapped).__name__}"
    if getattr(accelerator, "scaler", None) is not None:
        return "fp16=True scales the loss; use bf16=True"
    if overrides(trainer, "training_step", [transformers.Trainer]):
        return f"{type(trainer).__name__} has a training_step of its own"
    if "training_step" in vars(trainer):
        return "training_step of the trainer was replaced"
    for callback in trainer.callback_handler.callbacks:
        for name in ("on_pre_optimizer_step", "on_optimizer_step"):
            if hasattr(base, name) and overrides(callback, name, [base]):
                return f"{type(callback).__name__}.{name}() runs in the middle of the step"
    return None


def _step_of(trainer: Any) -> Callable[..., Any]:
    """The step as a graph contains it, with what the trainer is before it is changed here."""
    model, optimizer = trainer.model, trainer.optimizer.optimizer
    zero_grad = model.zero_grad
    limit = trainer.args.max_grad_norm or math.inf  # for the log

    def step(inputs: Any, items: Any, share: float, shown: float, ends: bool) -> Any:
        """The loss that is `shown`, and the norm of the gradients. Of the batches whose gradients
        are accumulated, with this share each, it is the last one if it `ends` a step of the
        optimizer."""
        given = {} if items is None else {"num_items_in_batch": items}
        with Replacements() as inside, trainer.compute_loss_context_manager():
            # Models that look at their attention mask on the host do not while a stream is
            # captured. The calls that are watched before have to run what a capture will contain.
            inside.put(torch.cuda, "is_current_stream_capturing", lambda: True)
            # Nothing wraps the model; Accelerate's own looks for packages on the disk.
            inside.put(trainer.accelerator, "unwrap_model", lambda model, *_, **__: model)
            loss = trainer.compute_loss(model, inputs, **given)
        (loss * share).backward()
        if not ends:
            return loss.detach() * shown, None
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        optimizer.step()
        zero_grad()
        return loss.detach() * shown, norm

    step.__qualname__ = f"{type(trainer).__qualname__}.training_step"
    return step


class _Replayed:
    """In place of methods of the trainer and of its accelerator."""

    def __init__(self, step: GraphedStep[Any, Any], trainer: Any):
        self._graphed, self._trainer = step, trainer
        self._training_step = trainer.training_step
        self._norm: Any = None

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        """The Trainer's own runs with a loss of 1. So it says by what it multiplies a loss."""
        trainer, seen = self._trainer, list[Any]()

        def compute_loss(_: Any, batch: Any, *__: Any, **___: Any) -> Any:
            seen.append(batch)
            return torch.ones(())

        with Replacements() as asked:
            asked.put(trainer, "compute_loss", compute_loss)
            asked.put(trainer.accelerator, "backward", lambda loss, **_: seen.append(float(loss)))
            shown = float(self._training_step(model, inputs, num_items_in_batch))
        batch, share = seen
        share /= int(trainer.accelerator.gradient_accumulation_steps)
        plain = dict(batch) if isinstance(batch, Mapping) else batch
        if num_items_in_batch is not None:  # another number in each call
            num_items_in_batch = torch.as_tensor(num_items_in_batch, device=trainer.args.device)
        ends = trainer.accelerator.sync_gradients
        loss, self._norm = self._graphed(plain, num_items_in_batch, share, shown, ends)
        return loss

    def clip_grad_norm_(self, *_: Any, **__: Any) -> Any:
        return self._norm
