"""GNMT as one would write it with `torch.nn` alone, trained beside the library's.

    python -m benchmarks.plain_gnmt --steps 200

Both models start from the same weights and see the same batches of Multi30k en→fr, with Adam and
without dropout. Prints the loss of both: if they agree, what the model learns is not a matter of
how the library computes it.
"""

import argparse
import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.data import Batch
from regard.recipes import load_recipe
from regard.tasks.translate import TranslateTask
from regard.training import read_config

LEARNING_RATE = 2e-3


class PlainGNMT(nn.Module):
    """Wu et al. 2016, section 3: torch's LSTMs, packed sequences and additive attention.

    Args:
        model: the library's, whose sizes and weights are copied
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        source = model.encoder.embedding.weight
        target = model.decoder.embedding.weight
        dim, hidden = source.shape[1], model.decoder.width
        self.source = nn.Embedding.from_pretrained(source.detach().clone(), freeze=False)
        self.target = nn.Embedding.from_pretrained(target.detach().clone(), freeze=False)
        layers = len(model.encoder.recurrent.layers)
        self.bottom_reader = nn.LSTM(dim, hidden, batch_first=True, bidirectional=True)
        self.readers = nn.ModuleList(
            nn.LSTM(hidden if layer > 1 else 2 * hidden, hidden, batch_first=True)
            for layer in range(1, layers)
        )
        self.first_h, self.first_c = nn.Linear(2 * hidden, hidden), nn.Linear(2 * hidden, hidden)
        self.bottom_writer = nn.LSTM(dim, hidden, batch_first=True)
        self.writers = nn.ModuleList(
            nn.LSTM(2 * hidden, hidden, batch_first=True) for _ in range(1, layers)
        )
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)
        self.output = nn.Linear(hidden, len(target))
        self.scale = dim**0.5
        self._copy(model)

    def forward(self, batch: Batch) -> Tensor:
        """The mean cross entropy of the target tokens of a batch."""
        lengths = batch.source_lengths
        x, (h, c) = _packed(self.bottom_reader, self.source(batch.source) * self.scale, lengths)
        ends = [(self._joined(h, self.first_h), self._joined(c, self.first_c))]
        for layer, reader in enumerate(self.readers):
            y, end = _packed(reader, x, lengths)
            x = y if layer == 0 else x + y
            ends.append(end)
        hidden = torch.arange(x.shape[1]) >= lengths[:, None]

        y, _ = self.bottom_writer(self.target(batch.target[:, :-1]) * self.scale, ends[0])
        mixed = torch.tanh(self.query(y).unsqueeze(2) + self.key(x).unsqueeze(1))
        scores = self.score(mixed).squeeze(-1)  # (batch, T, S)
        context = scores.masked_fill(hidden.unsqueeze(1), -torch.inf).softmax(-1) @ x
        for layer, writer in enumerate(self.writers):
            z, _ = writer(torch.cat((y, context), -1), ends[layer + 1])
            y = z if layer == 0 else y + z
        wanted = batch.target[:, 1:]
        return F.cross_entropy(self.output(y).transpose(1, 2), wanted, ignore_index=0)

    def _joined(self, end: Tensor, project: nn.Linear) -> Tensor:
        """The bottom layer's first state, from the ends (2, batch, hidden) of both directions."""
        return torch.tanh(project(torch.cat((end[0], end[1]), -1))).unsqueeze(0)

    @torch.no_grad()
    def _copy(self, model: Any) -> None:
        decoder = model.decoder
        theirs = [*model.encoder.recurrent.layers, *decoder.bottom.layers, *decoder.upper.layers]
        ours: list[Any] = [self.bottom_reader, *self.readers, self.bottom_writer, *self.writers]
        for mine, layer in zip(ours, theirs, strict=True):
            mine.load_state_dict(layer.state_dict())
        layers = len(self.readers) + 1
        self.first_h.load_state_dict(decoder.bridge.projections[0].state_dict())
        self.first_c.load_state_dict(decoder.bridge.projections[layers].state_dict())
        score = decoder.attention.score
        self.query.weight.copy_(score.query_weight)
        self.key.weight.copy_(score.key_weight)
        self.score.weight.copy_(score.vector.unsqueeze(0))
        self.output.load_state_dict(model.output.state_dict())


def _packed(layer: nn.Module, x: Tensor, lengths: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Run over the real positions; the rest of the output is zero."""
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    y, end = layer(packed)
    return pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])[0], end


def main() -> None:
    """Train both models on the same batches and print their losses."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    changes = ["model.dropout=0.0", "loss.label_smoothing=0.0"]
    task = TranslateTask.from_config(read_config(load_recipe("multi30k-en-fr-gnmt"), changes))
    torch.manual_seed(0)
    ours = task.build().train()
    plain = PlainGNMT(ours)
    optimizers = [torch.optim.Adam(model.parameters(), LEARNING_RATE) for model in (ours, plain)]
    batches = (
        task.batch(epoch, i) for epoch in itertools.count() for i in range(task.steps(epoch))
    )
    for step, batch in enumerate(itertools.islice(batches, steps)):
        loss = task.loss(ours, batch)
        losses = [loss.total / loss.count, plain(batch)]
        for optimizer, value in zip(optimizers, losses, strict=True):
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        if step % 20 == 0 or step == steps - 1:
            print(f"step {step}: regard {losses[0]:.5f}, plain torch {losses[1]:.5f}", flush=True)


if __name__ == "__main__":
    main()
