"""Questions about scenes by what they ask: a run of the task pair beside a bag of words.

    regard train pair
    python -m benchmarks.questions runs/pair

Both answer the 1,000 test questions of the run's own seed; the bag of words, logistic regression on
the words of the question and the things of the scene, learns from the same training questions.
"""

import sys
from pathlib import Path

import torch

from regard.data.scenes import PLACES, RELATIONS
from regard.tasks import PairPredictor, load
from regard.tasks.pair import PairTask, bag_of_words
from regard.training import read_config


def main(run: str) -> None:
    """Print a line for each kind of question, and for those about one and about two things."""
    task = PairTask.from_config(read_config(Path(run) / "config.toml"), Path(run))
    predictor = load(run, PairPredictor)
    if predictor.right is not None:
        raise SystemExit(f"{run} is not a run of the task pair on scenes")
    test, labels = task.test, torch.tensor(task.test.labels)
    found = predictor.predict(list(zip(test.lefts, test.rights, strict=True)))
    ours = torch.tensor([test.classes.index(one.label) for one in found]) == labels
    bag = bag_of_words(task.train, test, task.left, task.right) == labels
    kinds = {"about one thing": list(PLACES), "about two things": list(RELATIONS)}
    kinds |= {f"  {kind}": [kind] for kind in [*PLACES, *RELATIONS]} | {"all": [""]}
    print(f"{'':<18}{'questions':>10}{'co-attention':>14}{'bag of words':>14}")
    for name, phrases in kinds.items():
        matching = torch.tensor([any(phrase in text for phrase in phrases) for text in test.lefts])
        shares = f"{ours[matching].float().mean():>14.1%}{bag[matching].float().mean():>14.1%}"
        print(f"{name:<18}{int(matching.sum()):>10}{shares}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/pair")
