"""Translation by looking it up: the translation of the most similar sentence that was seen.

    python -m benchmarks.neighbour [RECIPE]

For every source of the test split it takes the target of the training source whose characters are
most like it, by the cosine of TF-IDF vectors of 1 to 4 characters. A model that has learned no more
than what it has seen would do no better. It needs the recipe's data, by default that of tatoeba, in
REGARD_DATA, and prints chrF and BLEU.
"""

import sys

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from regard.data import read_dataset
from regard.evaluation import bleu, chrf


def nearest(seen: list[str], queries: list[str]) -> list[int]:
    """The index of the most similar seen text, for each query."""
    letters = TfidfVectorizer(analyzer="char", ngram_range=(1, 4), sublinear_tf=True)
    known = letters.fit_transform(seen)
    return np.asarray((letters.transform(queries) @ known.T).argmax(1)).ravel().tolist()


def main(name: str) -> None:
    """Print the scores of nearest-neighbour lookup on the test split of a recipe."""
    train, test = read_dataset(name, "train"), read_dataset(name, "test")
    wanted: dict[str, list[str]] = {}  # all targets of a source
    for source, target in test:
        wanted.setdefault(str(source), []).append(target)
    found = nearest([str(source) for source in train.sources], list(wanted))
    written, references = [train.targets[n] for n in found], list(wanted.values())
    print(f"{name}: {len(train):,} pairs seen, {len(wanted):,} test sources")
    print(f"chrF  {chrf(written, references, samples=0).metric.value:.1f}")
    print(f"BLEU  {bleu(written, references, samples=0).metric.value:.1f}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "tatoeba")
