"""The autoencoder of Lightning's documentation, on synthetic images."""

import lightning as L
import torch
from torch import nn, optim, utils


class LitAutoEncoder(L.LightningModule):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def training_step(self, batch, batch_idx):
        x, _ = batch
        x = x.view(x.size(0), -1)
        z = self.encoder(x)
        x_hat = self.decoder(z)
        loss = nn.functional.mse_loss(x_hat, x)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return optim.Adam(self.parameters(), lr=1e-3)


def train(callbacks=(), steps=250):
    encoder = nn.Sequential(nn.Linear(28 * 28, 64), nn.ReLU(), nn.Linear(64, 3))
    decoder = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 28 * 28))
    autoencoder = LitAutoEncoder(encoder, decoder)
    images = torch.rand(32 * steps, 1, 28, 28)
    dataset = utils.data.TensorDataset(images, torch.zeros(len(images)))
    train_loader = utils.data.DataLoader(dataset, batch_size=32)

    trainer = L.Trainer(
        max_steps=steps,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        callbacks=list(callbacks),
    )
    trainer.fit(model=autoencoder, train_dataloaders=train_loader)
    return autoencoder


if __name__ == "__main__":
    train()
