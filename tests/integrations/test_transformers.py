"""The Trainer of transformers trains with `graph` as it does without, or says why it does not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the library's imports
    transformers: Any = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from launchscope.integrations.transformers import GraphedSteps, graph

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
STEPS = 16


class Sentences(torch.utils.data.Dataset[Any]):
    def __init__(self, longest: int = 12, shortest: int = 12):
        torch.manual_seed(1)
        sizes = torch.randint(shortest, longest + 1, (64,))
        self.ids = [torch.randint(5, 50, (int(size),)) for size in sizes]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        ids = self.ids[index]
        return {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "labels": int(ids[0]) % 2,
        }


def padded(features: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """To the longest of each batch, as the collators of transformers do."""
    rows = torch.nn.utils.rnn.pad_sequence
    return {
        "input_ids": rows([f["input_ids"] for f in features], batch_first=True),
        "attention_mask": rows([f["attention_mask"] for f in features], batch_first=True),
        "labels": torch.tensor([f["labels"] for f in features]),
    }


class Recorder(transformers.TrainerCallback):  # type: ignore[misc]
    def __init__(self) -> None:
        self.logged: list[dict[str, float]] = []

    def on_log(self, *_: Any, logs: Any = None, **__: Any) -> None:
        self.logged.append({k: v for k, v in logs.items() if k in ("loss", "grad_norm")})


def make(
    folder: Path,
    accelerator: str,
    kind: Any = transformers.Trainer,
    data: Any = None,
    callbacks: Any = (),
    dropout: float = 0.1,
    **settings: Any,
) -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=0.0,  # a kernel that has a mask draws other numbers
    )
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        max_steps=STEPS,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=accelerator == "cpu",
        dataloader_pin_memory=accelerator != "cpu",
        **{"learning_rate": 1e-3, **settings},
    )
    return kind(
        model=transformers.BertForSequenceClassification(config),
        args=arguments,
        train_dataset=data or Sentences(),
        data_collator=padded,
        callbacks=list(callbacks),
    )


def check(build: Callable[..., Any], lengths: tuple[int, ...] = ()) -> GraphedSteps:
    """It trains and logs the same with `graph`, whose result is returned."""
    parameters, logs = [], []
    for graphed in (False, True):
        recorder = Recorder()
        trainer = build(callbacks=[recorder])
        steps = graph(trainer, lengths, check=3) if graphed else None
        before = set(vars(trainer.accelerator))
        trainer.train()
        assert set(vars(trainer.accelerator)) == before
        parameters.append([p.detach().cpu() for p in trainer.model.parameters()])
        logs.append(recorder.logged)
    for one, two in zip(*parameters, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-2, atol=1e-3)
    for expected, found in zip(*logs, strict=True):
        assert found == pytest.approx(expected, rel=1e-2)
    assert steps is not None
    return steps


class OwnLoss(transformers.Trainer):  # type: ignore[misc]
    def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
        labels = inputs.pop("labels")
        return torch.nn.functional.cross_entropy(model(**inputs).logits, labels)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (transformers.Trainer, {}),
        (OwnLoss, {}),
        (transformers.Trainer, {"max_grad_norm": 0.0}),
        (transformers.Trainer, {"bf16": True}),
        (transformers.Trainer, {"gradient_accumulation_steps": 3}),
        (transformers.Trainer, {"optim": "adamw_torch_fused", "warmup_steps": 4}),
    ],
)
def test_a_trainer_trains_and_logs_as_without(
    tmp_path: Path, accelerator: str, kind: Any, settings: dict[str, Any]
) -> None:
    steps = check(lambda **given: make(tmp_path, accelerator, kind, **given, **settings))
    assert steps.refusal is None
    assert steps.stats is not None
    assert steps.stats.replayed >= STEPS - 6, steps.stats
    assert steps.stats.checked
    assert {reason.code for reason in steps.stats.reasons} == {"warmup"}


def test_batches_of_many_lengths_are_padded_to_a_few(tmp_path: Path, accelerator: str) -> None:
    """Without dropout, which draws other numbers for a longer batch."""

    def build(callbacks: Any) -> Any:
        return make(
            tmp_path,
            accelerator,
            data=Sentences(20, 2),
            callbacks=callbacks,
            dropout=0.0,
        )

    steps = check(build, (16, 20))
    assert steps.stats is not None
    assert steps.stats.graphs <= 2
    assert steps.stats.replayed >= STEPS // 2, steps.stats


def test_it_says_at_the_end_how_much_was_replayed(
    tmp_path: Path, accelerator: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = make(tmp_path, accelerator)
    graph(trainer)
    trainer.train()
    said = capsys.readouterr().err
    assert "launchscope: 12 of 16 steps (75 %) were replays of a CUDA graph" in said


class OwnStep(transformers.Trainer):  # type: ignore[misc]
    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        return super().training_step(*args, **kwargs)


class LooksAtGradients(transformers.TrainerCallback):  # type: ignore[misc]
    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None: ...


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        (OwnStep, {}, "OwnStep has a training_step of its own"),
        (
            transformers.Trainer,
            {"callbacks": [LooksAtGradients()]},
            "LooksAtGradients.on_pre_optimizer_step() runs in the middle of the step",
        ),
    ],
)
def test_a_refusal_is_one_sentence_and_changes_nothing(
    tmp_path: Path,
    accelerator: str,
    capsys: pytest.CaptureFixture[str],
    kind: Any,
    settings: dict[str, Any],
    said: str,
) -> None:
    more = settings.pop("callbacks", [])
    steps = check(
        lambda callbacks: make(
            tmp_path, accelerator, kind, callbacks=[*callbacks, *more], **settings
        )
    )
    assert steps.stats is None
    assert steps.refusal == said
    assert f"no step ran as a CUDA graph: {said}" in capsys.readouterr().err


class Fails(transformers.Trainer):  # type: ignore[misc]
    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        raise ZeroDivisionError


def test_a_training_that_fails_leaves_the_trainer_as_it_was(
    tmp_path: Path, accelerator: str
) -> None:
    trainer = make(tmp_path, accelerator, Fails)
    graph(trainer)
    with pytest.raises(ZeroDivisionError):
        trainer.train()
    assert "training_step" not in vars(trainer)
    assert "clip_grad_norm_" not in vars(trainer.accelerator)
