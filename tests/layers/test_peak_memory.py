"""No layer holds queries × keys × features: training at 2048 × 2048 in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
from pathlib import Path
import torch, regard
from regard.layers import *

torch.set_num_threads(2)
length, dim = 2048, 64  # length × length × dim in float32 is 1074 MB
x = torch.randn(1, length, dim)
mask = regard.lengths([length - 48])
layers = {
    "multi-head": MultiHeadAttention(dim, 2, dropout=0.1),
    "multi-head additive": MultiHeadAttention(dim, 2, score=regard.Additive(32, 32, 64)),
    "decoder": DecoderLayer(dim, 2, 128, position=ALiBi(2), dropout=0.1),
    "local": LocalAttention(dim, 64, dropout=0.1),
    "local predictive": LocalAttention(dim, 64, center=PredictedCenter(dim), dropout=0.1),
    "local additive": LocalAttention(dim, 64, score=regard.Additive(dim, dim, dim)),
    "hard": HardAttention(dim),
    "hard gumbel": HardAttention(dim, estimator=HardGumbel()),
    "reinforce": HardAttention(dim),
}

def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) // 1024

def train(name, layer):
    if name == "decoder":
        layer(x, x, memory_mask=mask).sum().backward()
    elif name == "reinforce":
        choice = layer.choose(x, mask=mask)
        reinforce_loss(choice.log_probability, choice.output.sum(-1)).backward()
    else:
        layer(x, mask=mask).sum().backward()

MultiHeadAttention(8, 2)(torch.randn(2, 64, 8)).sum().backward()  # libraries are loaded
start = peak()
for name, layer in layers.items():
    train(name, layer)
    print(name, peak() - start, sep=",")  # a peak never sinks
"""


@pytest.mark.slow
def test_training_every_layer_at_2048_by_2048_holds_no_third_dimension():
    source = Path(__file__).parents[2] / "src"
    environment = {**os.environ, "PYTHONPATH": str(source)}
    command = [sys.executable, "-c", SCRIPT]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    grown = dict(line.split(",") for line in run.stdout.splitlines())
    assert len(grown) == 9
    too_much = {name: f"{size} MB" for name, size in grown.items() if int(size) > 800}
    assert not too_much
