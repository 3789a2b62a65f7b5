"""Bahdanau's decoder, batch 32, 50 × 50 positions, hidden 256: ours beside a plain torch loop.

python -m benchmarks.bahdanau

The step is all of a training step but the optimizer's: encoder, decoder, scores of the vocabulary,
cross entropy, and the gradients of all parameters. What attention costs in it cannot be timed by
itself, since it is part of a recurrence: its share is the time of the whole step less that of the
same step with contexts that are given, which each side takes as fast as it can.
"""

import argparse
import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.contest import as_job, largest_error, output_file, race, write_rows
from regard.models import Bahdanau, Seq2Seq, build

BATCH, SOURCE, TARGET, HIDDEN, VOCABULARY = 32, 50, 50, 256, 1000


class Textbook(nn.Module):
    """The same model as tutorials write it: `nn.GRU`, then a loop over the target.

    The keys are projected once, as careful tutorials do; w · tanh(W s + U h) is computed by
    broadcasting, (batch, S, hidden) numbers at each step.

    Args:
        like: ours, whose weights are copied
    """

    def __init__(self, like: Seq2Seq) -> None:
        super().__init__()
        decoder = copy.deepcopy(like.decoder)
        assert isinstance(decoder, Bahdanau)
        self.read, self.wrote = (
            nn.Embedding.from_pretrained(tokens.weight.detach() * tokens.scale, freeze=False)
            for tokens in (like.encoder.embedding, decoder.embedding)
        )
        self.encoder, self.output = (
            copy.deepcopy(like.encoder.recurrent.layers[0]),
            copy.deepcopy(like.output),
        )
        self.first, self.score = decoder.bridge.projections[0], decoder.attention.score
        self.join, self.cell = decoder.join, nn.GRUCell(3 * HIDDEN, HIDDEN)
        layer = decoder.recurrent.layers[0]
        self.cell.load_state_dict(
            {name.removesuffix("_l0"): weight for name, weight in layer.state_dict().items()}
        )

    def forward(self, source: Tensor, target: Tensor, given: Tensor | None) -> Tensor:
        """Scores (batch, T, vocabulary); `given` are contexts to take instead of attention."""
        states, last = self.encoder(self.read(source))
        hidden = torch.tanh(self.first(torch.cat((last[0], last[1]), -1)))
        embedded = self.wrote(target)
        keys = states @ self.score.key_weight.T
        outputs, contexts = [], []
        for step, now in enumerate(embedded.unbind(1)):
            context = self.context(hidden, keys, states) if given is None else given[:, step]
            hidden = self.cell(torch.cat((now, context), -1), hidden)
            outputs.append(hidden)
            contexts.append(context)
        joined = self.join(torch.stack(outputs, 1), embedded, torch.stack(contexts, 1))
        return self.output(joined)

    def context(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Of one query for each sentence, (batch, hidden)."""
        hidden = torch.tanh((query @ self.score.query_weight.T).unsqueeze(1) + keys)
        weights = (hidden @ self.score.vector).softmax(-1)  # (batch, S)
        return torch.bmm(weights.unsqueeze(1), values).squeeze(1)


class Ours(nn.Module):
    """The model of the library."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, target: Tensor, given: Tensor | None) -> Tensor:
        """As `Textbook`."""
        lengths = torch.full((BATCH,), SOURCE)
        if given is None:
            return self.model.output(self.model(source, lengths, target))
        decoder = self.model.decoder
        assert isinstance(decoder, Bahdanau)
        first, embedded = (
            decoder.bridge(self.model.encode(source, lengths)),
            decoder.embedding(target),
        )
        states, _ = decoder.recurrent(torch.cat((embedded, given), -1), first)
        return self.model.output(decoder.join(states, embedded, given))


def main() -> None:
    """Measure both, in turns, and print the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7, help="the best of so many counts")
    parser.add_argument("--json", type=output_file, metavar="FILE", help="also write the rows here")
    options = parser.parse_args()
    torch.manual_seed(1)
    model = build("bahdanau", source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY,
                  embedding=HIDDEN, hidden=HIDDEN)  # fmt: skip
    assert isinstance(model, Seq2Seq)
    sides = Ours(model).train(), Textbook(model).train()
    contexts = torch.randn(BATCH, TARGET, 2 * HIDDEN).requires_grad_()
    jobs = [_step(side, given) for given in (None, contexts) for side in sides]
    for name, mine, their in (("whole", *jobs[:2]), ("without attention", *jobs[2:])):
        error = largest_error(mine()[:1], their()[:1])  # the loss; parameters differ in order
        if not error < 1e-5:
            raise SystemExit(f"{name}: the losses differ by {error:.2g}")
    whole, their_whole, rest, their_rest = race(jobs, rounds=options.rounds)
    rows = {
        "the whole step": (whole, their_whole),
        "the step with given contexts": (rest, their_rest),
        "attention's share, the difference": (whole - rest, their_whole - their_rest),
    }
    print(f"batch {BATCH}, {SOURCE} × {TARGET}, hidden {HIDDEN}, forward and backward, ", end="")
    print(f"{torch.get_num_threads()} threads\n")
    print("| | regard | textbook | ratio |\n|---|---|---|---|")
    for name, (own, their) in rows.items():
        print(f"| {name} | {1e3 * own:.1f} ms | {1e3 * their:.1f} ms | {their / own:.2f}× |")
    answers = [
        {"case": name, "seconds": own, "textbook_seconds": their}
        for name, (own, their) in rows.items()
    ]
    write_rows(options.json, answers)


def _step(side: nn.Module, given: Tensor | None) -> Callable[[], list[Tensor]]:
    """The loss and all gradients that there are."""
    generator = torch.Generator().manual_seed(3)
    source = torch.randint(4, VOCABULARY, (BATCH, SOURCE), generator=generator)
    target = torch.randint(4, VOCABULARY, (BATCH, TARGET), generator=generator)

    def job() -> Tensor:
        scores = side(source, target, given)
        return nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten()).view(1)

    named = [(n, p) for n, p in side.named_parameters() if given is None or "score" not in n]
    leaves = [parameter for _, parameter in named]
    return as_job(job, leaves if given is None else [*leaves, given], backward=True)


if __name__ == "__main__":
    main()
