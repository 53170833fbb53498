"""Generate text token by token: one prefill per prompt, then decoding with a growing cache."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY = 2048


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x, past):
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        x = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        return self.out(x.transpose(1, 2).reshape(batch, length, width)), (k, v)


class Decoder(nn.Module):
    def __init__(self, layers, width, heads):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.attention = nn.ModuleList([Attention(width, heads) for _ in range(layers)])
        self.mlp = nn.ModuleList(
            [
                nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
                for _ in range(layers)
            ]
        )
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens, cache=None):
        x = self.tokens(tokens)
        new_cache = []
        for i, (attention, mlp) in enumerate(zip(self.attention, self.mlp)):
            attended, past = attention(F.rms_norm(x, x.shape[-1:]), cache[i] if cache else None)
            x = x + attended
            x = x + mlp(F.rms_norm(x, x.shape[-1:]))
            new_cache.append(past)
        return self.head(x[:, -1]), new_cache


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=20, help="prompts to answer")
parser.add_argument("--prompt-length", type=int, default=48)
parser.add_argument("--new-tokens", type=int, default=32)
parser.add_argument("--layers", type=int, default=6)
parser.add_argument("--width", type=int, default=256)
args = parser.parse_args()

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = Decoder(args.layers, args.width, heads=8).to(device).eval()

with torch.inference_mode():
    for _ in range(args.steps):
        prompt = torch.randint(0, VOCABULARY, (1, args.prompt_length), device=device)
        logits, cache = model(prompt)
        answer = [logits.argmax(dim=-1, keepdim=True)]
        for _ in range(args.new_tokens - 1):
            logits, cache = model(answer[-1], cache)
            answer.append(logits.argmax(dim=-1, keepdim=True))

print(f"done after {args.steps} prompts, last answer {torch.cat(answer, dim=1)[0, :8].tolist()}")
