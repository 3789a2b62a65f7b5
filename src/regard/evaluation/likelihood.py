"""How well a model predicts the tokens of given target texts."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F

from regard.data.batch import Batch
from regard.decoding.search import evaluating


class Likelihood(NamedTuple):
    """Teacher-forced loss and accuracy over real target tokens, EOS included."""

    loss: float  # nats per token
    accuracy: float  # share of tokens that were the most probable
    tokens: int

    @property
    def perplexity(self) -> float:
        """exp(loss)."""
        return math.exp(min(self.loss, 700.0))


def teacher_forced(model: torch.nn.Module, batches: Iterable[Batch]) -> Likelihood:
    """Loss and accuracy of each target token given the true tokens before it.

    Args:
        model: sequence to sequence
        batches: padded pairs
    """
    loss, right, count = 0.0, 0, 0
    with evaluating(model):  # type: ignore[arg-type]
        for batch in batches:
            inputs, labels = batch.target[:, :-1], batch.target[:, 1:]
            features = model(batch.source, batch.source_lengths, inputs)  # (B, T - 1, D)
            position = torch.arange(inputs.shape[1], device=inputs.device)
            real = position < (batch.target_lengths - 1).unsqueeze(1)
            logits = model.output(features[real])  # type: ignore[operator]
            tokens = labels[real]
            loss += float(F.cross_entropy(logits, tokens, reduction="sum"))
            right += int((logits.argmax(-1) == tokens).sum())
            count += len(tokens)
    return Likelihood(loss / max(count, 1), right / max(count, 1), count)
