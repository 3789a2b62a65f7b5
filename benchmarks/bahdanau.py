"""Bahdanau's decoder, batch 32, 50 × 50 positions, hidden 256: ours beside textbook attention.

python -m benchmarks.bahdanau
"""

import argparse
import copy
import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.contest import as_job, largest_error, race
from regard.core.score import Additive
from regard.layers.cache import SharedMemory
from regard.models import Memory, Seq2Seq, build
from regard.models.aligner import GlobalAligner

BATCH, SOURCE, TARGET, HIDDEN, VOCABULARY = 32, 50, 50, 256, 1000


class TextbookAligner(nn.Module):
    """w · tanh(W q + U h), by broadcasting: (batch, S, hidden) numbers at each step.

    The keys U h are projected once, as careful textbooks do.
    """

    def __init__(self, score: Additive) -> None:
        super().__init__()
        self.score = score

    def start(self, memory: Memory) -> SharedMemory:
        """What the steps ask."""
        keys = memory.states @ self.score.key_weight.T
        return SharedMemory((keys, memory.states), None, beams=1)

    def step(
        self, query: Tensor, state: SharedMemory, *, return_map: bool = False
    ) -> tuple[Tensor, None, SharedMemory]:
        """The context (batch, key_dim) of one query (batch, query_dim)."""
        keys, values = state.tensors
        hidden = torch.tanh((query @ self.score.query_weight.T).unsqueeze(1) + keys)
        weights = (hidden @ self.score.vector).softmax(-1)  # (batch, S)
        return torch.bmm(weights.unsqueeze(1), values).squeeze(1), None, state


def main(*, rounds: int = 7, json_file: Path | None = None) -> None:
    """Measure both, in turns, and print the ratios."""
    torch.manual_seed(1)
    ours = build("bahdanau", source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY,
                 embedding=HIDDEN, hidden=HIDDEN)  # fmt: skip
    assert isinstance(ours, Seq2Seq)
    textbook = copy.deepcopy(ours)
    textbook.decoder.attention = TextbookAligner(textbook.decoder.attention.score)  # type: ignore
    rows = {
        "attention of all steps": [_attention(model.decoder) for model in (ours, textbook)],
        "the whole step": [_step(model) for model in (ours, textbook)],
    }
    answers = []
    print(f"batch {BATCH}, {SOURCE} × {TARGET}, hidden {HIDDEN}, forward and backward, ", end="")
    print(f"{torch.get_num_threads()} threads\n")
    print("| | regard | textbook | ratio |\n|---|---|---|---|")
    for name, jobs in rows.items():
        error = largest_error(jobs[0](), jobs[1]())
        if not error < 1e-3:
            raise SystemExit(f"{name}: the answers differ by {error:.2g}")
        seconds, other = race(jobs, rounds=rounds)
        print(
            f"| {name} | {1e3 * seconds:.1f} ms | {1e3 * other:.1f} ms | {other / seconds:.2f}× |"
        )
        answers.append({"case": name, "seconds": seconds, "textbook_seconds": other})
    if json_file is not None:
        json_file.write_text(json.dumps(answers, indent=2) + "\n", encoding="utf-8")


def _attention(decoder: nn.Module) -> Callable[[], list[Tensor]]:
    """Contexts of all steps, one query at a time, as the decoder asks."""
    generator = torch.Generator().manual_seed(2)
    queries = torch.randn(TARGET, BATCH, HIDDEN, generator=generator).requires_grad_()
    states = torch.randn(BATCH, SOURCE, 2 * HIDDEN, generator=generator).requires_grad_()
    memory = Memory(states, torch.full((BATCH,), SOURCE), None)
    aligner = decoder.attention
    assert isinstance(aligner, GlobalAligner | TextbookAligner)

    def job() -> Tensor:
        state = aligner.start(memory)
        contexts = []
        for query in queries.unbind(0):
            context, _, state = aligner.step(query, state)
            contexts.append(context)
        return torch.stack(contexts)

    return as_job(job, [queries, states, *aligner.parameters()], backward=True)


def _step(model: Seq2Seq) -> Callable[[], list[Tensor]]:
    """Encode, decode, score the vocabulary, and all gradients."""
    generator = torch.Generator().manual_seed(3)
    source = torch.randint(4, VOCABULARY, (BATCH, SOURCE), generator=generator)
    target = torch.randint(4, VOCABULARY, (BATCH, TARGET), generator=generator)
    lengths = torch.full((BATCH,), SOURCE)
    model.train()

    def job() -> Tensor:
        scores = model.output(model(source, lengths, target))
        return nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten()).view(1)

    return as_job(job, list(model.parameters()), backward=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    main(rounds=arguments.rounds, json_file=arguments.json)
