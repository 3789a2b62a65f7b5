"""From features to the most likely tokens, without sorting or normalizing a whole vocabulary."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.paths import kernels

SMALL = 16
"""Rows of fewer than this many times the wanted tokens are searched directly."""

FOLDS = 8
"""Number of parts into which a longer row is folded."""

BLOCK = 128
"""Entries that are scored together, so that their scores stay in the processor's cache."""


LANES = 16
"""Entries that a compiled loop takes at a time."""

KERNEL = (torch.float32, torch.float64)


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
        best, tokens = largest(self.logits, min(count, self.logits.shape[1]))
        return best.double() - self.log_sum, tokens


def largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest numbers of each row (rows, width), in descending order, and their indices.

    A row is folded into `FOLDS` rows of columns: the `count` largest numbers are in the `count`
    columns with the largest maxima, which are found recursively. Little is left to sort.

    >>> best, indices = largest(torch.tensor([[5.0, 7.0, 2.0, 3.0]]), 2)
    >>> best.tolist(), indices.tolist()
    ([[7.0, 5.0]], [[1, 0]])
    """
    rows, width = values.shape
    if width < max(SMALL * count, 128):
        return values.topk(count)
    columns = width // FOLDS
    peaks = values[:, : FOLDS * columns].unflatten(1, (FOLDS, columns)).amax(1)
    picked = largest(peaks, count)[1]
    starts = torch.arange(0, FOLDS * columns, columns, device=values.device)
    indices = (starts[:, None] + picked[:, None]).flatten(1)  # (rows, FOLDS · count)
    rest = torch.arange(FOLDS * columns, width, device=values.device)
    indices = torch.cat((indices, rest.expand(rows, -1)), 1)
    best, order = values.gather(1, indices).topk(count)
    return best, indices.gather(1, order)


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
        self._memory: Tensor | None = None  # of `_by_columns`
        self._weight_and_bias: Tensor | None = None

    def top(self, features: Tensor, count: int, forced: Forced = None) -> tuple[Tensor, Tensor]:
        """`Scores.top`, (entries, count) each, computed for a block of entries at a time."""
        count = min(count, self.output.out_features)
        compiled = forced is None and features.dtype in KERNEL and kernels.available(features)
        if not compiled and (forced is not None or len(features) <= BLOCK):
            return self(features, forced).top(count)
        blocks = features.chunk(-(-len(features) // BLOCK))
        parts = [self._top(b, count) if compiled else self(b).top(count) for b in blocks]
        return torch.cat([best for best, _ in parts]), torch.cat([ids for _, ids in parts])

    def _top(self, features: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The same by a compiled loop."""
        entries = len(features)
        if entries < LANES or isinstance(self.output, nn.Identity):
            logits, _ = self._logits(features)
            best, tokens, log_sum = kernels.top_logits(logits, self.banned, count)
        else:  # the transposed product is faster
            logits = self._by_columns(features)
            best, tokens, log_sum = kernels.top_logits(logits, self.banned, count, columns=entries)
        return best.double() - log_sum.unsqueeze(1), tokens

    def _by_columns(self, features: Tensor) -> Tensor:
        """Logits (vocabulary, entries and padding up to whole vectors)."""
        weight, bias, entries = self.output.weight, self.output.bias, len(features)
        if self._weight_and_bias is None:  # adding the bias would cost a third of the product
            bias = weight.new_zeros(len(weight)) if bias is None else bias
            self._weight_and_bias = torch.cat((weight, bias[:, None]), 1)
        columns = -(-entries // LANES) * LANES
        inputs = features.new_ones(columns, features.shape[1] + 1)
        inputs[:entries, :-1] = features
        size = len(weight) * columns
        if self._memory is None or self._memory.numel() < size:
            self._memory = features.new_empty(size)
        logits = self._memory[:size].view(-1, columns)
        return torch.mm(self._weight_and_bias, inputs.t(), out=logits)

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
