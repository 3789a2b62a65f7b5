"""Evaluation of a classifier on examples it has not seen: metrics per class, and typical errors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from regard.evaluation.metrics import CONFIDENCE, SAMPLES, Metric, Rate, bootstrap

CHUNK = 2**22  # resampled cells that are held in memory
SMALLEST = 1e-12  # probability, so that its logarithm is finite


class ClassScores(NamedTuple):
    """How well one class is told from the others."""

    precision: Metric  # of the predictions of the class, the share that is right
    recall: Metric  # of the examples of the class, the share that is predicted
    f1: Metric  # their harmonic mean
    examples: int  # of the class


class WrongClass(NamedTuple):
    """An example whose predicted class is wrong."""

    number: int  # of the example, from 0
    label: str  # the true one
    prediction: str
    probability: float  # of the prediction
    text: str  # of the example


@dataclass(frozen=True)
class ClassificationReport:
    """Metrics, each with its 95 % interval, the confusion matrix, and the worst examples."""

    classes: list[str]
    metrics: dict[str, Metric]  # accuracy, macro_f1 (the mean over classes) and loss
    scores: dict[str, ClassScores]  # by class
    confusion: np.ndarray  # (classes, classes): row is the true class, column the prediction
    worst: list[WrongClass]  # whose true class has the lowest probability first

    @property
    def count(self) -> int:
        """Number of examples."""
        return int(self.confusion.sum())

    def as_dict(self) -> dict[str, Any]:
        """The report in types that JSON can represent."""
        scores = {
            name: {
                "precision": one.precision._asdict(),
                "recall": one.recall._asdict(),
                "f1": one.f1._asdict(),
                "examples": one.examples,
            }
            for name, one in self.scores.items()
        }
        return {
            "examples": self.count,
            "metrics": {name: metric._asdict() for name, metric in self.metrics.items()},
            "classes": scores,
            "confusion": self.confusion.tolist(),
            "worst": [one._asdict() for one in self.worst],
        }


def evaluate_classes(
    probabilities: np.ndarray,
    labels: Sequence[int],
    classes: Sequence[str],
    *,
    texts: Sequence[str] | None = None,
    shown: int = 5,
) -> ClassificationReport:
    """Compare predicted probabilities with the true classes.

    >>> report = evaluate_classes(np.array([[0.9, 0.1], [0.6, 0.4]]), [0, 1], ["a", "b"])
    >>> report.metrics["accuracy"].value, report.confusion.tolist()
    (0.5, [[1, 0], [1, 0]])
    >>> report.scores["a"].precision.value, report.scores["a"].recall.value
    (0.5, 1.0)

    Args:
        probabilities: of each example and class, (examples, classes)
        labels: the numbers of the true classes
        classes: their names
        texts: what each example is called among the worst; by default its number, from 1
        shown: number of worst examples in the report

    Raises:
        ValueError: without examples, or if the shapes differ
    """
    probabilities, truth = np.asarray(probabilities, float), np.asarray(labels, int)
    if probabilities.shape != (len(truth), len(classes)) or not len(truth):
        raise ValueError(
            f"expected probabilities of shape ({len(truth)}, {len(classes)}), one row for each of "
            f"at least one example, got {probabilities.shape}"
        )
    predicted = probabilities.argmax(1)
    confusion = np.zeros((len(classes), len(classes)), int)
    np.add.at(confusion, (truth, predicted), 1)
    of_truth = probabilities[range(len(truth)), truth]
    losses = -np.log(np.maximum(of_truth, SMALLEST))
    precision, recall, f1 = _with_intervals(confusion)
    metrics = {
        "accuracy": bootstrap(Rate((predicted == truth).astype(float), np.ones(len(truth)))),
        "macro_f1": f1.pop(),
        "loss": bootstrap(Rate(losses, np.ones(len(truth)))),
    }
    wrong = np.flatnonzero(predicted != truth)
    wrong = wrong[np.argsort(of_truth[wrong], kind="stable")][:shown]
    return ClassificationReport(
        list(classes),
        metrics,
        {
            name: ClassScores(precision[i], recall[i], f1[i], int(confusion[i].sum()))
            for i, name in enumerate(classes)
        },
        confusion,
        [
            WrongClass(
                int(i),
                classes[truth[i]],
                classes[predicted[i]],
                float(probabilities[i].max()),
                f"example {i + 1}" if texts is None else texts[int(i)],
            )
            for i in wrong
        ],
    )


def _with_intervals(confusion: np.ndarray, seed: int = 12345) -> list[list[Metric]]:
    """Precision, recall and F1 of each class; the last F1 is the mean over classes.

    To resample the examples is to draw the cells of the confusion matrix from a multinomial.
    """
    count = int(confusion.sum())
    rng = np.random.default_rng(seed)
    step = max(1, CHUNK // confusion.size)
    resampled: list[list[np.ndarray]] = [[], [], []]
    for start in range(0, SAMPLES, step):
        some = min(step, SAMPLES - start)
        drawn = rng.multinomial(count, confusion.ravel() / count, some)
        for kind, values in zip(
            resampled, _scores(drawn.reshape(-1, *confusion.shape)), strict=True
        ):
            kind.append(values)
    tail = (1 - CONFIDENCE) / 2
    found = []
    for values, kind in zip(_scores(confusion[None]), resampled, strict=True):
        low, high = np.quantile(np.concatenate(kind), (tail, 1 - tail), axis=0)
        found.append([Metric(*map(float, row)) for row in zip(values[0], low, high, strict=True)])
    return found


def _scores(confusion: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Precision, recall and F1 of matrices (samples, classes, classes); 0 where undefined."""
    right = np.diagonal(confusion, axis1=1, axis2=2)  # (samples, classes)
    columns, rows = confusion.sum(1), confusion.sum(2)
    f1 = 2 * right / np.maximum(rows + columns, 1)
    occurring = np.maximum((rows + columns > 0).sum(1, keepdims=True), 1)
    f1 = np.concatenate([f1, f1.sum(1, keepdims=True) / occurring], axis=1)
    return right / np.maximum(columns, 1), right / np.maximum(rows, 1), f1
