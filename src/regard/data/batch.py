"""Batches: which pairs go together, in an order that a seed and an epoch fix, and their padding."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

PAD, BOS, EOS = 0, 1, 2  # as in every tokenizer
POOL = 100  # about how many batches are sorted together


class Batch(NamedTuple):
    """Padded pairs."""

    source: Tensor  # (B, S) ids, or (B, S, features) float frames
    source_lengths: Tensor  # (B,)
    target: Tensor  # (B, T) ids, from begin to end
    target_lengths: Tensor  # (B,) begin and end included
    index: Tensor  # type: ignore[assignment]  # (B,) positions in the corpus


class Batches:
    """Which pairs form each batch of an epoch: neighbours in length, in an order without memory.

    Pairs are shuffled and cut into pools; a pool is sorted by length, upwards and downwards in
    turn, so that one pool ends where the next begins; then batches are cut, and shuffled. All of it
    depends on the seed and the epoch alone, so any batch of any epoch is reached directly.

    >>> batches = Batches(np.array([[3, 5], [2, 4], [7, 9], [3, 4]]), sentences=2, seed=1)
    >>> sorted(map(sorted, batches.order(epoch=0)))
    [[0, 2], [1, 3]]
    >>> batches.order(epoch=5)[1] == batches.order(epoch=5)[1]
    True

    Args:
        lengths: (n, 2), the source's and the target's, begin and end included
        tokens: the most that a batch may hold, padding of both sides included
        sentences: or the number of pairs in a batch
        seed: where the order comes from
        shuffle: False gives the pairs sorted by length, the same in each epoch
    """

    def __init__(
        self,
        lengths: np.ndarray,
        *,
        tokens: int | None = None,
        sentences: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
    ) -> None:
        if lengths.ndim != 2 or lengths.shape[1] != 2 or len(lengths) == 0:
            raise ValueError(f"lengths must be of shape (n, 2) with n > 0, got {lengths.shape}")
        if (tokens is None) == (sentences is None):
            raise ValueError("give either tokens or sentences, the size of a batch")
        size = tokens if sentences is None else sentences
        if size is None or size < 1:
            raise ValueError(f"the size of a batch must be at least 1, got {size}")
        sums = lengths.sum(axis=1)
        if tokens is not None and sums.max() > tokens:
            raise ValueError(
                f"pair {sums.argmax()} has {sums.max()} tokens, more than the tokens={tokens} of a "
                f"batch; raise tokens or leave out long pairs"
            )
        if seed < 0:
            raise ValueError(f"seed must not be negative, got {seed}")
        self.lengths = lengths
        self.tokens = tokens
        self.sentences = sentences
        self.seed = seed
        self.shuffle = shuffle
        per_batch = sentences or max(1, int((tokens or 0) / max(1.0, sums.mean())))
        self.pool = max(POOL * per_batch, 1)

    def order(self, epoch: int) -> "Order":
        """The batches of an epoch: a sequence of lists of positions in the corpus."""
        if not self.shuffle:
            index = _by_length(self.lengths)
            return Order(index, self._cuts(index), None)
        draw = np.random.default_rng((self.seed, epoch))
        index = draw.permutation(len(self.lengths))
        for number, start in enumerate(range(0, len(index), self.pool)):
            pool = index[start : start + self.pool]
            ranked = _by_length(self.lengths[pool])
            index[start : start + self.pool] = pool[ranked if number % 2 == 0 else ranked[::-1]]
        cuts = self._cuts(index)
        return Order(index, cuts, draw.permutation(len(cuts) - 1))

    def _cuts(self, index: np.ndarray) -> np.ndarray:
        """Where batches begin in the sorted positions, and where the last one ends."""
        if self.sentences is not None:
            return np.append(np.arange(0, len(index), self.sentences), len(index))
        assert self.tokens is not None
        cuts = [0]
        while cuts[-1] < len(index):
            ahead = index[cuts[-1] : cuts[-1] + max(1, self.tokens // 2)]
            widths = np.maximum.accumulate(self.lengths[ahead]).sum(axis=1)  # (ahead,)
            padded = widths.astype(np.int64) * np.arange(1, len(ahead) + 1)  # grows
            cuts.append(cuts[-1] + int(np.searchsorted(padded, self.tokens, side="right")))
        return np.array(cuts)


def _by_length(lengths: np.ndarray) -> np.ndarray:
    """Positions sorted by target, then by source upwards and downwards in turn: no jumps."""
    source, target = lengths.T
    return np.lexsort((np.where(target % 2, -source, source), target))


class Order(Sequence[list[int]]):
    """The batches of one epoch, each a list of positions in the corpus.

    Args:
        positions: (n,) in the order in which they are cut
        cuts: (batches + 1,) where each batch begins in it
        ranks: (batches,) which batch comes when; None leaves them as cut
    """

    def __init__(self, positions: np.ndarray, cuts: np.ndarray, ranks: np.ndarray | None) -> None:
        self.positions = positions
        self.cuts = cuts
        self.ranks = ranks

    def __len__(self) -> int:
        return len(self.cuts) - 1

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            return [self[i] for i in range(*position.indices(len(self)))]
        if not -len(self) <= position < len(self):
            raise IndexError(f"there is no batch {position} among {len(self)}")
        position %= len(self)
        rank = position if self.ranks is None else self.ranks[position]
        return self.positions[self.cuts[rank] : self.cuts[rank + 1]].tolist()


def collate(
    pairs: Iterable[tuple[Any, Sequence[int]]], index: Sequence[int] | None = None
) -> Batch:
    """Pad pairs of ids to one batch; targets are given their begin and their end.

    >>> batch = collate([([5, 6, 7], [8]), ([9], [4, 5])])
    >>> batch.source.tolist(), batch.target.tolist()
    ([[5, 6, 7], [9, 0, 0]], [[1, 8, 2, 0], [1, 4, 5, 2]])
    >>> batch.source_lengths.tolist(), batch.target_lengths.tolist()
    ([3, 1], [3, 4])

    Args:
        pairs: (ids, or float frames of shape (length, features); ids without begin and end)
        index: the positions of the pairs in the corpus; by default 0, 1, ...
    """
    pairs = list(pairs)
    if not pairs:
        raise ValueError("a batch needs at least one pair")
    sources = [np.asarray(source) for source, _ in pairs]
    source_lengths = np.array([len(source) for source in sources])
    target_lengths = np.array([len(target) + 2 for _, target in pairs])
    dtype = np.float32 if sources[0].ndim == 2 else np.int64
    shape = (len(pairs), source_lengths.max(), *sources[0].shape[1:])
    source = np.full(shape, PAD, dtype)
    target = np.full((len(pairs), target_lengths.max()), PAD, np.int64)
    target[:, 0] = BOS
    for row, (frames, (_, ids)) in enumerate(zip(sources, pairs, strict=True)):
        source[row, : len(frames)] = frames
        target[row, 1 : len(ids) + 1] = ids
        target[row, len(ids) + 1] = EOS
    positions = range(len(pairs)) if index is None else index
    return Batch(
        torch.from_numpy(source),
        torch.from_numpy(source_lengths),
        torch.from_numpy(target),
        torch.from_numpy(target_lengths),
        torch.tensor(list(positions)),
    )
