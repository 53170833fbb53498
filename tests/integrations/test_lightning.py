"""Modules of Lightning train with `GraphedSteps` as they do without, or say why they do not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the library's imports
    pl: Any = pytest.importorskip("lightning.pytorch")
    from launchscope.integrations.lightning import GraphedSteps

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
BATCHES, EPOCHS = 8, 3


class Module(pl.LightningModule):  # type: ignore[misc]
    """As people write them."""

    def __init__(self, rate: float = 0.05) -> None:
        super().__init__()
        self.rate = rate
        self.net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 6))

    def loss(self, batch: Any) -> torch.Tensor:
        return nn.functional.mse_loss(self.net(batch[0]), batch[0])

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.rate, momentum=0.9)


class Recorder(pl.Callback):  # type: ignore[misc]
    """What was logged behind each batch."""

    def __init__(self) -> None:
        self.logged: list[dict[str, float]] = []

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        self.logged.append({name: float(v) for name, v in trainer.callback_metrics.items()})


def train(
    accelerator: str,
    make: Callable[[], Any],
    *callbacks: Any,
    library: Any = pl,
    **settings: Any,
) -> Any:
    """The module behind its training, and what it logged."""
    torch.manual_seed(0)
    module, recorder = make(), Recorder()
    data = torch.utils.data.TensorDataset(torch.rand(4 * BATCHES, 6))
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    trainer = library.Trainer(
        max_epochs=EPOCHS,
        accelerator=accelerator,
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[*callbacks, *([recorder] if library is pl else [])],
        **settings,
    )
    trainer.fit(module, loader, torch.utils.data.DataLoader(data, batch_size=8))
    return module, recorder.logged


def check(accelerator: str, make: Callable[[], Any], **settings: Any) -> GraphedSteps:
    """It trains and logs the same with the callback, which is returned."""
    module, logged = train(accelerator, make, **settings)
    steps = GraphedSteps(check=2)
    other, others = train(accelerator, make, steps, **settings)
    for one, two in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)
    assert [sorted(entry) for entry in logged] == [sorted(entry) for entry in others]
    for expected, found in zip(logged, others, strict=True):
        assert found == pytest.approx(expected, rel=1e-3)
    assert set(vars(module)) == set(vars(other))
    return steps


class Scheduled(Module):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }


class WithExtras(Module):
    def training_step(self, batch: Any) -> Any:  # type: ignore[override]
        loss = self.loss(batch)
        self.log_dict({"train_loss": loss, "one": 1.0, "twice": 2 * loss.detach()})
        return {"loss": loss, "outputs": self.net(batch[0])}


class MovingRate(Module):
    """Of an optimizer that no graph contains then; the schedule is made during the training."""

    schedule: Any = None

    def configure_optimizers(self) -> Any:
        return AnyArguments(self.parameters(), lr=self.rate)

    def on_train_epoch_start(self) -> None:
        if self.current_epoch == 1:
            optimizer = self.optimizers().optimizer
            self.schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 7])

    def on_train_batch_end(self, *_: Any) -> None:
        if self.schedule is not None:
            self.schedule.step()


class AnyArguments(torch.optim.SGD):
    def step(self, *args: Any, **kwargs: Any) -> Any:
        return super().step(*args, **kwargs)


class OwnClipping(Module):
    def configure_gradient_clipping(self, optimizer: Any, **given: Any) -> None:
        for parameter in self.parameters():
            if parameter.grad is not None:
                parameter.grad.clamp_(-0.01, 0.01)


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (Module, {}),
        (Scheduled, {}),
        (MovingRate, {}),
        (WithExtras, {}),
        (OwnClipping, {}),
        (Module, {"gradient_clip_val": 0.05}),
        (Scheduled, {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"}),
        (Module, {"precision": "bf16-mixed"}),
        (Scheduled, {"accumulate_grad_batches": 2}),
        (Module, {"accumulate_grad_batches": 3}),  # the last batch of an epoch is alone
        (Module, {"val_check_interval": 3}),
    ],
)
def test_a_module_trains_and_logs_as_without(
    accelerator: str, make: Callable[[], Any], settings: dict[str, Any]
) -> None:
    steps = check(accelerator, make, **settings)
    assert steps.refusal is None
    assert steps.stats is not None
    assert steps.stats.replayed >= 3, steps.stats
    assert {reason.code for reason in steps.stats.reasons} == {"warmup"}


def test_it_says_at_the_end_how_much_was_replayed(
    accelerator: str, capsys: pytest.CaptureFixture[str]
) -> None:
    train(accelerator, Module, GraphedSteps())
    said = capsys.readouterr().err
    assert "launchscope: 18 of 24 steps (75 %) were replays of a CUDA graph" in said
    assert "5 eager: the first calls of each kind run eagerly" in said


class ReadsItem(Module):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        return loss * 2 if loss.item() > 0.1 else loss


def test_a_step_that_no_graph_can_hold_runs_eagerly_with_its_reason(
    accelerator: str, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = check(accelerator, ReadsItem)
    assert steps.stats is not None
    assert steps.stats.replayed == steps.stats.captured == 0
    assert "read on the host" in capsys.readouterr().err


class LogsIndex(Module):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.log("index", batch_idx)
        return self.loss(batch)


class PassesIndexOn(Module):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.shared_step(batch, batch_idx, "train")

    def shared_step(self, batch: Any, batch_idx: int, stage: str) -> Any:
        return self.loss(batch)


class PassesIndexToItsReader(PassesIndexOn):
    def shared_step(self, batch: Any, batch_idx: int, stage: str) -> Any:
        return self.loss(batch) * (1 + batch_idx % 2)


def test_a_batch_index_that_is_only_passed_on_is_no_reason_to_run_eagerly(accelerator: str) -> None:
    steps = check(accelerator, PassesIndexOn)
    assert steps.stats is not None
    assert steps.stats.replayed > 0


class Manual(Module):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizers = self.optimizers()
        for optimizer in optimizers if isinstance(optimizers, list) else [optimizers]:
            optimizer.zero_grad()
            self.manual_backward(self.loss(batch))
            optimizer.step()


class TwoOptimizers(Manual):
    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(part.parameters(), lr=0.05) for part in (self.net[0], self.net[3])]


class Lbfgs(Module):
    def configure_optimizers(self) -> Any:
        return torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=3)


class OwnStep(Module):
    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, closure: Any) -> None:
        optimizer.step(closure=closure)


class LooksAtGradients(Module):
    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.log("gradient", sum(p.grad.norm() for p in self.parameters() if p.grad is not None))


def compiled() -> Any:
    module: Any = Module()
    module.training_step = torch.compiler.disable(module.training_step)
    return module


@pytest.mark.parametrize(
    ("make", "settings", "said"),
    [
        (LogsIndex, {}, "training_step may use batch_idx"),
        (PassesIndexToItsReader, {}, "training_step may use batch_idx"),
        (Manual, {}, "the module optimizes manually"),
        (TwoOptimizers, {}, "the module optimizes manually"),
        (Lbfgs, {}, "LBFGS calls the whole step by itself"),
        (OwnStep, {}, "OwnStep.optimizer_step() runs in the middle of the step"),
        (LooksAtGradients, {}, "LooksAtGradients.on_before_optimizer_step() runs in the middle"),
        (compiled, {}, "training_step of the module was replaced"),
        (Module, {"strategy": "ddp"}, "DDPStrategy wraps the module for 1 ranks"),
    ],
)
def test_a_refusal_is_one_sentence_and_changes_nothing(
    accelerator: str,
    capsys: pytest.CaptureFixture[str],
    make: Callable[[], Any],
    settings: dict[str, Any],
    said: str,
) -> None:
    steps = check(accelerator, make, **settings)
    assert steps.stats is None
    assert steps.refusal is not None
    assert steps.refusal.startswith(said)
    assert f"no step ran as a CUDA graph: {said}" in capsys.readouterr().err


def test_a_module_of_the_package_with_the_old_name_is_replayed(accelerator: str) -> None:
    library: Any = pytest.importorskip("pytorch_lightning")

    class Old(library.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net, self.rate = nn.Linear(6, 6), 0.05

        loss, training_step = Module.loss, Module.training_step
        validation_step = Module.validation_step
        configure_optimizers = Module.configure_optimizers

    steps = GraphedSteps()
    train(accelerator, Old, steps, library=library)
    assert steps.stats is not None
    assert steps.stats.replayed == 18


def test_each_training_has_its_own_stats_and_only_a_training_has_some(
    accelerator: str, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = GraphedSteps()
    train(accelerator, Module, steps)
    train(accelerator, Manual, steps)
    assert steps.stats is None
    steps.on_exception()  # of a validation
    assert capsys.readouterr().err.count("launchscope: ") == 2


def test_what_is_not_as_expected_is_a_refusal_and_a_wrong_option_an_error_at_once() -> None:
    steps = GraphedSteps()
    steps.on_train_start(object(), Module())
    assert str(steps.refusal).startswith("its step was not understood: AttributeError")
    with pytest.raises(TypeError, match="chek"):
        GraphedSteps(chek=1)


class Fails(Module):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.current_epoch:
            raise ZeroDivisionError
        return self.loss(batch)


def test_a_training_that_fails_leaves_the_module_as_it_was(accelerator: str) -> None:
    module = Fails()
    with pytest.raises(ZeroDivisionError):
        train(accelerator, lambda: module, GraphedSteps())
    assert not {"training_step", "backward", "log"} & set(vars(module))
