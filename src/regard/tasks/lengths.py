"""What becomes of quality, of the gradient and of the speed as the source grows."""

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.data.generated import LETTERS
from regard.tasks.compare import compare
from regard.tasks.speed import training_speeds
from regard.tasks.translate import Translate
from regard.tasks.variants import Variant
from regard.training import Progress, Silent, read_config, read_run_config

WRITTEN: dict[str, Callable[[str], str]] = {"copy": str, "reverse": lambda word: word[::-1]}
"""Tasks whose words can have any length, and what is to be written for a word."""
COUNT = 20_000  # words to train on, unless the recipe says how many
HELD_OUT = 500  # words for validation, likewise


class Point(NamedTuple):
    """One variant at one length."""

    name: str
    length: int
    quality: float | None  # accuracy of tokens, given those before; None if it diverged
    gradient: float  # at the first source token, see `first_gradient`
    tokens_per_second: float  # in training, see `training_speeds`
    tokens_per_second_alone: float  # likewise, of one sentence
    diverged: str | None  # in which step, and what may help


def lengths(
    task: str,
    recipe: Mapping[str, Any],
    chosen: Sequence[Variant],
    out: Path,
    counted: Sequence[int],
    *,
    settings: Sequence[str] = (),
    progress: Callable[[str], Progress] = lambda name: Silent(),
) -> list[Point]:
    """Train every variant on words of each length, below `out`; runs that are there are reused.

    Recurrent encoders read in one direction, so that the first token is the farthest one.

    Args:
        task: "copy" or "reverse"
        recipe: its configuration
        chosen: of `regard.tasks.variants.variants`
        counted: how many letters the words have
        settings: what to change of the recipe

    Raises:
        ValueError: another task, or a length below 1
    """
    if task not in WRITTEN:
        raise ValueError(f"lengths are for the tasks {' and '.join(WRITTEN)}, got {task!r}")
    if min(counted) < 1:
        raise ValueError(f"a length is 1 or more, got {min(counted)}")
    config = read_config(recipe, [*settings, "model.bidirectional=none", "data.metric=accuracy"])
    found, order = [], [variant.name for variant in chosen]
    for length in counted:
        folder = out / f"length-{length}"
        # the counts are written down with the run: it is not reused for other ones
        data = {"count": COUNT, "valid_count": HELD_OUT, **config.data}
        del data["name"]
        for split, key in (("train", "count"), ("valid", "valid_count")):
            path = folder / f"{split}.tsv"
            _words(path, task, length, data[key], f"{split} {config.seed}")
            data[split] = str(path)
        own = config.model_copy(update={"data": data}).model_dump(exclude_none=True)
        rows = compare(own, chosen, folder, mapped=0, progress=_told(progress, length)).rows
        tasks = {
            row.name: Translate.from_config(read_run_config(folder / row.name), folder / row.name)
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


def first_gradient(task: Translate, seed: int = 1) -> float:
    """The norm of ∂loss/∂x₁ in an untrained model, x₁ the vector of the first source token.

    The loss is that of a sentence, in the mean over a batch. Through a recurrent encoder alone the
    gradient passes every later state, and fades with their number: Bengio et al. 1994.
    """
    torch.manual_seed(seed)
    model: Any = task.build().eval()
    reader = model.source if hasattr(model, "source") else model.encoder.reader
    read: list[Tensor] = []
    kept = reader.register_forward_hook(lambda module, given, x: read.append(x))
    loss = task.loss(model, task.batch(0, 0)).total
    kept.remove()
    (slope,) = torch.autograd.grad(loss, read[0])  # (batch, S, dim)
    return float(slope[:, 0].norm(dim=-1).mean())


def _told(progress: Callable[[str], Progress], length: int) -> Callable[[str], Progress]:
    return lambda name: progress(f"{name}, length {length}")


def _words(path: Path, task: str, length: int, count: int, seed: str) -> None:
    """A file of so many words of one length and what is to be written for them."""
    draw = random.Random(f"{task} {length} {seed}")
    words = ("".join(draw.choices(LETTERS, k=length)) for _ in range(count))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{word}\t{WRITTEN[task](word)}\n" for word in words), encoding="utf-8")
