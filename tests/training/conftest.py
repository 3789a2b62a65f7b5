"""A small task with all that makes resuming hard, and processes that train it and may be killed."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regard.training import Loss, read_config

SIZE, HIDDEN, VALID = 7, 11, 31


class Largest:
    """Numbers in, the place of the largest out: dropout, noise, tied weights, uneven epochs."""

    unit = "rows"
    metric = "accuracy"
    larger_is_better = True

    def __init__(self, batches=5, poison=None):
        self.batches, self.poison = batches, poison

    @classmethod
    def from_config(cls, config):
        return cls(**config.data)

    def build(self):
        middle, again = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        again.weight = middle.weight
        inner = (nn.Dropout(0.3), middle, nn.LayerNorm(HIDDEN), again)
        return nn.Sequential(
            nn.Linear(SIZE, HIDDEN), nn.Tanh(), *inner, nn.Linear(HIDDEN, SIZE, bias=False)
        )

    def steps(self, epoch):
        return self.batches + epoch % 2

    def batch(self, epoch, step):
        draw = torch.Generator().manual_seed(1000 * epoch + step)
        rows = torch.randn(13 + step, SIZE, generator=draw)
        if [epoch, step] == self.poison:
            rows[2, 3] = float("nan")
        return rows

    def loss(self, model, batch):
        scale = 0.1 * random.random() + 0.1 * numpy.random.rand()
        noisy = batch + scale * torch.randn_like(batch)  # all three generators
        return Loss(F.cross_entropy(model(noisy), batch.argmax(1), reduction="sum"), len(batch))

    def evaluate(self, model):
        torch.rand(3)  # draws, as sampling would
        rows = torch.randn(VALID, SIZE, generator=torch.Generator().manual_seed(7))
        hits = model(rows).argmax(1) == rows.argmax(1)
        return {"accuracy": hits.float().mean().item()}

    def write(self, run):
        (run / "tokenizer.json").write_text("{}")

    def fingerprint(self):
        return {"train": f"{self.batches} batches"}

    def describe(self):
        return f"{self.batches} batches of numbers"


@pytest.fixture
def largest():
    return Largest


@pytest.fixture
def configure():
    """Make a configuration from the `[training]` table alone."""

    def make(data=None, **training):
        return read_config({"task": "largest", "data": data or {}, "training": training})

    return make


class Nursery:
    """A process that has loaded everything and forks a child for every run."""

    def __init__(self):
        source = Path(__file__).parents[2] / "src"
        environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("nursery.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def begin(self, run, training, **request):
        """Start to train, or go on; the child's process id."""
        request |= {"run": str(run), "training": training}
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def end(self):
        """Wait for the child: its message if it ended by itself, else minus the signal."""
        print(file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def train(self, run, training, **request):
        """Train, wait, and return the child's message."""
        self.begin(run, training, **request)
        return self.end()


@pytest.fixture(scope="session")
def nursery():
    found = Nursery()
    yield found
    found.process.stdin.close()
    found.process.wait()
    found.process.stdout.close()
