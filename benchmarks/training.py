"""Training a Transformer-tiny on Multi30k beside a plain PyTorch loop, in target tokens a second.

python -m benchmarks.training --quick

Both have the same weights and batches, and are first checked to give the same loss. The data is
fetched by `regard data get multi30k`.
"""

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.contest import output_file, write_rows
from benchmarks.joeynmt import VENV, tokens_per_second
from benchmarks.plain_transformer import PlainTransformer, same_model
from regard.data import Batch
from regard.models import PRESETS, Transformer
from regard.recipes import load_recipe
from regard.tasks import TranslateTask
from regard.training import read_config
from regard.training.optimizer import AdamW

TOKENS = 4096  # of a batch, both sides and padding counted
Step = Callable[[Batch], None]


def main() -> None:
    """Train by turns on the same batches, and print who was how fast."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer steps and rounds")
    parser.add_argument("--json", type=output_file, metavar="FILE", help="also write the rows here")
    parser.add_argument("--joeynmt", type=Path, metavar="VENV", help=VENV)
    options = parser.parse_args()
    task = _task()
    plain, ours = _models(task)
    steps: dict[str, Step] = {"regard": _ours(task, ours), "plain PyTorch": _plain(plain)}
    count, rounds = (6, 2) if options.quick else (12, 5)
    order = [task.batch(0, step) for step in range(count)]
    words = sum(int((batch.target_lengths - 1).sum()) for batch in order)
    best = dict.fromkeys(steps, math.inf)
    for step in steps.values():
        step(order[0])  # what is made at the first step is not counted
    for _ in range(rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            for batch in order:
                step(batch)
            best[name] = min(best[name], time.perf_counter() - start)
    speeds = {name: words / seconds for name, seconds in best.items()}
    if options.joeynmt is not None:
        speeds["JoeyNMT 2.3"] = tokens_per_second(
            options.joeynmt, task, PRESETS["transformer"]["tiny"], tokens=TOKENS, steps=2 * count
        )
    _report(speeds, words / count)
    rows = [{"who": name, "tokens_per_second": speed} for name, speed in speeds.items()]
    write_rows(options.json, rows)


def _task() -> TranslateTask:
    """The recipe, read from REGARD_DATA; `FileNotFoundError` names the command to get it."""
    recipe = load_recipe("multi30k")
    recipe["data"] |= {"tokens": TOKENS, "valid_count": 10}
    recipe["model"] = {"kind": "transformer", "preset": "tiny", "tie": "all"}  # as the peers'
    return TranslateTask.from_config(read_config(recipe))


def _models(task: TranslateTask) -> tuple[PlainTransformer, Transformer]:
    """Both models with the same weights, and proof that they give the same loss."""
    torch.manual_seed(1)
    plain = PlainTransformer(len(task.target_tokenizer), **PRESETS["transformer"]["tiny"])
    like = task.build()
    assert isinstance(like, Transformer)
    ours = same_model(plain, like)
    batch = task.batch(0, 0)
    with torch.no_grad():
        losses = float(plain.eval().loss(batch)), float(task.loss(ours.eval(), batch).total)
    if not math.isclose(*losses, rel_tol=1e-4):
        raise SystemExit(f"the models differ: their losses are {losses}")
    return plain.train(), ours.train()


def _ours(task: TranslateTask, model: Transformer) -> Step:
    optimizer = AdamW(model, read_config(load_recipe("multi30k")).training)

    def step(batch: Batch) -> None:
        loss = task.loss(model, batch)
        loss.total.backward()
        optimizer.step(1e-3, loss.count)

    return step


def _plain(model: PlainTransformer) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step(batch: Batch) -> None:
        optimizer.zero_grad()
        (model.loss(batch) / (batch.target_lengths - 1).sum()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def _report(speeds: dict[str, float], words: float) -> None:
    ours = speeds["regard"]
    print("Transformer-tiny (4 + 4 layers, width 128), Multi30k en→de, joint BPE of 8,000,")
    print(f"batches of {words:,.0f} target tokens, {torch.get_num_threads()} threads\n")
    print("| | target tokens a second | regard is faster by |\n|---|---|---|")
    for name, speed in speeds.items():
        ratio = "" if name == "regard" else f"{ours / speed:.2f}×"
        print(f"| {name} | {speed:,.0f} | {ratio} |")


if __name__ == "__main__":
    main()
