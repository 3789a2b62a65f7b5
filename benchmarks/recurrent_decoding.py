"""Greedy search of recurrent models, one sentence at a time, beside a plain PyTorch loop.

    python -m benchmarks.recurrent_decoding

The loop is what one writes with torch alone: the memory is projected once, each step attends, takes
a step of the cell and the most likely token. Both have the same weights and write the same tokens.
"""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from regard.data.batch import BOS
from regard.decoding import Limits, greedy
from regard.models import Seq2Seq, build

LENGTH, STEPS, VOCABULARY, SENTENCES, ROUNDS = 20, 20, 8000, 20, 3


def plain(model: Seq2Seq, source: Tensor) -> list[int]:
    """Greedy search with torch alone, for models of one layer: Luong's or Bahdanau's."""
    encoder, decoder = model.encoder, model.decoder
    states, last = encoder.recurrent.layers[0](encoder.embedding(source))
    last = last.transpose(0, 1).flatten(1)
    project = decoder.bridge.projections[0]
    hidden = last if isinstance(project, torch.nn.Identity) else torch.tanh(project(last))
    cell = decoder.recurrent.layers[0].all_weights[0]  # type: ignore[union-attr]
    additive = hasattr(decoder.attention.score, "vector")
    score = decoder.attention.score
    keys = states @ score.key_weight.T if additive else states @ (score.weight.T * score.scale)  # type: ignore
    token, written = torch.tensor([BOS]), []
    for _ in range(STEPS):
        x = decoder.embedding.weight[token] * decoder.embedding.scale
        query = hidden if additive else torch.gru_cell(x, hidden, *cell)
        if additive:
            scores = torch.tanh((query @ score.query_weight.T)[:, None] + keys) @ score.vector  # type: ignore
        else:
            scores = (keys @ query[:, :, None]).squeeze(2)
        context = (scores.softmax(-1)[:, None] @ states).squeeze(1)
        if additive:
            hidden = torch.gru_cell(torch.cat((x, context), -1), hidden, *cell)
            joined = decoder.join.projection(torch.cat((hidden, x, context), -1))
            features = joined.unflatten(-1, (-1, 2)).max(-1).values
        else:
            hidden = query
            features = decoder.join(context, hidden)
        logits = model.output(features)
        logits[:, : BOS + 1] = -torch.inf
        token = logits.argmax(-1)
        written.append(int(token))
    return written


def ours(model: Seq2Seq, source: Tensor) -> list[int]:
    """The same by regard."""
    return list(greedy(model, source, limits=Limits(0.0, STEPS))[0].tokens)


def timed(search: Callable[[Seq2Seq, Tensor], list[int]], model: Seq2Seq, some: Tensor) -> float:
    """Seconds for all sentences, the best of some rounds."""
    best = float("inf")
    with torch.inference_mode():
        for _ in range(ROUNDS):
            start = time.perf_counter()
            for source in some:
                search(model, source[None])
            best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    """Measure both models and print the ratios."""
    torch.manual_seed(1)
    sources = torch.randint(4, VOCABULARY, (SENTENCES, LENGTH))
    words = {"source_vocabulary": VOCABULARY, "target_vocabulary": VOCABULARY}
    for kind in ("luong", "bahdanau"):
        model = build(
            kind, None, **words, embedding=128, hidden=256, cell="gru", bidirectional="all"
        ).eval()
        assert isinstance(model, Seq2Seq)
        with torch.no_grad():
            model.output.bias[2] = -50.0  # so that no sentence ends early
        with torch.inference_mode():
            same = [plain(model, s[None]) == ours(model, s[None]) for s in sources]
        theirs, mine = timed(plain, model, sources), timed(ours, model, sources)
        print(
            f"{kind:<10} regard {1e3 * mine / SENTENCES:6.2f} ms   plain loop "
            f"{1e3 * theirs / SENTENCES:6.2f} ms   {theirs / mine:.2f}×   "
            f"{sum(same) / len(same):.0%} the same"
        )


if __name__ == "__main__":
    main()
