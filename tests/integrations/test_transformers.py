"""The Trainer of transformers trains with `graph` as it does without, or says why it does not."""

from __future__ import annotations

import contextlib
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
    def __init__(self) -> None:
        torch.manual_seed(1)
        self.ids = torch.randint(5, 50, (64, 12))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        ids = self.ids[index]
        return {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "labels": int(ids[0]) % 2,
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
    callbacks: Any = (),
    **settings: Any,
) -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
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
        train_dataset=Sentences(),
        callbacks=list(callbacks),
    )


def check(build: Callable[..., Any]) -> GraphedSteps:
    """It trains and logs the same with `graph`, whose result is returned."""
    parameters, logs = [], []
    for graphed in (False, True):
        recorder = Recorder()
        trainer = build(callbacks=[recorder])
        steps = graph(trainer, check=3) if graphed else None
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


class MovingRate(transformers.Trainer):  # type: ignore[misc]
    """Of an optimizer that no graph contains then."""

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        schedule = torch.optim.lr_scheduler.MultiStepLR
        self.lr_scheduler = schedule(optimizer or self.optimizer, [5])
        return self.lr_scheduler


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (transformers.Trainer, {}),
        (MovingRate, {"optim": "sgd"}),
        (transformers.Trainer, {"label_smoothing_factor": 0.1}),
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
    assert steps.stats.replayed >= STEPS - 7, steps.stats
    assert steps.stats.checked
    assert {reason.code for reason in steps.stats.reasons} == {"warmup"}


class Stops(transformers.TrainerCallback):  # type: ignore[misc]
    def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        if state.global_step == 9:
            raise KeyboardInterrupt


def test_batches_that_a_collator_pads_to_few_lengths_are_replayed(
    tmp_path: Path, accelerator: str
) -> None:
    tokenizers: Any = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0}, "[PAD]"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]")

    def build(callbacks: Any) -> Any:
        trainer = make(tmp_path, accelerator, callbacks=callbacks)
        sentences = Sentences()
        trainer.train_dataset = [
            {"input_ids": one["input_ids"][: 5 + at % 8].tolist(), "labels": one["labels"]}
            for at, one in ((at, sentences[at]) for at in range(len(sentences)))
        ]
        trainer.data_collator = transformers.DataCollatorWithPadding(
            tokenizer, pad_to_multiple_of=4
        )
        return trainer

    steps = check(build)
    assert steps.stats is not None
    assert steps.stats.graphs <= 2
    assert steps.stats.replayed >= STEPS // 2, steps.stats


@pytest.mark.parametrize(("callbacks", "steps"), [([], "12 of 16"), ([Stops()], "5 of 9")])
def test_it_says_once_how_much_was_replayed_however_the_training_ends(
    tmp_path: Path,
    accelerator: str,
    capsys: pytest.CaptureFixture[str],
    callbacks: list[Any],
    steps: str,
) -> None:
    trainer = make(tmp_path, accelerator, callbacks=callbacks)
    graph(trainer)
    graph(trainer)  # as a notebook's cell that runs again
    with contextlib.suppress(KeyboardInterrupt):
        trainer.train()
    said = capsys.readouterr().err
    assert said.count("launchscope: ") == said.count(f"launchscope: {steps} steps (") == 1


def test_each_training_has_its_own_stats(tmp_path: Path, accelerator: str) -> None:
    trainer = make(tmp_path, accelerator)
    steps = graph(trainer)
    trainer.train()
    trainer.add_callback(LooksAtGradients())
    trainer.train()
    assert steps.stats is None


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
