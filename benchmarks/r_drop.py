"""R-Drop on Multi30k: two passes with different dropout, whose distributions should agree.

    python -m benchmarks.r_drop OUT
    python -m benchmarks.r_drop OUT --set training.epochs=1

    loss = ½ (CE₁ + CE₂) + α/4 (KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁))        Liang et al. 2021, eq. 4, halved

The recipe is `multi30k` with post-norm, bfloat16 and 24 epochs. It prints what training prints;
docs/results.md compares the curve with that of the recipe.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from regard.data import Batch
from regard.recipes import load_recipe
from regard.tasks.translate import TranslateTask, target_features
from regard.training import Loss, read_config, train
from regard.training.progress import Lines

ALPHA = 5.0  # that of the paper for translation
SETTINGS = (
    *("model.norm=post", "training.precision=bfloat16", "training.epochs=24"),
    *("training.average=5", "training.threads=1"),
)


def r_drop_loss(first: Tensor, second: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """The summed loss of the scores (n, V) of two passes.

    >>> scores, targets = torch.randn(3, 7), torch.tensor([1, 0, 6])
    >>> alike = r_drop_loss(scores, scores, targets, 0.1)
    >>> expected = F.cross_entropy(scores, targets, reduction="sum", label_smoothing=0.1)
    >>> torch.allclose(alike, expected)
    True
    """
    entropies = (
        F.cross_entropy(scores, targets, reduction="sum", label_smoothing=smoothing)
        for scores in (first, second)
    )
    p, q = first.log_softmax(-1), second.log_softmax(-1)
    disagreement = ((p.exp() - q.exp()) * (p - q)).sum()  # both divergences
    return sum(entropies, first.new_zeros(())) / 2 + ALPHA / 4 * disagreement


class RDropTask(TranslateTask):
    """Translation whose loss is that of R-Drop."""

    def loss(self, model: Any, batch: Batch) -> Loss:
        """Return the loss of two passes, summed."""
        passes = [target_features(model, batch) for _ in range(2)]
        first, second = (model.output(features).float() for features, _ in passes)
        tokens = passes[0][1]
        smoothing = self.loss_settings.label_smoothing
        return Loss(r_drop_loss(first, second, tokens, smoothing), len(tokens))


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, help="the run directory")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    wanted = parser.parse_args()
    config = read_config(load_recipe("multi30k"), [*SETTINGS, *wanted.set])
    train(RDropTask.from_config(config), config, wanted.out, progress=Lines(sys.stderr))


if __name__ == "__main__":
    main()
