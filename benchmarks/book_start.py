"""The dates of Saito 2018 with the book's own start: exact match on its test after each epoch.

python -m benchmarks.book_start plain

The recipe `dates-book`, with two things as the book has them: the decoder starts from the encoder's
hidden state alone, without the cell of the LSTM, and weights are drawn as there (embeddings of size
0.01, matrices of size 1/√inputs, no biases).
"""

import argparse
from typing import Any

import torch
from torch import Tensor, nn

from regard.models.embedding import Tokens
from regard.models.memory import Memory
from regard.recipes import load_recipe
from regard.tasks import TranslateTask
from regard.training import read_config
from regard.training.optimizer import AdamW


class HiddenOnly(nn.Module):
    """A bridge that passes on h and starts the cell of the LSTM at zero."""

    def __init__(self, bridge: nn.Module) -> None:
        super().__init__()
        self.bridge = bridge

    def forward(self, memory: Memory) -> tuple[Tensor, ...]:
        """The state of the decoder before its first step: h, c."""
        hidden, cell = self.bridge(memory)
        return hidden, torch.zeros_like(cell)


@torch.no_grad()
def start_as_printed(model: Any) -> None:
    """Give a recurrent model the start of the book."""
    model.decoder.bridge = HiddenOnly(model.decoder.bridge)
    for part in model.modules():
        if isinstance(part, Tokens):
            part.scale = 1.0
            part.weight.normal_(std=0.01)
        elif isinstance(part, nn.LSTM | nn.Linear):
            for parameter in part.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(std=parameter.shape[1] ** -0.5)
                else:
                    parameter.zero_()


def main(kind: str, epochs: int, threads: int) -> None:
    """Train, and print the share of right dates after each epoch."""
    torch.set_num_threads(threads)
    recipe = load_recipe("dates-book")
    recipe["model"]["kind"] = kind
    config = read_config(recipe)
    task = TranslateTask.from_config(config)
    torch.manual_seed(config.seed)
    model = task.build()
    start_as_printed(model)
    optimizer = AdamW(model, config.training)
    for epoch in range(epochs):
        model.train()
        for number in range(task.steps(epoch)):
            loss = task.loss(model, task.batch(epoch, number))
            loss.total.backward()
            optimizer.step(config.training.lr, loss.count)
        model.eval()
        print(f"{kind}, epoch {epoch + 1}: {task.evaluate(model)['exact']:.4f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["plain", "peeky", "attention"])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    main(given.kind, given.epochs, given.threads)
