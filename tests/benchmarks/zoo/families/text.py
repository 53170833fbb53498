"""transformers: language models with random weights and explicit attention masks.

Without a mask, or with one per token, library code looks at its values or asks whether the
stream is capturing; a mask of four dimensions is taken as it is. One BERT goes without on
purpose: its capture records other work than eager runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.benchmarks.zoo.workload import (
    Family,
    Step,
    Workload,
    inference,
    optimizer_for,
    training,
)

Make = Callable[[], Any]


def _bert() -> Any:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(), add_pooling_layer=False)


def _distilbert() -> Any:
    from transformers import DistilBertConfig, DistilBertModel

    return DistilBertModel(DistilBertConfig())


def _gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(use_cache=False))


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=8192,
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=8,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


def _t5() -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        d_ff=2048, num_layers=6, num_heads=8, decoder_start_token_id=0, use_cache=False
    )
    return T5ForConditionalGeneration(config)


def _tokens(device: torch.device, batch: int, length: int) -> torch.Tensor:
    return torch.randint(0, 8192, (batch, length), device=device)


def _mask(
    device: torch.device, batch: int, length: int, dtype: torch.dtype, *, causal: bool
) -> torch.Tensor:
    """What is added to the attention's scores, batch x 1 x queries x keys."""
    seen = torch.ones(length, length, dtype=torch.bool, device=device)
    seen = seen.tril() if causal else seen
    added = torch.zeros(length, length, dtype=dtype, device=device)
    added = added.masked_fill(~seen, torch.finfo(dtype).min)
    return added.expand(batch, 1, length, length).contiguous()


def encoder(make: Make, length: int) -> Callable[[torch.device, int], Step]:
    """Inference of an encoder in bf16."""

    def build(device: torch.device, batch: int) -> Step:
        with torch.device(device):
            model = make().to(torch.bfloat16).eval()
        mask = _mask(device, batch, length, torch.bfloat16, causal=False)

        def run(tokens: torch.Tensor, mask: torch.Tensor) -> Any:
            return model(tokens, attention_mask=mask).last_hidden_state

        return inference(run, (_tokens(device, batch, length), mask))

    return build


def encoder_without_mask(device: torch.device, batch: int) -> Step:
    """BERT in bf16 with no mask at all; the truth is taken with one."""
    with torch.device(device):
        model = _bert().to(torch.bfloat16).eval()
    mask = _mask(device, batch, 128, torch.bfloat16, causal=False)

    def run(tokens: torch.Tensor) -> Any:
        return model(tokens).last_hidden_state

    def masked(tokens: torch.Tensor) -> Any:
        return model(tokens, attention_mask=mask).last_hidden_state

    inputs = (_tokens(device, batch, 128),)
    plain = inference(run, inputs)
    return Step(plain.run, inputs, same_work=inference(masked, inputs).run)


def encoder_training(device: torch.device, batch: int) -> Step:
    """BERT trained to predict its own input, bf16 autocast, with a mask."""
    with torch.device(device):
        model = _bert().train()
        head = torch.nn.Linear(768, 8192)
    parameters = [*model.parameters(), *head.parameters()]
    tokens = _tokens(device, batch, 128)
    # Scores are computed in bf16 under autocast, and the mask is added to them.
    mask = _mask(device, batch, 128, torch.bfloat16, causal=False)

    def loss_of(tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        logits = head(model(tokens, attention_mask=mask).last_hidden_state)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())

    return training(loss_of, (tokens, mask), optimizer_for(parameters, device), autocast=True)


def decoder(make: Make, length: int, kind: str) -> Callable[[torch.device, int], Step]:
    """A causal language model: training under bf16 autocast, inference in bf16."""

    def build(device: torch.device, batch: int) -> Step:
        with torch.device(device):
            model = make()
        tokens = _tokens(device, batch, length)
        mask = _mask(device, batch, length, torch.bfloat16, causal=True)
        places = torch.arange(length, device=device).expand(batch, length).contiguous()
        if kind == "inference":
            model = model.to(torch.bfloat16).eval()

            def run(tokens: torch.Tensor, mask: torch.Tensor, places: torch.Tensor) -> Any:
                return model(tokens, attention_mask=mask, position_ids=places).logits

            return inference(run, (tokens, mask, places))

        def loss_of(tokens: torch.Tensor, mask: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
            logits = model(tokens, attention_mask=mask, position_ids=places).logits
            flat = logits[:, :-1].flatten(0, 1).float()
            return torch.nn.functional.cross_entropy(flat, tokens[:, 1:].flatten())

        optimizer = optimizer_for(model.parameters(), device)
        return training(loss_of, (tokens, mask, places), optimizer, autocast=True)

    return build


def t5_training(device: torch.device, batch: int) -> Step:
    """t5-small, 128 tokens in and out, fp32."""
    length = 128
    with torch.device(device):
        model = _t5().train()
    tokens = _tokens(device, batch, length)
    sees = _mask(device, batch, length, torch.float32, causal=False)
    causal = _mask(device, batch, length, torch.float32, causal=True)

    def loss_of(tokens: torch.Tensor, sees: torch.Tensor, causal: torch.Tensor) -> torch.Tensor:
        logits = model(
            input_ids=tokens,
            attention_mask=sees,
            decoder_input_ids=tokens,
            decoder_attention_mask=causal,
        ).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())

    optimizer = optimizer_for(model.parameters(), device)
    return training(loss_of, (tokens, sees, causal), optimizer)


FAMILY = Family(
    "text",
    "transformers",
    (
        Workload("bert-inference-b32", "inference", 32, encoder(_bert, 128)),
        Workload("bert-no-mask-inference-b32", "inference", 32, encoder_without_mask),
        Workload("bert-train-b8", "train", 8, encoder_training),
        Workload("distilbert-inference-b1", "inference", 1, encoder(_distilbert, 64)),
        Workload("distilbert-inference-b128", "inference", 128, encoder(_distilbert, 128)),
        Workload("gpt2-train-b4-l256", "train", 4, decoder(_gpt2, 256, "train")),
        Workload("gpt2-train-b16-l1024", "train", 16, decoder(_gpt2, 1024, "train")),
        Workload("gpt2-inference-b1-l128", "inference", 1, decoder(_gpt2, 128, "inference")),
        Workload("llama-train-b8-l256", "train", 8, decoder(_llama, 256, "train")),
        Workload("llama-inference-b32-l512", "inference", 32, decoder(_llama, 512, "inference")),
        Workload("t5-small-train-b8", "train", 8, t5_training),
    ),
)
