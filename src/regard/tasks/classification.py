"""What tasks with classes share: the prediction, the loss, the metrics, an order of examples."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.labelled import Input, Labelled
from regard.evaluation import ClassificationReport, evaluate_classes
from regard.tasks.predictor import Predictor
from regard.training import Loss
from regard.training.processes import rank, summed, world


class Classification(NamedTuple):
    """The most likely class, and the probability of each class."""

    label: str
    probabilities: dict[str, float]

    @classmethod
    def of(cls, logits: Tensor, classes: Sequence[str]) -> "Classification":
        """The prediction of logits (classes,).

        >>> import torch
        >>> Classification.of(torch.tensor([0.0, 0.0, 9.0]), ["a", "b", "c"]).label
        'c'
        """
        shares = logits.softmax(-1)
        named = dict(zip(classes, shares.tolist(), strict=True))
        return cls(classes[int(shares.argmax())], named)

    @property
    def probability(self) -> float:
        """The probability of the label."""
        return self.probabilities[self.label]

    def __str__(self) -> str:
        return f"{self.label} ({self.probability:.0%})"


def classification_loss(logits: Tensor, labels: Tensor) -> Loss:
    """Return the cross entropy of logits (B, classes), summed over examples."""
    return Loss(F.cross_entropy(logits, labels, reduction="sum"), len(labels))


def classification_metrics(batches: Iterable[tuple[Tensor, Tensor]]) -> dict[str, float]:
    """Return accuracy and loss of batches of logits (B, classes) and labels (B,), of all processes.

    >>> import torch
    >>> classification_metrics([(torch.zeros(2, 3), torch.tensor([0, 1]))])["accuracy"]
    0.5
    """
    loss, correct, count = 0.0, 0.0, 0.0
    for logits, labels in batches:
        loss += float(F.cross_entropy(logits, labels, reduction="sum"))
        correct += int((logits.argmax(-1) == labels).sum())
        count += len(labels)
    loss, correct, count = summed(loss, correct, count)
    return {"accuracy": correct / count, "loss": loss / count}


def labelled_metrics(
    examples: Labelled[Input], logits: Callable[[list[Input]], Tensor], batch: int
) -> dict[str, float]:
    """Return accuracy and loss of examples, whose logits (B, classes) are computed in batches."""
    return classification_metrics(
        (
            logits(examples.inputs[start : start + batch]).cpu(),
            torch.tensor(examples.labels[start : start + batch]),
        )
        for start in range(rank() * batch, len(examples), batch * world())
    )


def class_report(
    predictor: Predictor, examples: Labelled[Input], classes: Sequence[str], shown: int
) -> ClassificationReport:
    """Return how well a predictor of `Classification` tells the classes of examples.

    Raises:
        ValueError: if there are no examples
    """
    if not len(examples):
        raise ValueError("there are no examples to evaluate with: choose another --split")
    found: list[Classification] = predictor.predict(examples.inputs)
    probabilities = np.array([[*one.probabilities.values()] for one in found])
    texts = [_named(one, number) for number, one in enumerate(examples.inputs, start=1)]
    labels = examples.labels
    return evaluate_classes(probabilities, labels, classes, texts=texts, shown=shown)


def _named(example: Any, number: int) -> str:
    """A text or a pair of texts on one line; the number of another example."""
    sides = example if isinstance(example, tuple) else (example,)
    if isinstance(example, Tensor):
        return f"example {number}"
    return " | ".join(" ".join(str(side).split()) for side in sides)


def shuffled_epochs(count: int, seed: int) -> Callable[[int], np.ndarray]:
    """Return a function from an epoch to its order of examples; the latest order is kept."""

    @lru_cache(maxsize=1)
    def order(epoch: int) -> np.ndarray:
        return np.random.default_rng((seed, epoch)).permutation(count)

    return order


def split_labelled(
    examples: Labelled[Input], test: float, valid: float, seed: int, fold: int | None = None
) -> dict[str, Labelled[Input]]:
    """Return the examples of "train", "valid" and "test", split at random.

    Args:
        test: share to test on, without a fold
        valid: share of the others for validation
        fold: the fold to test on, if the data has folds
    """
    order = np.random.default_rng(seed).permutation(len(examples)).tolist()
    folds = examples.folds
    if fold is None:
        held = max(1, round(test * len(order))) if test else 0
        tested, rest = order[:held], order[held:]
    elif folds is None:
        raise ValueError(f"data.fold={fold}, but the data has no folds; leave it out")
    elif fold not in folds:
        known = ", ".join(map(str, sorted(set(folds))))
        raise ValueError(f"data.fold={fold}, but the folds of the data are {known}")
    else:
        tested = [i for i in order if folds[i] == fold]
        rest = [i for i in order if folds[i] != fold]
    count = max(1, round(valid * len(rest)))
    if len(rest) - count < 1:
        raise ValueError(
            f"of {len(order)} examples none would be left for training; lower data.test and "
            "data.valid, or add more examples"
        )
    places = {"train": rest[count:], "valid": rest[:count], "test": tested}
    return {name: examples.choose(some) for name, some in places.items()}


def table(rows: Mapping[str, str]) -> str:
    """Return named rows as aligned text: what `Task.describe` shows of the data."""
    width = max(12, *(len(name) + 2 for name in rows))
    return "\n".join(f"{name:<{width}}{value}" for name, value in rows.items())


def split_sizes(train: Sized, valid: Sized, test: Sized) -> str:
    """Return the sizes of the splits in words.

    >>> split_sizes("abc", "d", "")
    '3 for training, 1 for validation, 0 for test'
    """
    return f"{len(train):,} for training, {len(valid):,} for validation, {len(test):,} for test"
