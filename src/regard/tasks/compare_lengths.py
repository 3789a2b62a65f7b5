"""How quality, gradient and training speed change as the source grows."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.data.generated import LETTERS
from regard.tasks.compare import compare
from regard.tasks.translate import TranslateTask
from regard.tasks.variants import Variant
from regard.training import Progress, Silent, read_config, read_run_config

TARGETS: dict[str, Callable[[str], str]] = {"copy": str, "reverse": lambda word: word[::-1]}
"""Datasets whose words can have any length, and the target of a word."""
COUNT = 20_000  # words to train on, unless the recipe has a count
HELD_OUT = 500  # words for validation, likewise
ROUNDS = 5  # of timing, at least
MOST_ROUNDS = 25
ENOUGH = 2.0  # seconds of timing, after which there are no more rounds


class Point(NamedTuple):
    """One variant at one length."""

    name: str
    length: int
    quality: float | None  # accuracy of tokens, given those before; None if it diverged
    gradient: float  # at the first source token, see `first_gradient`
    tokens_per_second: float  # in training, see `training_speeds`
    tokens_per_second_alone: float  # likewise, of one sentence
    diverged: str | None  # in which step, and what may help


def compare_lengths(
    dataset: str,
    recipe: Mapping[str, Any],
    chosen: Sequence[Variant],
    out: Path,
    counted: Sequence[int],
    *,
    settings: Sequence[str] = (),
    progress: Callable[[str], Progress] = lambda name: Silent(),
) -> list[Point]:
    """Train every variant on words of each length, below `out`; existing runs are reused.

    Recurrent encoders read in one direction, so that the first token is the farthest one.

    Args:
        dataset: "copy" or "reverse"
        recipe: its configuration
        chosen: of `regard.tasks.variants.variants`
        counted: numbers of letters of the words
        settings: what to change of the recipe

    Raises:
        ValueError: another dataset, or a length below 1
    """
    if dataset not in TARGETS:
        raise ValueError(f"lengths are for the datasets {' and '.join(TARGETS)}, got {dataset!r}")
    if min(counted) < 1:
        raise ValueError(f"a length is 1 or more, got {min(counted)}")
    config = read_config(recipe, [*settings, "model.bidirectional=none", "data.metric=accuracy"])
    found, order = [], [variant.name for variant in chosen]
    for length in counted:
        folder = out / f"length-{length}"
        # the counts are part of the configuration: a run with others is not reused
        data = {"count": COUNT, "valid_count": HELD_OUT, **config.data}
        del data["name"]
        for split, key in (("train", "count"), ("valid", "valid_count")):
            path = folder / f"{split}.tsv"
            _write_words(path, dataset, length, data[key], f"{split} {config.seed}")
            data[split] = str(path)
        own = config.model_copy(update={"data": data}).model_dump(exclude_none=True)
        begin = partial(_at_length, progress, length)
        rows = compare(own, chosen, folder, mapped=0, progress=begin).rows
        tasks = {
            row.name: TranslateTask.from_config(
                read_run_config(folder / row.name), folder / row.name
            )
            for row in rows
        }
        batched = training_speeds(tasks, seed=config.seed)
        alone = training_speeds(tasks, alone=True, seed=config.seed)
        for row in sorted(rows, key=lambda row: order.index(row.name)):
            name = row.name
            gradient = first_gradient(tasks[name], config.seed)
            speeds = batched[name], alone[name]
            found.append(Point(name, length, row.quality, gradient, *speeds, row.diverged))
    return found


def first_gradient(task: TranslateTask, seed: int = 1) -> float:
    """Return the norm of ∂loss/∂x₁ in an untrained model, x₁ the vector of the first source token.

    The loss is that of a sentence, the mean over a batch. Through a recurrent encoder alone the
    gradient passes every later state, and fades with their number: Bengio et al. 1994.
    """
    torch.manual_seed(seed)
    model: Any = task.build().eval()
    embedding = model.source if hasattr(model, "source") else model.encoder.embedding
    read: list[Tensor] = []
    kept = embedding.register_forward_hook(lambda module, given, x: read.append(x))
    loss = task.loss(model, task.batch(0, 0)).total
    kept.remove()
    (slope,) = torch.autograd.grad(loss, read[0])  # (batch, S, dim)
    return float(slope[:, 0].norm(dim=-1).mean())


def training_speeds(
    tasks: Mapping[str, TranslateTask], *, alone: bool = False, seed: int = 1
) -> dict[str, float]:
    """Return target tokens per second through forward and backward of fresh models.

    The models take turns, and the fastest round of each counts, so that other load on the machine
    slows all of them or none. Optimizer steps, whose cost does not grow with the length, are not
    counted.

    Args:
        tasks: by name, what to build and to train it on
        alone: batches of one sentence, instead of the task's own
        seed: of the models
    """
    torch.manual_seed(seed)
    models = {name: task.build().train() for name, task in tasks.items()}
    batches = {
        name: task.corpus.batch([0]) if alone else task.batch(0, 0) for name, task in tasks.items()
    }
    fastest: dict[str, float] = {}
    began = time.perf_counter()
    for number in range(MOST_ROUNDS + 1):  # the first round warms up
        for name, task in tasks.items():
            speed = _speed(task, models[name], batches[name])
            if number:
                fastest[name] = max(speed, fastest.get(name, 0.0))
        if number >= ROUNDS and time.perf_counter() - began > ENOUGH:
            break
    return fastest


def _speed(task: TranslateTask, model: Any, batch: Any) -> float:
    began = time.perf_counter()
    loss = task.loss(model, batch)
    loss.total.backward()
    spent = time.perf_counter() - began
    model.zero_grad()
    return loss.count / spent


def _at_length(progress: Callable[[str], Progress], length: int, name: str) -> Progress:
    return progress(f"{name}, length {length}")


def _write_words(path: Path, dataset: str, length: int, count: int, seed: str) -> None:
    """Write a file of words of one length, and their targets."""
    draw = random.Random(f"{dataset} {length} {seed}")
    words = ("".join(draw.choices(LETTERS, k=length)) for _ in range(count))
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = "".join(f"{word}\t{TARGETS[dataset](word)}\n" for word in words)
    path.write_text(rows, encoding="utf-8")
