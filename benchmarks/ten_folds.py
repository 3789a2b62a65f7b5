"""Ten-fold cross-validation of the document classifier on the polarity dataset of Pang & Lee.

    python -m benchmarks.ten_folds [FOLD ...]

Each fold is tested by a model that was trained on the other nine, a part of which is held out for
validation, beside support vector machines on counted words, which learn from all nine. The tested
fold is not used for any choice. It needs movie_reviews in REGARD_DATA, and prints a line for each
fold and the mean.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

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


def accuracies(fold: int) -> list[float]:
    """Accuracy on one fold of a model trained on the others, and of the counted words."""
    config = read_config(load_recipe("movie_reviews"), [f"data.fold={fold}"])
    task = ClassifyTask.from_config(config)
    with tempfile.TemporaryDirectory() as folder:
        found = [train(task, config, Path(folder) / "run").metrics["test_accuracy"]]
    texts, labels = task.train.inputs + task.valid.inputs, task.train.labels + task.valid.labels
    for parts in COUNTED.values():
        model = make_pipeline(*parts()).fit(texts, labels)
        found.append(model.score(task.test.inputs, task.test.labels))
    return found


def main(folds: list[int]) -> None:
    """Print the accuracies of each fold, and their means."""
    print(f"{'':<8}{'attention':>12}" + "".join(f"{name:>13}" for name in COUNTED))
    rows = []
    for fold in folds:
        rows.append(accuracies(fold))
        print(_line(f"fold {fold}", rows[-1], 1), flush=True)
    print(_line("mean", np.mean(rows, axis=0), 2))


def _line(name: str, shares: "list[float] | np.ndarray", digits: int) -> str:
    cells = [f"{share:.{digits}%}" for share in shares]
    return f"{name:<8}{cells[0]:>12}" + "".join(f"{cell:>13}" for cell in cells[1:])


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or list(range(10)))
