"""Fine-tuning as the Trainer's documentation shows it: random weights, synthetic sentences."""

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Sentences(Dataset):
    def __init__(self, count, length=64, vocabulary=1000):
        generator = torch.Generator().manual_seed(0)
        self.ids = torch.randint(5, vocabulary, (count, length), generator=generator)
        self.labels = torch.randint(0, 2, (count,), generator=generator)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        ids = self.ids[index]
        return {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "labels": self.labels[index],
        }


def make_trainer(callbacks=(), steps=200, **settings):
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=1000,
            hidden_size=128,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=256,
            attention_probs_dropout_prob=0.0,  # attention with a mask draws other random numbers
        )
    )
    arguments = TrainingArguments(
        output_dir="trainer_output",
        per_device_train_batch_size=16,
        max_steps=steps,
        learning_rate=2e-5,
        weight_decay=0.01,
        logging_steps=10,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        **settings,
    )
    return Trainer(
        model=model, args=arguments, train_dataset=Sentences(4096), callbacks=list(callbacks)
    )


if __name__ == "__main__":
    make_trainer().train()
