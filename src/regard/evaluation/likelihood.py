"""How well a model predicts each token of a text that is already there."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F

from regard.data.batch import Batch
from regard.decoding.search import evaluating


class Predicted(NamedTuple):
    """Of real target tokens, the end counted and the begin not."""

    loss: float  # nats a token
    accuracy: float  # share of tokens that were the likeliest
    tokens: int

    @property
    def perplexity(self) -> float:
        """exp(loss): among how many tokens the model seems to choose."""
        return math.exp(min(self.loss, 700.0))


def predicted(model: torch.nn.Module, batches: Iterable[Batch]) -> Predicted:
    """Teacher forced: every token after the true ones before it.

    Args:
        model: sequence to sequence
        batches: padded pairs
    """
    loss, right, count = 0.0, 0, 0
    with evaluating(model):  # type: ignore[arg-type]
        for batch in batches:
            given, wanted = batch.target[:, :-1], batch.target[:, 1:]
            features = model(batch.source, batch.source_lengths, given)  # (B, T - 1, D)
            position = torch.arange(given.shape[1], device=given.device)
            real = position < (batch.target_lengths - 1).unsqueeze(1)
            logits = model.output(features[real])  # type: ignore[operator]
            tokens = wanted[real]
            loss += float(F.cross_entropy(logits, tokens, reduction="sum"))
            right += int((logits.argmax(-1) == tokens).sum())
            count += len(tokens)
    return Predicted(loss / max(count, 1), right / max(count, 1), count)
