"""What heads do, in numbers: entropy, sinks, diagonals, neighbours, redundancy, rollout."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.trace import Trace


def checked(weights: Tensor) -> Tensor:
    """The weights in double precision, (..., M, N).

    Raises:
        ValueError: NaN, a negative weight, or rows that sum to more than one
    """
    if weights.dim() < 2:
        raise ValueError(f"weights should be (..., M, N), got {tuple(weights.shape)}")
    weights = weights.detach().to(torch.float64)
    if not bool(torch.isfinite(weights).all()):
        raise ValueError("weights contain NaN or infinity")
    if weights.numel() and (float(weights.min()) < -1e-3 or float(weights.sum(-1).max()) > 1.05):
        raise ValueError(
            f"weights should be 0 or more and each row sum to 1 at most, but the smallest is "
            f"{float(weights.min()):.3g} and the largest sum {float(weights.sum(-1).max()):.3g}"
        )
    return weights.clamp(min=0.0)


class HeadSums:
    """Sums over the rows of a map, from which the statistics of its heads are means.

    Rows may be added in blocks, so that a long map need not be in memory. Rows that attend to
    nothing do not count.

    >>> map = torch.tensor([[0.5, 0.5], [1.0, 0.0]])
    >>> sums = HeadSums(map.shape).add(map[:1]).add(map[1:])
    >>> sums.entropy, sums.sink, sums.share(-1)
    (tensor(0.3466, dtype=torch.float64), tensor(0.7500, dtype=torch.float64), \
tensor(1., dtype=torch.float64))

    Args:
        shape: of the whole map, (..., M, N)
        sinks: positions of keys whose weight is summed
        offsets: of the neighbours whose weight is summed, see `offset_share`
    """

    def __init__(
        self, shape: Sequence[int], *, sinks: Sequence[int] = (0,), offsets: Sequence[int] = (-1, 1)
    ) -> None:
        *leading, self.queries, self.keys = shape
        wrong = [sink for sink in sinks if not -self.keys <= sink < self.keys]
        if wrong:
            raise ValueError(f"there are {self.keys} keys, so none at {wrong}")
        self.sinks = sorted({sink % self.keys for sink in sinks})
        self.added = 0
        zeros = torch.zeros(leading, dtype=torch.float64)
        self._rows = self._entropy = self._sink = self._away = self._chance = zeros
        self._beside = dict.fromkeys(offsets, (zeros, zeros))  # weight, rows

    def add(self, weights: Tensor) -> "HeadSums":
        """Add the next rows, (..., rows, N)."""
        weights = weights.clamp(min=0)
        row = torch.arange(self.added, self.added + weights.shape[-2])
        self.added += len(row)
        real = weights.sum(-1) > 0  # (..., rows)
        column = (torch.arange(self.keys) + 0.5) / max(self.keys, 1)
        distance = ((row[:, None] + 0.5) / max(self.queries, 1) - column).abs().to(weights)
        self._rows = self._rows + real.sum(-1)
        self._entropy = self._entropy + torch.special.entr(weights).sum((-2, -1))
        self._sink = self._sink + weights[..., self.sinks].sum((-2, -1))
        self._away = self._away + torch.einsum("...rn,rn->...", weights, distance)
        self._chance = self._chance + real.to(weights.dtype) @ distance.mean(-1)
        for offset, (weight, count) in self._beside.items():
            key = row + offset
            some = ((key >= 0) & (key < self.keys)).nonzero()[:, 0]
            found = weights[..., some, key[some]].sum(-1)
            self._beside[offset] = weight + found, count + real[..., some].sum(-1)
        return self

    @property
    def entropy(self) -> Tensor:
        """The mean entropy of the rows, (...), see `entropy`."""
        return self._entropy / self._rows.clamp(min=1)

    @property
    def sink(self) -> Tensor:
        """The mean weight of the sinks, (...), see `sink_mass`."""
        return self._sink / self._rows.clamp(min=1)

    @property
    def diagonality(self) -> Tensor:
        """How near to the diagonal the weights are, (...), see `diagonality`."""
        near = 1 - self._away / self._chance.clamp(min=1e-12)
        return torch.where(self._chance > 0, near, torch.ones_like(near))

    def share(self, offset: int) -> Tensor:
        """The mean weight of the key at an offset, (...), see `offset_share`."""
        weight, count = self._beside[offset]
        return weight / count.clamp(min=1)


def entropy(weights: Tensor) -> Tensor:
    """The mean entropy of the rows, −Σ w ln w, in nats.

    0 attends to one key, ln N to all N keys alike; e^entropy is about the number of keys.

    >>> entropy(torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
    tensor(0.3466, dtype=torch.float64)

    Args:
        weights: (..., M, N)

    Returns: (...)
    """
    return _sums(weights, sinks=()).entropy


def sink_mass(weights: Tensor, sinks: Sequence[int] = (0,)) -> Tensor:
    """The mean weight that queries give to some keys: by default, the first one.

    Heads with nothing to do attend to a token without meaning: the first, [CLS] or [SEP]. Clark et
    al. 2019, section 3.2; Xiao et al. 2024 call it an attention sink.

    >>> sink_mass(torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.25, 0.25]]))
    tensor(0.7500, dtype=torch.float64)

    Args:
        weights: (..., M, N)
        sinks: positions of keys

    Returns: (...), from 0 to 1
    """
    return _sums(weights, sinks=sinks).sink


def diagonality(weights: Tensor) -> Tensor:
    """How near to the diagonal the weights are: 1 on it, 0 as far as uniform attention.

        1 − Σᵢⱼ wᵢⱼ dᵢⱼ / Σᵢⱼ (1/N) dᵢⱼ,  dᵢⱼ = |(i + ½) / M − (j + ½) / N|

    It is below 0 where attention is farther away than chance. M and N may differ: the diagonal
    goes from corner to corner.

    >>> diagonality(torch.eye(3)), diagonality(torch.full((2, 4), 0.25))
    (tensor(1., dtype=torch.float64), tensor(0., dtype=torch.float64))

    Args:
        weights: (..., M, N)

    Returns: (...)
    """
    return _sums(weights, sinks=()).diagonality


def offset_share(weights: Tensor, offset: int) -> Tensor:
    """The mean weight of the key `offset` places after the query's own, of queries that have one.

    −1 is the previous token, 0 the query's own, 1 the next. For self-attention, or keys in step
    with the queries.

    >>> offset_share(torch.tensor([[1.0, 0.0], [0.9, 0.1]]), -1)
    tensor(0.9000, dtype=torch.float64)

    Args:
        weights: (..., M, N)

    Returns: (...), from 0 to 1
    """
    return _sums(weights, sinks=(), offsets=(offset,)).share(offset)


def similarity(weights: Tensor) -> Tensor:
    """How similar heads are: 1 − JS(a ‖ b) / ln 2, averaged over the queries.

    The Jensen–Shannon divergence between the rows of two heads, as in Clark et al. 2019, section 6.
    1 means equal rows, 0 no key in common.

    >>> similarity(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0]]]))
    tensor([[1., 0., 1.],
            [0., 1., 0.],
            [1., 0., 1.]], dtype=torch.float64)

    Args:
        weights: (heads, M, N), of one layer or of several with the same queries and keys

    Returns: (heads, heads)
    """
    if weights.dim() != 3:
        raise ValueError(f"weights should be (heads, M, N), got {tuple(weights.shape)}")
    weights = checked(weights)
    entropies = torch.special.entr(weights).sum(-1)  # (heads, M)
    found = torch.ones(len(weights), len(weights), dtype=torch.float64, device=weights.device)
    for head, own in enumerate(weights):  # one against all: heads² maps never exist at once
        middle = torch.special.entr((own + weights) / 2).sum(-1)  # (heads, M)
        divergence = middle - (entropies[head] + entropies) / 2
        found[head] = 1 - divergence.mean(-1) / math.log(2)
    return found


def redundancy(weights: Tensor) -> Tensor:
    """The similarity of each head to the head it is most similar to, see `similarity`.

    >>> redundancy(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0]]]))
    tensor([1., 0., 1.], dtype=torch.float64)

    Args:
        weights: (heads, M, N) with 2 heads or more

    Returns: (heads,), from 0 to 1
    """
    if weights.dim() != 3 or len(weights) < 2:
        raise ValueError(
            f"redundancy compares heads: (2 or more, M, N), got {tuple(weights.shape)}"
        )
    found = similarity(weights)
    return found.fill_diagonal_(-math.inf).amax(-1)


class HeadDiagnostics(NamedTuple):
    """The statistics of a head."""

    name: str
    head: int
    entropy: float  # nats
    sink: float  # share of the weight on the sinks
    diagonality: float  # 1 on the diagonal, 0 as uniform attention
    previous: float  # share of the weight on the token before
    next: float  # share of the weight on the token after
    redundancy: float  # 1 if another head of the layer does the same; 0 for a single head


def diagnose(trace: Trace, *, sinks: Sequence[int] = (0,)) -> list[HeadDiagnostics]:
    """The statistics of each head of a trace of one example.

    >>> trace = Trace.of_maps({"self": torch.eye(3).repeat(2, 1, 1)}, queries=list("abc"))
    >>> diagnose(trace)[1].diagonality, diagnose(trace)[1].redundancy
    (1.0, 1.0)

    Args:
        trace: of one example: `trace.of(0)`
        sinks: positions of keys without meaning, such as [CLS] and [SEP]; others are ignored
    """
    found = []
    for call in trace.calls:
        if call.batch is not None:
            raise ValueError("diagnose takes a trace of one example, such as trace.of(0)")
        weights = call.map.dense()
        N = call.shape[-1]
        sums = _sums(weights, sinks=[sink for sink in sinks if -N <= sink < N])
        alike = redundancy(weights) if call.heads > 1 else weights.new_zeros(1)
        columns = (sums.entropy, sums.sink, sums.diagonality, sums.share(-1), sums.share(1), alike)
        for head in range(call.heads):
            found.append(HeadDiagnostics(call.name, head, *(float(c[head]) for c in columns)))
    return found


def rollout(layers: Sequence[Tensor], *, residual: float = 0.5) -> Tensor:
    """Attention rollout: the product of the layers' maps, each mixed with its residual connection.

        R⁽ˡ⁾ = (r I + (1 − r) Ā⁽ˡ⁾) R⁽ˡ⁻¹⁾,  R⁽⁰⁾ = I

    Abnar & Zuidema 2020, section 3, with Ā the mean over heads and r = ½ for the residual
    connection. Rows are normalized, so that a query that attends to nothing keeps itself.

    >>> swap = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
    >>> rollout([swap, swap])
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]], dtype=torch.float64)

    Args:
        layers: self-attention (heads, N, N) of each layer, the first layer first
        residual: r, the share of the residual connection, from 0 to 1

    Returns: (N, N): the share of each input in each position after all layers; rows sum to one
    """
    if not layers:
        raise ValueError("rollout needs the map of one layer or more")
    if not 0.0 <= residual <= 1.0:
        raise ValueError(f"residual is a share, from 0 to 1, got {residual}")
    N = layers[0].shape[-1]
    one = torch.eye(N, dtype=torch.float64, device=layers[0].device)
    seen = one
    for number, layer in enumerate(layers):
        if layer.dim() != 3 or layer.shape[-2:] != (N, N):
            raise ValueError(
                f"rollout follows self-attention (heads, {N}, {N}), layer {number} is "
                f"{tuple(layer.shape)}"
            )
        mixed = (1 - residual) * checked(layer).mean(0) + residual * one
        total = mixed.sum(-1, keepdim=True)
        seen = torch.where(total > 0, mixed / total.clamp(min=1e-12), one) @ seen
    return seen


def _sums(weights: Tensor, **options: Sequence[int]) -> HeadSums:
    weights = checked(weights).cpu()
    return HeadSums(weights.shape, **options).add(weights)
