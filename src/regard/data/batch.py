"""Batches of pairs: grouped by length, in an order fixed by a seed and the epoch, and padded."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

PAD, BOS, EOS = 0, 1, 2  # of every tokenizer
POOL = 100  # batches that are sorted by length together, about
LARGE = 2**20  # pairs beyond which the order of an epoch is not held in memory


class Batch(NamedTuple):
    """Padded pairs."""

    source: Tensor  # (B, S) ids, or (B, S, features) float frames
    source_lengths: Tensor  # (B,)
    target: Tensor  # (B, T) ids, from BOS to EOS
    target_lengths: Tensor  # (B,) BOS and EOS included
    index: Tensor  # type: ignore[assignment]  # (B,) positions in the corpus


class Batches:
    """The composition of the batches of each epoch: pairs of similar length.

    Pairs are shuffled and cut into pools; pools are sorted by length, ascending and descending in
    turn, so that one ends with the length the next starts with; then batches are cut, and shuffled.
    All of it depends on the seed and the epoch alone: any batch of any epoch is reached directly.
    Of a corpus of over a million pairs no list is held: each pool is found when it is needed.

    >>> batches = Batches(np.array([[3, 5], [2, 4], [7, 9], [3, 4]]), sentences=2, seed=1)
    >>> sorted(map(sorted, batches.order(epoch=0)))
    [[0, 2], [1, 3]]
    >>> batches.order(epoch=5)[1] == batches.order(epoch=5)[1]
    True

    Args:
        lengths: (n, 2), of source and target, BOS and EOS included
        tokens: maximum in a batch, padding of both sides included
        sentences: alternatively, the number of pairs in a batch
        seed: of the order
        pool: about how many batches are sorted by length together; 1 mixes pairs of all lengths
        shuffle: False sorts the pairs by length, the same in each epoch
    """

    def __init__(
        self,
        lengths: np.ndarray,
        *,
        tokens: int | None = None,
        sentences: int | None = None,
        seed: int = 0,
        pool: int = POOL,
        shuffle: bool = True,
    ) -> None:
        if lengths.ndim != 2 or lengths.shape[1] != 2 or len(lengths) == 0:
            raise ValueError(f"lengths must be of shape (n, 2) with n > 0, got {lengths.shape}")
        if (tokens is None) == (sentences is None):
            raise ValueError("give either tokens or sentences, the size of a batch")
        size = tokens if sentences is None else sentences
        if size is None or size < 1:
            raise ValueError(f"the size of a batch must be at least 1, got {size}")
        sums = lengths.sum(axis=1, dtype=np.int32)
        if tokens is not None and sums.max() > tokens:
            raise ValueError(
                f"pair {sums.argmax()} has {sums.max()} tokens, more than the tokens={tokens} of a "
                f"batch; raise data.tokens, or leave out long pairs with data.longest"
            )
        if seed < 0:
            raise ValueError(f"seed must not be negative, got {seed}")
        if pool < 1:
            raise ValueError(f"pool must be at least 1, got {pool}")
        self.lengths = lengths
        self.tokens = tokens
        self.sentences = sentences
        self.seed = seed
        self.shuffle = shuffle
        per_batch = sentences or max(1, int((tokens or 0) / max(1.0, sums.mean())))
        self.pool = pool * per_batch

    def order(self, epoch: int) -> "Order | PooledOrder":
        """The batches of an epoch: a sequence of lists of positions in the corpus."""
        if not self.shuffle:
            index = _by_length(self.lengths)
            return Order(index, self.cuts(index), None)
        if len(self.lengths) > LARGE:
            return PooledOrder(self, epoch)
        rng = np.random.default_rng((self.seed, epoch))
        index = rng.permutation(len(self.lengths))
        for number, start in enumerate(range(0, len(index), self.pool)):
            pool = index[start : start + self.pool]
            index[start : start + self.pool] = self.by_length(pool, descending=number % 2 == 1)
        cuts = self.cuts(index)
        return Order(index, cuts, rng.permutation(len(cuts) - 1))

    def by_length(self, index: np.ndarray, *, descending: bool = False) -> np.ndarray:
        """Positions (n,) of a pool, sorted by their lengths."""
        ranked = _by_length(self.lengths[index])
        return index[ranked[::-1] if descending else ranked]

    def cuts(self, index: np.ndarray) -> np.ndarray:
        """The start of each batch in the sorted positions, and the end of the last one."""
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
        cuts: (batches + 1,) the start of each batch in it
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
            raise IndexError(f"batch {position} is out of range: there are {len(self)}")
        position %= len(self)
        rank = position if self.ranks is None else self.ranks[position]
        return self.positions[self.cuts[rank] : self.cuts[rank + 1]].tolist()


class PooledOrder(Sequence[list[int]]):
    """The batches of one epoch of a large corpus, found pool by pool.

    Pairs are shuffled by `permuted`, a function of their position. What is held grows with the
    number of batches, not of pairs.

    Args:
        batches: the corpus and the size of its batches
        epoch: which permutation
    """

    def __init__(self, batches: Batches, epoch: int) -> None:
        self.batches, self.seed = batches, (batches.seed, epoch)
        pools = range(-(-len(batches.lengths) // batches.pool))
        counts = [len(self._pool(number)[1]) - 1 for number in pools]
        self.firsts = np.cumsum([0, *counts])  # (pools + 1,) number of batches before each pool
        self.ranks = np.random.default_rng(self.seed).permutation(int(self.firsts[-1]))

    def __len__(self) -> int:
        return len(self.ranks)

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            return [self[i] for i in range(*position.indices(len(self)))]
        if not -len(self) <= position < len(self):
            raise IndexError(f"batch {position} is out of range: there are {len(self)}")
        rank = self.ranks[position]
        pool = int(np.searchsorted(self.firsts, rank, side="right")) - 1
        index, cuts = self._pool(pool)
        number = rank - self.firsts[pool]
        return index[cuts[number] : cuts[number + 1]].tolist()

    def _pool(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The positions of a pool, sorted by length, and where its batches are cut."""
        total, size = len(self.batches.lengths), self.batches.pool
        places = np.arange(number * size, min((number + 1) * size, total))
        index = self.batches.by_length(permuted(places, total, self.seed))
        return index, self.batches.cuts(index)


