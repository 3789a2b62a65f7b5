"""Positions: attention itself is independent of the order of its inputs.

A position object has three methods, called by layers and models. In `Position` they do nothing;
each class below, and `Rotary` in its own file, overrides one of them:

| class | `forward(x)` embeddings | `rotate(x)` queries, keys | `bias(M, N)` scores |
|---|---|---|---|
| Position | x | x | None |
| PositionalEncoding | x + sinusoids | x | None |
| Learned | x + parameters | x | None |
| Rotary | x | x, rotated by its position | None |
| ALiBi | x | x | −slope · distance |
| RelativeBias | x | x | a parameter for each bucket of distances |

A model calls `forward` on its embeddings once; an attention layer calls `rotate` on the
queries and keys of each head and adds `bias` to the scores. `offset` is the position of the
first row, for decoding step by step. Tables are computed at each call, which costs less than one
addition to a batch, so that no buffer depends on a length. Angles are computed in float64: float32
loses 1e-4 of an angle at position 1000.

To add one, derive from `Position` and override the method it needs.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.layers.checks import check_sizes


class Position(nn.Module):
    """No positions: every method returns its argument. The default of attention layers."""

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """Embeddings (..., L, dim) with positions offset … offset + L − 1 added."""
        return x

    def rotate(self, x: Tensor, offset: int = 0) -> Tensor:
        """Queries or keys of a head (..., L, dim), rotated by their positions."""
        return x

    def bias(
        self,
        M: int,
        N: int,
        offset: int | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Tensor | None:
        """The bias of the scores of M queries and N keys, (heads, M, N), or None."""
        return None


class PositionalEncoding(Position):
    """Add sinusoids of geometrically growing wavelength. Vaswani et al. 2017, section 3.5.

        PE(pos, 2i) = sin(pos / 10000^(2i/dim)),  PE(pos, 2i+1) = cos(pos / 10000^(2i/dim))

    Any length; with an odd width the last column is a sine without its cosine.

    >>> PositionalEncoding(3)(torch.zeros(2, 3))
    tensor([[0.0000, 1.0000, 0.0000],
            [0.8415, 0.5403, 0.0022]])

    Args:
        dim: width of the embeddings
        max_wavelength: the longest wavelength over 2π, 10000 in the paper
    """

    def __init__(self, dim: int, max_wavelength: float = 10000.0) -> None:
        super().__init__()
        check_sizes(dim=dim)
        self.dim = dim
        self.max_wavelength = positive("max_wavelength", max_wavelength)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        check_width(self, x, self.dim)
        angle = angles(x, self.dim, self.max_wavelength, offset)  # (L, ⌈dim/2⌉)
        table = torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)[..., : self.dim]
        return (x + table.to(at_least_float32(x))).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.dim}, max_wavelength={self.max_wavelength:g}"


class Learned(Position):
    """Add one learned vector per position. Gehring et al. 2017, section 3.1.

    >>> Learned(3, max_length=5)(torch.zeros(2, 4, 3)).shape
    torch.Size([2, 4, 3])

    Args:
        dim: width of the embeddings
        max_length: number of positions; a longer input is an error
    """

    def __init__(self, dim: int, max_length: int) -> None:
        super().__init__()
        check_sizes(max_length=max_length, dim=dim)
        self.weight = nn.Parameter(nn.init.normal_(torch.empty(max_length, dim), std=0.02))

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        max_length, dim = self.weight.shape
        check_width(self, x, dim)
        end = offset + x.shape[-2]
        if offset < 0 or end > max_length:
            raise ValueError(
                f"positions should be from 0 to {max_length - 1}, got {offset} to {end - 1}; build "
                f"Learned(dim={dim}, max_length={max(end, 1)}) or shorten the input"
            )
        return x + self.weight[offset:end].to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[1]}, max_length={self.weight.shape[0]}"


class ALiBi(Position):
    """Penalize each score by distance times a slope of the head. Press et al. 2022, section 3.

        bias(h, i, j) = −slope(h) · |i − j|

    With a power of two of heads, head h of n has the slope 2^(−8h/n), h = 1 … n. Other counts
    take the slopes of the next smaller power of two p, and for the remaining heads the 1st, 3rd,
    5th … slope of 2p heads, which lie between those. The distance is absolute, for keys before
    and after the query.

    >>> ALiBi(8).slopes[:3]
    (0.5, 0.25, 0.125)
    >>> ALiBi(1).bias(2, 3)  # the last query sits on the last key
    tensor([[[-0.0039,  0.0000, -0.0039],
             [-0.0078, -0.0039,  0.0000]]])

    Args:
        heads: number of heads
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        check_sizes(heads=heads)
        self.heads = heads
        power = 2 ** (heads.bit_length() - 1)
        between = _slopes(2 * power)[::2]
        self.slopes = (*_slopes(power), *between[: heads - power])

    def bias(
        self,
        M: int,
        N: int,
        offset: int | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """−slope · |i − j| for M queries and N keys.

        Args:
            M: number of queries; a block of rows has its own M and offset
            N: number of keys, at positions 0 … N − 1
            offset: position of the first query, by default N − M: the last one on the last key
            dtype: of the result, torch's default if not given

        Returns: (heads, M, N)
        """
        offset = N - M if offset is None else offset
        dtype = torch.get_default_dtype() if dtype is None else dtype
        exact = torch.promote_types(dtype, torch.float32)  # float16 has integers up to 2048 only
        query = torch.arange(offset, offset + M, device=device)
        key = torch.arange(N, device=device)
        nearness = (-(key - query.unsqueeze(-1)).abs()).to(exact)  # (M, N)
        slopes = torch.tensor(self.slopes, device=device, dtype=exact).view(-1, 1, 1)
        return (nearness * slopes).to(dtype)

    def extra_repr(self) -> str:
        return str(self.heads)


class RelativeBias(Position):
    """Add a learned number for the distance of key and query, by bucket. Raffel et al. 2020, 2.1.

        bias(h, i, j) = weight[bucket(j − i), h]

    Half of the buckets hold one distance each; the others grow with the logarithm of the distance
    up to `max_distance`, and the last has all beyond. As in T5, layers may share one of these.

    >>> RelativeBias(1, buckets=8, max_distance=20).bucket(torch.tensor([-30, -2, -1, 0, 1, 2, 30]))
    tensor([3, 2, 1, 0, 5, 6, 7])
    >>> RelativeBias(3).bias(2, 5).shape
    torch.Size([3, 2, 5])

    Args:
        heads: number of heads
        buckets: number of buckets, 32 in T5
        max_distance: from which on all distances are alike, 128 in T5
        bidirectional: whether keys after the query have buckets of their own, half of them; if
            not, they count as distance 0, as in a decoder, where they are hidden
    """

    def __init__(
        self,
        heads: int,
        buckets: int = 32,
        max_distance: int = 128,
        *,
        bidirectional: bool = True,
    ) -> None:
        super().__init__()
        check_sizes(heads=heads, buckets=buckets, max_distance=max_distance)
        exact = buckets // (4 if bidirectional else 2)
        if exact < 1 or max_distance <= exact:
            raise ValueError(
                f"{buckets} buckets have {exact} for single distances; that must be at least 1 and "
                f"below max_distance, which is {max_distance}"
            )
        self.heads, self.buckets, self.max_distance = heads, buckets, max_distance
        self.bidirectional = bidirectional
        self.weight = nn.Parameter(nn.init.normal_(torch.empty(buckets, heads), std=0.02))

    def bucket(self, distance: Tensor) -> Tensor:
        """The bucket of each distance j − i, any shape."""
        count = self.buckets // (2 if self.bidirectional else 1)
        far = -distance if not self.bidirectional else distance.abs()
        far = far.clamp(min=0)
        exact = count // 2
        # float32, as in T5: at the edge of a bucket the rounding decides
        growth = torch.log(far.clamp(min=1).float() / exact) / math.log(self.max_distance / exact)
        logarithmic = (exact + (growth * (count - exact)).long()).clamp(max=count - 1)
        own = torch.where(far < exact, far, logarithmic)
        return own + count * (distance > 0) if self.bidirectional else own

    def bias(
        self,
        M: int,
        N: int,
        offset: int | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """The bias of M queries and N keys, differentiable, as `ALiBi.bias`.

        Returns: (heads, M, N)
        """
        offset = N - M if offset is None else offset
        weight = self.weight.to(device=device, dtype=dtype)
        if not M or not N:
            return weight.new_zeros(self.heads, M, N)
        first = -(offset + M - 1)  # the last query and the first key
        distance = torch.arange(first, first + M + N - 1, device=weight.device)
        line = weight[self.bucket(distance)].T  # (heads, M + N − 1)
        # a window of the line for each query; `unfold` would fix its size in an exported graph
        windows = line.contiguous().as_strided((self.heads, M, N), (M + N - 1, 1, 1))
        return windows.flip(-2)

    def extra_repr(self) -> str:
        return (
            f"{self.heads}, buckets={self.buckets}, max_distance={self.max_distance}, "
            f"bidirectional={self.bidirectional}"
        )


def _slopes(heads: int) -> list[float]:
    return [2.0 ** (-8.0 * h / heads) for h in range(1, heads + 1)]


def angles(
    x: Tensor,
    dim: int,
    base: float,
    offset: int,
    change: Callable[[Tensor], Tensor] = lambda frequency: frequency,
) -> Tensor:
    """pos · base^(−2i/dim) for the rows of x, (L, ⌈dim/2⌉); `change` scales the frequencies."""
    dtype = torch.float32 if x.device.type == "mps" else torch.float64  # mps has no float64
    position = torch.arange(offset, offset + x.shape[-2], device=x.device, dtype=dtype)
    exponent = torch.arange(0, dim, 2, device=x.device, dtype=dtype) / dim
    return torch.outer(position, change(torch.exp(exponent * -math.log(base))))


def at_least_float32(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def check_width(position: Position, x: Tensor, dim: int) -> None:
    if x.dim() < 2 or x.shape[-1] != dim:
        raise ValueError(
            f"{type(position).__name__} of width {dim} expects (..., length, {dim}), "
            f"got {tuple(x.shape)}"
        )
    if not x.is_floating_point():
        raise TypeError(
            f"{type(position).__name__} expects embeddings in a floating type, got {x.dtype}; "
            f"embed the tokens first"
        )


def positive(name: str, value: float) -> float:
    if not value > 0:
        raise ValueError(f"{name} must be above 0, got {value}")
    return float(value)
