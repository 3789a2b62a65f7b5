"""A small task for tests: which of the numbers is the largest, with a model that has dropout."""

import torch
from torch import nn
from torch.nn import functional as F

from regard.training import Loss

SIZE, HIDDEN, VALID = 7, 11, 31


class Largest:
    """Numbers in, the place of the largest one out; every draw of a batch is a function of it."""

    unit = "rows"
    metric = "accuracy"
    larger_is_better = True

    def __init__(self, batches=5, rows=13, poison=None):
        self.batches, self.rows, self.poison = batches, rows, poison

    def build(self):
        first, last = nn.Linear(SIZE, HIDDEN), nn.Linear(HIDDEN, SIZE, bias=False)
        middle = nn.Linear(HIDDEN, HIDDEN)
        again = nn.Linear(HIDDEN, HIDDEN)
        again.weight = middle.weight  # tied
        return nn.Sequential(
            first, nn.Tanh(), nn.Dropout(0.3), middle, nn.LayerNorm(HIDDEN), again, last
        )

    def steps(self, epoch):
        return self.batches + epoch % 2  # epochs differ in length

    def batch(self, epoch, step):
        draw = torch.Generator().manual_seed(1000 * epoch + step)
        rows = torch.randn(self.rows + step, SIZE, generator=draw)
        if (epoch, step) == self.poison:
            rows[2, 3] = float("nan")
        return rows

    def loss(self, model, batch):
        noisy = batch + 0.1 * torch.randn_like(batch)  # more from torch's generator
        return Loss(F.cross_entropy(model(noisy), batch.argmax(1), reduction="sum"), len(batch))

    def evaluate(self, model):
        torch.rand(3)  # draws, as sampling would
        rows = torch.randn(VALID, SIZE, generator=torch.Generator().manual_seed(7))
        hits = model(rows).argmax(1) == rows.argmax(1)
        return {"accuracy": hits.float().mean().item()}

    def write(self, run):
        (run / "tokenizer.json").write_text("{}")

    def describe(self):
        return f"{self.batches} batches"
