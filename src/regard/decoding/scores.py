"""From features to the most likely tokens, without normalizing a whole vocabulary."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

BLOCK = 128
"""Entries that are scored together, so that their scores stay in the processor's cache."""

Forced = tuple[Tensor, Tensor] | None
"""Entries that must emit a given token, and those tokens; None if there are none."""


class Scores(NamedTuple):
    """Scores of every token; the log-probability of a token is its logit minus `log_sum`."""

    logits: Tensor  # (entries, vocabulary), -inf for forbidden tokens
    log_sum: Tensor  # (entries, 1), log Σ exp over the whole vocabulary

    def of(self, tokens: Tensor) -> Tensor:
        """Log-probabilities of tokens (entries, n), (entries, n) in float64."""
        return self.logits.gather(1, tokens).double() - self.log_sum

    def top(self, count: int) -> tuple[Tensor, Tensor]:
        """The most likely tokens of each entry, the best first: log-probabilities and tokens.

        >>> scores = Scores(torch.randn(2, 5003), torch.zeros(2, 1))
        >>> torch.equal(scores.top(3)[1], scores.logits.topk(3)[1])
        True
        """
        best, tokens = self.logits.topk(min(count, self.logits.shape[1]))
        return best.double() - self.log_sum, tokens


class OutputScorer:
    """The output layer of a model, computed into the same memory at each step.

    With a large vocabulary, allocating the logits would cost as much as computing them.

    Args:
        output: the layer from features to logits
        banned: forbidden ids, (n,)
    """

    def __init__(self, output: nn.Linear, banned: Tensor) -> None:
        self.output, self.banned = output, banned
        self._buffers: tuple[Tensor, Tensor] | None = None

    def top(self, features: Tensor, count: int, forced: Forced = None) -> tuple[Tensor, Tensor]:
        """`Scores.top`, (entries, count) each, computed for a block of entries at a time."""
        if forced is not None or len(features) <= BLOCK:
            return self(features, forced).top(count)
        parts = [self(b).top(count) for b in features.chunk(-(-len(features) // BLOCK))]
        return torch.cat([best for best, _ in parts]), torch.cat([ids for _, ids in parts])

    def __call__(self, features: Tensor, forced: Forced = None) -> Scores:
        """Scores of the next token, valid until the next call.

        Args:
            features: (entries, width)
            forced: entries that must emit a given token, banned or not, and those tokens
        """
        logits, spare = self._logits(features)
        largest = logits.amax(1, keepdim=True)
        sums = torch.sub(logits, largest, out=spare).exp_().sum(1, keepdim=True)
        kept = None if forced is None else logits[forced]
        logits.index_fill_(1, self.banned, -torch.inf)
        if forced is not None and kept is not None:
            logits.index_fill_(0, forced[0], -torch.inf)
            logits[forced] = kept
        return Scores(logits, largest.double() + sums.double().log())

    def _logits(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (entries, vocabulary), and memory of the same size."""
        entries = len(features)
        if self._buffers is None or len(self._buffers[0]) < entries:
            shape = (entries, self.output.out_features)
            self._buffers = features.new_empty(shape), features.new_empty(shape)
        logits, spare = (buffer[:entries] for buffer in self._buffers)
        self._multiply(features, logits)
        return logits, spare

    def _multiply(self, features: Tensor, logits: Tensor) -> None:
        """Fill logits (entries, vocabulary)."""
        weight, bias = self.output.weight, self.output.bias
        if isinstance(self.output, nn.Identity):  # an exported model, whose features are logits
            logits.copy_(features)
        elif bias is None:
            torch.mm(features, weight.t(), out=logits)
        else:
            torch.addmm(bias, features, weight.t(), out=logits)
