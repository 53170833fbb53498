"""Train a text classifier on sentences of many lengths, padded batch by batch."""

import argparse
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

VOCABULARY, PAD = 2000, 0


class Classifier(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width, padding_idx=PAD)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 2)

    def forward(self, tokens):
        padding = tokens == PAD
        x = self.encoder(self.embedding(tokens), src_key_padding_mask=padding)
        x = x.masked_fill(padding.unsqueeze(-1), 0.0)
        return self.head(x.sum(dim=1) / (~padding).sum(dim=1, keepdim=True))


def collate(sentences):
    tokens, labels = zip(*sentences)
    return pad_sequence(tokens, batch_first=True, padding_value=PAD), torch.tensor(labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--max-length", type=int, default=96)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    args = parser.parse_args()

    random.seed(0)
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    sentences = []
    for _ in range(args.steps * args.batch_size):
        length = random.randint(4, args.max_length)
        sentences.append((torch.randint(1, VOCABULARY, (length,)), length % 2))
    loader = DataLoader(sentences, args.batch_size, collate_fn=collate)

    model = Classifier(args.width, args.layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for tokens, labels in loader:
        logits = model(tokens.to(device))
        loss = F.cross_entropy(logits, labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    print(f"done after {len(loader)} steps, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
