"""The dates of Saito 2018, chapter 8: seconds of training until 99.9 % of the test are exact.

python -m benchmarks.dates_book --seeds 3
"""

import argparse
import copy
import json
import math
import statistics
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.data import Batch
from regard.data.batch import BOS
from regard.decoding import greedy
from regard.models import AttentionSeq2Seq
from regard.tasks import TranslateTask
from regard.training import read_config
from regard.training.optimizer import AdamW

GOAL, EVERY, MOST = 0.999, 50, 2800  # exact match; steps between looks; steps before giving up
LR = 6e-3  # at first; it falls to zero in a straight line
LONGEST = 11  # tokens of a date, the end included
SPLITS = ["dates-book", "dates-book-distinct"]  # the book's own; without repeated lines


class PlainAttention(nn.Module):
    """The book's `AttentionSeq2seq` by `torch.nn`: two LSTMs, dot products, [c ; h] to the output.

    Args:
        like: ours, whose weights are copied
    """

    def __init__(self, like: AttentionSeq2Seq) -> None:
        super().__init__()
        source, target = like.encoder.embedding.weight, like.decoder.embedding.weight  # type: ignore
        self.read = nn.Embedding.from_pretrained(source.detach().clone(), freeze=False)
        self.wrote = nn.Embedding.from_pretrained(target.detach().clone(), freeze=False)
        self.encoder, self.decoder, self.output = (
            copy.deepcopy(part)
            for part in (
                like.encoder.recurrent.layers[0],
                like.decoder.recurrent.layers[0],
                like.output,
            )
        )

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor, Any]:
        """States (B, S, hidden), which of them are padding (B, S), and the last state."""
        lengths = batch.source_lengths
        packed = pack_padded_sequence(
            self.read(batch.source), lengths, batch_first=True, enforce_sorted=False
        )
        states, last = self.encoder(packed)
        states, _ = pad_packed_sequence(states, batch_first=True)
        return states, torch.arange(states.shape[1]) >= lengths[:, None], last

    def decode(self, states: Tensor, padding: Tensor, last: Any, target: Tensor) -> Any:
        """Scores of the tokens after each target token, and the new state."""
        hidden, last = self.decoder(self.wrote(target), last)
        scores = torch.bmm(hidden, states.transpose(1, 2))  # (B, T, S)
        weights = scores.masked_fill(padding.unsqueeze(1), -math.inf).softmax(-1)
        return self.output(torch.cat((torch.bmm(weights, states), hidden), -1)), last

    def loss(self, batch: Batch) -> Tensor:
        """Cross entropy, summed, padding ignored."""
        scores, _ = self.decode(*self.encode(batch), batch.target[:, :-1])
        wanted = batch.target[:, 1:].flatten()
        return F.cross_entropy(scores.flatten(0, 1), wanted, ignore_index=0, reduction="sum")

    @torch.no_grad()
    def right(self, batch: Batch) -> int:
        """How many are written exactly."""
        states, padding, last = self.encode(batch)
        token = torch.full((len(states), 1), BOS)
        written = []
        for _ in range(LONGEST):
            scores, last = self.decode(states, padding, last, token)
            token = scores.argmax(-1)
            written.append(token)
        wanted = batch.target[:, 1:]
        found = torch.cat(written, 1)[:, : wanted.shape[1]]
        return int(((found == wanted) | (wanted == 0)).all(1).sum())


def good_enough(right: Callable[[Batch], int], task: TranslateTask) -> bool:
    """Whether the goal is reached on the whole test; it is given up as soon as it cannot be."""
    allowed = (1.0 - GOAL) * len(task.valid)
    for batch in task.evaluation_batches():
        allowed -= len(batch.target) - right(batch)
        if allowed < 0:
            return False
    return True


def seconds_to_goal(
    step: Callable[[Batch], None], right: Callable[[Batch], int], task: TranslateTask
) -> float:
    """Seconds of training, looks not counted, until the goal; infinity if it is not reached."""
    spent, done, epoch = 0.0, 0, 0
    while True:
        for number in range(task.steps(epoch)):
            if done == MOST:
                return math.inf
            start = time.perf_counter()
            step(task.batch(epoch, number))
            spent += time.perf_counter() - start
            done += 1
            if done % EVERY == 0 and good_enough(right, task):
                return spent
        epoch += 1


def race_once(task: TranslateTask, seed: int) -> dict[str, float]:
    """Both, from the same weights, on the same batches."""
    torch.manual_seed(seed)
    model = task.build()
    assert isinstance(model, AttentionSeq2Seq)
    plain = PlainAttention(model)
    batch = task.batch(0, 0)
    losses = float(plain.loss(batch).detach()), float(task.loss(model, batch).total.detach())
    if not math.isclose(*losses, rel_tol=1e-4):
        raise SystemExit(f"the models differ: their losses are {losses}")
    optimizer = AdamW(model, read_config(_config(SPLITS[0], seed)).training)
    theirs = torch.optim.AdamW(plain.parameters(), lr=LR, betas=(0.9, 0.98), eps=1e-9, fused=True)

    rates, their_rates = ((LR * (1 - n / MOST) for n in count()) for _ in range(2))

    def ours(batch: Batch) -> None:
        loss = task.loss(model, batch)
        loss.total.backward()
        optimizer.step(next(rates), loss.count)

    def other(batch: Batch) -> None:
        theirs.param_groups[0]["lr"] = next(their_rates)
        theirs.zero_grad()
        (plain.loss(batch) / (batch.target_lengths - 1).sum()).backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        theirs.step()

    def right(batch: Batch) -> int:
        found = greedy(model, batch.source, batch.source_lengths)
        ids = (
            row[1:length] for row, length in zip(batch.target, batch.target_lengths, strict=True)
        )
        return sum(
            best.tokens == tuple(want.tolist()) for best, want in zip(found, ids, strict=True)
        )

    return {
        "regard": seconds_to_goal(ours, right, task),
        "plain PyTorch": seconds_to_goal(other, plain.right, task),
    }


def _config(split: str, seed: int) -> dict[str, Any]:
    return {
        "task": "translate",
        "seed": seed,
        "data": {"name": split, "sentences": 64},
        "model": {"kind": "attention", "embedding": 32, "hidden": 128},
        "training": {"steps": MOST, "lr": LR, "weight_decay": 0.01},
    }


def main(*, seeds: int, splits: list[str], json_file: Path | None = None) -> None:
    """Print the median over seeds, for the book's own split and for one without repeated lines."""
    answers = []
    print("| split | regard | plain PyTorch | ratio |\n|---|---|---|---|")
    for split in splits:
        runs = [
            race_once(TranslateTask.from_config(read_config(_config(split, seed))), seed)
            for seed in range(1, seeds + 1)
        ]
        medians = {who: statistics.median(run[who] for run in runs) for who in runs[0]}
        mine, their = medians["regard"], medians["plain PyTorch"]
        times = " | ".join(
            f"{seconds:.1f} s" if seconds < math.inf else f"not in {MOST:,} steps"
            for seconds in (mine, their)
        )
        ratio = f"{mine / their:.2f}×" if max(mine, their) < math.inf else ""
        print(f"| {split} | {times} | {ratio} |", flush=True)
        answers.append({"split": split, "medians": medians, "runs": runs})
    if json_file is not None:
        json_file.write_text(json.dumps(answers, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", choices=SPLITS)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    chosen = [arguments.only] if arguments.only else SPLITS
    main(seeds=arguments.seeds, splits=chosen, json_file=arguments.json)
