"""Questions about scenes by what they ask: a run of the task pair beside a bag of words.

    regard train pair
    python -m benchmarks.questions runs/pair

Both answer the 1,000 test questions of the run's own seed; the bag of words, logistic regression on
the words of the question and the things of the scene, learns from the same training questions.
"""

import sys
from pathlib import Path
from typing import Any

import torch
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from regard.data.scenes import PLACES, RELATIONS
from regard.tasks import PairPredictor, load
from regard.tasks.pair import PairTask
from regard.training import read_config


def bag_of_words(task: PairTask) -> torch.Tensor:
    """Return the test answers of logistic regression on the words, and things, of each side."""

    def words(side: Any, tokenizer: Any) -> list[str]:
        return side.names() if tokenizer is None else tokenizer.tokens(tokenizer.encode(side))

    def bags(pairs: Any) -> list[dict[str, int]]:
        return [
            {
                **{f"left {word}": 1 for word in words(left, task.left)},
                **{f"right {word}": 1 for word in words(right, task.right)},
            }
            for left, right in pairs.inputs
        ]

    model = make_pipeline(DictVectorizer(), LogisticRegression(max_iter=300))
    return torch.from_numpy(model.fit(bags(task.train), task.train.labels).predict(bags(task.test)))


def main(run: str) -> None:
    """Print a line for each kind of question, and for those about one and about two things."""
    task = PairTask.from_config(read_config(Path(run) / "config.toml"), Path(run))
    predictor = load(run, PairPredictor)
    if predictor.right is not None:
        raise SystemExit(f"{run} is not a run of the task pair on scenes")
    test, labels = task.test, torch.tensor(task.test.labels)
    found = predictor.predict(test.inputs)
    ours = torch.tensor([test.classes.index(one.label) for one in found]) == labels
    bag = bag_of_words(task) == labels
    kinds = {"about one thing": list(PLACES), "about two things": list(RELATIONS)}
    kinds |= {f"  {kind}": [kind] for kind in [*PLACES, *RELATIONS]} | {"all": [""]}
    print(f"{'':<18}{'questions':>10}{'co-attention':>14}{'bag of words':>14}")
    for name, phrases in kinds.items():
        asked = [any(phrase in text for phrase in phrases) for text, _ in test.inputs]
        matching = torch.tensor(asked)
        shares = f"{ours[matching].float().mean():>14.1%}{bag[matching].float().mean():>14.1%}"
        print(f"{name:<18}{int(matching.sum()):>10}{shares}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/pair")