def permuted(positions: np.ndarray, size: int, seed: tuple[int, ...]) -> np.ndarray:
    """Where a pseudorandom permutation of 0 … size − 1 puts positions, without the permutation.

    A Feistel network of four rounds (Luby & Rackoff 1988) over the next power of four; what falls
    outside goes through it again (Black & Rogaway 2002, cycle walking).

    >>> sorted(permuted(np.arange(7), 7, (1, 0)).tolist())
    [0, 1, 2, 3, 4, 5, 6]

    Args:
        positions: (n,), from 0 to size − 1
        seed: of the permutation
    """
    half = np.uint64(max(1, -(-max(size - 1, 1).bit_length() // 2)))
    low = np.uint64((1 << int(half)) - 1)
    keys = np.random.SeedSequence(seed).generate_state(4, np.uint64)
    found = positions.astype(np.uint64)
    outside = np.ones(len(found), dtype=bool)
    while outside.any():
        left, right = found[outside] >> half, found[outside] & low
        for key in keys:
            left, right = right, left ^ (_mixed(right ^ key) & low)
        found[outside] = left << half | right
        outside[outside] = found[outside] >= size
    return found.astype(np.int64)


def _mixed(x: np.ndarray) -> np.ndarray:
    """The finalizer of SplitMix64 (Steele et al. 2014): every bit depends on all others."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def collate(
    pairs: Iterable[tuple[Any, Sequence[int]]], index: Sequence[int] | None = None
) -> Batch:
    """Pad pairs of ids to a batch; targets get BOS and EOS.

    >>> batch = collate([([5, 6, 7], [8]), ([9], [4, 5])])
    >>> batch.source.tolist(), batch.target.tolist()
    ([[5, 6, 7], [9, 0, 0]], [[1, 8, 2, 0], [1, 4, 5, 2]])
    >>> batch.source_lengths.tolist(), batch.target_lengths.tolist()
    ([3, 1], [3, 4])

    Args:
        pairs: (ids, or float frames of shape (length, features); ids without BOS and EOS)
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
