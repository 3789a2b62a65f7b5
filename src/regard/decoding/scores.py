"""From features to the likeliest tokens, without sorting or normalizing a whole vocabulary."""

import functools
from typing import NamedTuple

import torch
from torch import Tensor, nn

SMALL = 1024
"""Tokens below which a vocabulary is searched as it is."""

LANE = 32
"""Columns of a folded vocabulary come in multiples of this, so that vector units are used whole."""

BLOCK = 64
"""Entries whose scores are made, searched and forgotten before the next: a cache holds them."""


class Scores(NamedTuple):
    """How likely every token is; a token's log-probability is its logit less the log of the sum."""

    logits: Tensor  # (entries, vocabulary), -inf for what may not be emitted
    log_sum: Tensor  # (entries, 1), log Σ exp over the vocabulary, forbidden tokens counted

    def of(self, tokens: Tensor) -> Tensor:
        """Log-probabilities of tokens (entries, n), (entries, n) in float64."""
        return self.logits.gather(1, tokens).double() - self.log_sum

    def top(self, count: int) -> tuple[Tensor, Tensor]:
        """The likeliest tokens of each entry, the best first: log-probabilities and tokens.

        In a large vocabulary the `count` best lie in the `count` columns of a folded row whose
        largest entries are largest, so that little is left to sort.

        >>> scores = Scores(torch.randn(2, 5003), torch.zeros(2, 1))
        >>> torch.equal(scores.top(3)[1], scores.logits.topk(3)[1])
        True
        """
        logits = self.logits
        entries, vocabulary = logits.shape
        count = min(count, vocabulary)
        columns = _columns(vocabulary, count)
        if vocabulary < SMALL or columns * 4 > vocabulary:
            best, tokens = logits.topk(count)
            return best.double() - self.log_sum, tokens
        rows = vocabulary // columns
        folded = logits[:, : rows * columns].unflatten(1, (rows, columns))
        peaks = folded.amax(1)  # (entries, columns)
        picked = peaks.topk(count, sorted=False)[1]
        starts = torch.arange(0, rows * columns, columns, device=logits.device)
        tokens = (starts[:, None] + picked[:, None]).flatten(1)  # (entries, rows · count)
        rest = torch.arange(rows * columns, vocabulary, device=logits.device)
        tokens = torch.cat((tokens, rest.expand(entries, -1)), 1)
        best, places = logits.gather(1, tokens).topk(count)
        return best.double() - self.log_sum, tokens.gather(1, places)


@functools.cache
def _columns(vocabulary: int, count: int) -> int:
    """How wide to fold a vocabulary, so that the fewest numbers are left to sort."""

    def left(columns: int) -> int:
        rows, rest = divmod(vocabulary, columns)
        return columns + count * rows + rest

    return min(range(LANE, vocabulary + LANE, LANE), key=left)


class Reader:
    """The output of a model, read off into the same memory at each step.

    A vocabulary is large: fresh memory for it would cost as much as the numbers in it.

    Args:
        output: features to logits
        banned: ids that may not be emitted, (n,)
    """

    def __init__(self, output: nn.Linear, banned: Tensor) -> None:
        self.output, self.banned = output, banned
        self._room: tuple[Tensor, Tensor] | None = None

    def top(
        self, features: Tensor, count: int, forced: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """What `Scores.top` gives, (entries, count) each, a block of entries at a time."""
        if forced is not None or len(features) <= BLOCK:
            return self(features, forced).top(count)
        blocks = features.chunk(-(-len(features) // BLOCK))
        best, tokens = zip(*(self(block).top(count) for block in blocks), strict=True)
        return torch.cat(best), torch.cat(tokens)

    def __call__(self, features: Tensor, forced: tuple[Tensor, Tensor] | None = None) -> Scores:
        """Scores of the next token; they hold until the next call.

        Args:
            features: (entries, width)
            forced: entries that may emit one token only, banned or not, and those tokens
        """
        entries = len(features)
        if self._room is None or len(self._room[0]) < entries:
            shape = (entries, self.output.out_features)
            self._room = features.new_empty(shape), features.new_empty(shape)
        logits, spare = (room[:entries] for room in self._room)
        weight, bias = self.output.weight.t(), self.output.bias
        if bias is None:
            torch.mm(features, weight, out=logits)
        else:
            torch.addmm(bias, features, weight, out=logits)
        largest = logits.amax(1, keepdim=True)
        sums = torch.sub(logits, largest, out=spare).exp_().sum(1, keepdim=True)
        kept = None if forced is None else logits[forced]
        logits.index_fill_(1, self.banned, -torch.inf)
        if forced is not None and kept is not None:
            logits.index_fill_(0, forced[0], -torch.inf)
            logits[forced] = kept
        return Scores(logits, largest.double() + sums.double().log())
