"""Ten-fold cross-validation of the document classifier on the polarity dataset of Pang & Lee.

    python -m benchmarks.ten_folds [FOLD ...] [--set KEY=VALUE ...] [--random-queries]

Each fold is tested by a model that was trained on the other nine, a part of which is held out for
validation, beside support vector machines on counted words, which learn from all nine. The tested
fold is not used for any choice. With `--random-queries` attention starts from random queries
instead of zeros. It needs movie_reviews in REGARD_DATA, and prints a line for each fold and the
mean.
"""

import argparse
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from torch import nn

from regard.models.classifier import DocumentClassifier
from regard.recipes import load_recipe
from regard.tasks.classify import ClassifyTask
from regard.training import read_config, train

WORDS = {"token_pattern": r"\S+", "min_df": 3}  # the texts are tokenized
COUNTED = {
    "presence": lambda: (CountVectorizer(binary=True, **WORDS), LinearSVC(C=0.01)),
    "tf-idf": lambda: (TfidfVectorizer(sublinear_tf=True, **WORDS), LinearSVC()),
    "and bigrams": lambda: (
        TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), **WORDS),
        LinearSVC(),
    ),
}


class RandomQueries(ClassifyTask):
    """The same task with a model whose attention prefers random words at the start."""

    def build(self) -> DocumentClassifier:
        model = super().build()
        for pooling in (model.attention.words, model.attention.sentences):
            nn.init.xavier_uniform_(pooling.query)
        return model


def accuracies(fold: int, kind: type[ClassifyTask], settings: Iterable[str]) -> list[float]:
    """Accuracy on one fold of a model trained on the others, and of the counted words."""
    config = read_config(load_recipe("movie_reviews"), [f"data.fold={fold}", *settings])
    task = kind.from_config(config)
    with tempfile.TemporaryDirectory() as folder:
        found = [train(task, config, Path(folder) / "run").metrics["test_accuracy"]]
    texts, labels = task.train.inputs + task.valid.inputs, task.train.labels + task.valid.labels
    for parts in COUNTED.values():
        model = make_pipeline(*parts()).fit(texts, labels)
        found.append(model.score(task.test.inputs, task.test.labels))
    return found


def main() -> None:
    """Print the accuracies of each fold, and their means."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folds", type=int, nargs="*", metavar="FOLD", default=list(range(10)))
    parser.add_argument("--set", action="append", default=[], help="of the configuration")
    parser.add_argument("--random-queries", action="store_true")
    given = parser.parse_args()
    kind = RandomQueries if given.random_queries else ClassifyTask
    print(f"{'':<8}{'attention':>12}" + "".join(f"{name:>13}" for name in COUNTED))
    rows = []
    for fold in given.folds:
        rows.append(accuracies(fold, kind, given.set))
        print(_line(f"fold {fold}", rows[-1], 1), flush=True)
    print(_line("mean", np.mean(rows, axis=0), 2))


def _line(name: str, shares: "list[float] | np.ndarray", digits: int) -> str:
    cells = [f"{share:.{digits}%}" for share in shares]
    return f"{name:<8}{cells[0]:>12}" + "".join(f"{cell:>13}" for cell in cells[1:])


if __name__ == "__main__":
    main()
