"""transformers: `graph(trainer)` before `trainer.train()` runs its steps under `graphed`.

The whole step (forward, backward, clipping, optimizer, zero_grad) runs where the Trainer calls
`training_step`. Its loop, its state and its callbacks run as ever around it, and what it calls
afterwards for the rest of the step does nothing, because that is done.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import transformers

from launchscope.graphed import GraphedStep, Stats, graphed

from .replacing import Replacements, nothing, overrides
from .summary import summary, tell


def graph(trainer: Any, lengths: Sequence[int] = (), **options: Any) -> GraphedSteps:
    """Run the steps of this trainer as CUDA graphs where `graphed` can; `options` are its options.

    With `lengths`, each batch is padded to the first of these lengths that it fits into, so that a
    few graphs serve all batches. A batch that is longer than all of them stays as it is.
    """
    steps = GraphedSteps(trainer, options)
    if lengths:
        trainer.data_collator = padding(trainer.data_collator, lengths, trainer.model.config)
    trainer.add_callback(steps)
    return steps


class GraphedSteps(transformers.TrainerCallback):  # type: ignore[misc]
    """`refusal` says why the steps run without graphs; None if they run under `graphed`."""

    def __init__(self, trainer: Any, options: dict[str, Any]):
        self.refusal: str | None = None
        self._trainer, self._options = trainer, options
        self._graphed: GraphedStep[Any, Any] | None = None
        self._replacements = Replacements()
        train = trainer.train
        trainer.train = functools.wraps(train)(functools.partial(self._train, train))

    @property
    def stats(self) -> Stats | None:
        """What became of the steps; None before the first, or if `refusal` says why."""
        return None if self._graphed is None else self._graphed.stats

    def _train(self, train: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return train(*args, **kwargs)
        finally:
            self._replacements.undo()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._replacements.undo()  # a training that failed is tried again
        self.refusal = refusal(self._trainer)
        if self.refusal is None:
            self._install(self._trainer)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        tell(summary(self.stats, self.refusal))

    def _install(self, trainer: Any) -> None:
        self._graphed = graphed(**self._options)(_step_of(trainer))
        replayed = _Replayed(self._graphed, trainer)
        put = self._replacements.put
        put(trainer, "training_step", replayed.training_step)
        put(trainer.accelerator, "clip_grad_norm_", replayed.clip_grad_norm_)
        put(trainer.optimizer.optimizer, "step", nothing)
        put(trainer.model, "zero_grad", nothing)


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
    if overrides(trainer, transformers.Trainer, "training_step"):
        return f"{type(trainer).__name__} has a training_step of its own"
    for callback in trainer.callback_handler.callbacks:
        for name in ("on_pre_optimizer_step", "on_optimizer_step"):
            if hasattr(base, name) and overrides(callback, base, name):
                return f"{type(callback).__name__}.{name}() runs in the middle of the step"
    return None


def _step_of(trainer: Any) -> Callable[..., Any]:
    """The step as a graph contains it, with what the trainer is before it is changed here."""
    model, optimize = trainer.model, trainer.optimizer.optimizer.step
    zero_grad = model.zero_grad
    limit = trainer.args.max_grad_norm or math.inf  # for the log

    def step(inputs: dict[str, Any], items: Any, share: float, ends: bool) -> Any:
        """The loss, and the norm of the gradients. Of the batches whose gradients are accumulated,
        with this share each, it is the last one if it `ends` a step of the optimizer."""
        given = {} if items is None else {"num_items_in_batch": items}
        with _as_in_a_capture(), trainer.compute_loss_context_manager():
            loss = trainer.compute_loss(model, inputs, **given)
        loss = loss * share
        loss.backward()
        if not ends:
            return loss.detach(), None
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        optimize()
        zero_grad()
        return loss.detach(), norm

    step.__qualname__ = f"{type(trainer).__qualname__}.training_step"
    return step


@contextlib.contextmanager
def _as_in_a_capture() -> Iterator[None]:
    """Models that look at their attention mask on the host do not while a stream is captured. The
    calls that are watched before a capture have to run what it will contain."""
    original = torch.cuda.is_current_stream_capturing
    torch.cuda.is_current_stream_capturing = lambda: True
    try:
        yield
    finally:
        torch.cuda.is_current_stream_capturing = original


class _Replayed:
    """In place of methods of the trainer and of its accelerator."""

    def __init__(self, step: GraphedStep[Any, Any], trainer: Any):
        self._graphed, self._trainer = step, trainer
        self._training_step = trainer.training_step
        self._norm: Any = None

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        trainer = self._trainer
        share = self._share(model, inputs, num_items_in_batch)
        on_device = trainer._prepare_inputs(inputs)
        plain = dict(on_device) if isinstance(on_device, Mapping) else on_device
        if num_items_in_batch is not None:  # another number in each call
            num_items_in_batch = torch.as_tensor(num_items_in_batch, device=trainer.args.device)
        ends = trainer.accelerator.sync_gradients
        loss, self._norm = self._graphed(plain, num_items_in_batch, share, ends)
        return loss

    def _share(self, model: Any, *given: Any) -> float:
        """By what the Trainer multiplies a loss before its backward: it is given a loss of 1."""
        trainer, asked, losses = self._trainer, Replacements(), list[float]()
        asked.put(trainer, "compute_loss", lambda *_, **__: torch.ones(()))
        asked.put(trainer.accelerator, "backward", lambda loss, **_: losses.append(float(loss)))
        try:
            self._training_step(model, *given)
        finally:
            asked.undo()
        return losses[0] / int(trainer.accelerator.gradient_accumulation_steps)

    def clip_grad_norm_(self, *_: Any, **__: Any) -> Any:
        return self._norm


def padding(
    collate: Callable[[Any], Any], lengths: Sequence[int], config: Any
) -> Callable[[Any], Any]:
    """The collator, with batches padded to the first of `lengths` that they fit into. Labels get
    -100, the index that losses ignore; `input_ids` the padding of the model; all others 0."""
    values = {"labels": -100, "input_ids": getattr(config, "pad_token_id", None) or 0}

    def padded(features: Any) -> Any:
        batch = collate(features)
        ids = batch["input_ids"]
        length = next((n for n in sorted(lengths) if n >= ids.shape[1]), ids.shape[1])
        if "attention_mask" not in batch:
            batch["attention_mask"] = torch.ones_like(ids)
        for name, tensor in batch.items():
            if isinstance(tensor, torch.Tensor) and tensor.shape[:2] == ids.shape[:2]:
                size = (0, 0) * (tensor.dim() - 2) + (0, length - tensor.shape[1])
                batch[name] = torch.nn.functional.pad(tensor, size, value=values.get(name, 0))
        return batch

    return padded
