"""From features to the likeliest tokens, without sorting or normalizing a whole vocabulary."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

SMALL = 16
"""A row of fewer than this many times the tokens sought is searched as it is."""

FOLDS = 8
"""Into how many parts a longer row is folded."""

BLOCK = 64
"""Entries whose scores are made, searched and forgotten before the next: a cache holds them."""


Forced = tuple[Tensor, Tensor] | None
"""Entries that may emit one token only, and those tokens; None if all are free."""


class Scores(NamedTuple):
    """How likely every token is; a token's log-probability is its logit less the log of the sum."""

    logits: Tensor  # (entries, vocabulary), -inf for what may not be emitted
    log_sum: Tensor  # (entries, 1), log Σ exp over the vocabulary, forbidden tokens counted

    def of(self, tokens: Tensor) -> Tensor:
        """Log-probabilities of tokens (entries, n), (entries, n) in float64."""
        return self.logits.gather(1, tokens).double() - self.log_sum

    def top(self, count: int) -> tuple[Tensor, Tensor]:
        """The likeliest tokens of each entry, the best first: log-probabilities and tokens.

        >>> scores = Scores(torch.randn(2, 5003), torch.zeros(2, 1))
        >>> torch.equal(scores.top(3)[1], scores.logits.topk(3)[1])
        True
        """
        best, tokens = largest(self.logits, min(count, self.logits.shape[1]))
        return best.double() - self.log_sum, tokens


def largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest numbers of each row (rows, width), the first of all first, and their places.

    Fold a row so that numbers `columns` apart lie over each other: the `count` largest are in the
    `count` columns whose largest are largest, which are found likewise. Little is left to sort.

    >>> best, places = largest(torch.tensor([[5.0, 7.0, 2.0, 3.0]]), 2)
    >>> best.tolist(), places.tolist()
    ([[7.0, 5.0]], [[1, 0]])
    """
    rows, width = values.shape
    if width < max(SMALL * count, 128):
        return values.topk(count)
    columns = width // FOLDS
    peaks = values[:, : FOLDS * columns].unflatten(1, (FOLDS, columns)).amax(1)
    picked = largest(peaks, count)[1]
    starts = torch.arange(0, FOLDS * columns, columns, device=values.device)
    places = (starts[:, None] + picked[:, None]).flatten(1)  # (rows, FOLDS · count)
    rest = torch.arange(FOLDS * columns, width, device=values.device)
    places = torch.cat((places, rest.expand(rows, -1)), 1)
    best, order = values.gather(1, places).topk(count)
    return best, places.gather(1, order)


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
        self._whole: Tensor | None = None

    def top(self, features: Tensor, count: int, forced: Forced = None) -> tuple[Tensor, Tensor]:
        """What `Scores.top` gives, (entries, count) each, a block of entries at a time."""
        if forced is not None or len(features) <= BLOCK:
            return self(features, forced).top(count)
        blocks = features.chunk(-(-len(features) // BLOCK))
        best, tokens = zip(*(self(block).top(count) for block in blocks), strict=True)
        return torch.cat(best), torch.cat(tokens)

    def __call__(self, features: Tensor, forced: Forced = None) -> Scores:
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
        self._multiply(features, logits)
        largest = logits.amax(1, keepdim=True)
        sums = torch.sub(logits, largest, out=spare).exp_().sum(1, keepdim=True)
        kept = None if forced is None else logits[forced]
        logits.index_fill_(1, self.banned, -torch.inf)
        if forced is not None and kept is not None:
            logits.index_fill_(0, forced[0], -torch.inf)
            logits[forced] = kept
        return Scores(logits, largest.double() + sums.double().log())

    def _multiply(self, features: Tensor, logits: Tensor) -> None:
        """Fill logits (entries, vocabulary)."""
        weight, bias = self.output.weight, self.output.bias
        if bias is None:
            torch.mm(features, weight.t(), out=logits)
        elif len(features) < BLOCK // 2:
            torch.addmm(bias, features, weight.t(), out=logits)
        else:  # the bias as one more column: added by itself it costs a third of the product
            if self._whole is None:
                self._whole = torch.cat((weight, bias[:, None]), 1)
            ones = features.new_ones(len(features), 1)
            torch.mm(torch.cat((features, ones), 1), self._whole.t(), out=logits)
