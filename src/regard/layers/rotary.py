"""Rotary positions, and how their frequencies are scaled to reach beyond the length of training.

A model that was trained on positions up to L reaches s · L with frequencies
θᵢ = base^(−2i/dim) changed to

| scaling | frequency | source |
|---|---|---|
| LinearScaling | θᵢ / s | Chen et al. 2023, eq. 4 |
| NTKScaling | (base · s^(dim/(dim−2)))^(−2i/dim) | Peng et al. 2024, definition 1 |
| YaRN | θᵢ / s where the wave is long, θᵢ where it is short | Peng et al. 2024, definition 2, 3 |
"""

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from regard.layers.checks import check_sizes
from regard.layers.position import Position, angles, at_least_float32, check_width, positive


class Scaling:
    """No scaling. Those below override its method."""

    magnitude = 1.0
    """By which rotated queries and keys grow; the scores grow by its square."""

    def frequencies(self, frequency: Tensor, base: float) -> Tensor:
        """The scaled frequencies of base^(−2i/dim), i = 0 … dim/2 − 1, (dim/2,)."""
        return frequency


@dataclass(frozen=True)
class LinearScaling(Scaling):
    """All positions closer together by a factor: θᵢ / s. Chen et al. 2023, eq. 4."""

    factor: float

    def __post_init__(self) -> None:
        positive("factor", self.factor)

    def frequencies(self, frequency: Tensor, base: float) -> Tensor:
        return frequency / self.factor


@dataclass(frozen=True)
class NTKScaling(Scaling):
    """The lowest frequency divided by the factor, the highest kept: a larger base.

    base · s^(dim/(dim−2)), which multiplies θᵢ by s^(−2i/(dim−2)). Peng et al. 2024, definition 1.
    """

    factor: float

    def __post_init__(self) -> None:
        positive("factor", self.factor)

    def frequencies(self, frequency: Tensor, base: float) -> Tensor:
        count = len(frequency)  # dim / 2
        index = torch.arange(count, device=frequency.device, dtype=frequency.dtype)
        return frequency * self.factor ** (-index / max(count - 1, 1))


@dataclass(frozen=True)
class YaRN(Scaling):
    """Long waves scaled by the factor, short ones kept, and scores sharpened. Peng et al. 2024.

    A wave that turns fewer than `slow` times within the length of training is divided by s, one
    that turns more than `fast` times is kept; between these the share goes linearly with i, as in
    the authors' code (`find_correction_range`). Queries and keys grow by 0.1 ln s + 1, eq. 22.

    Args:
        factor: s, how much longer sequences are than those of training
        length: L, of the sequences of training
        fast, slow: β and α of the paper
    """

    factor: float
    length: int
    fast: float = 32.0
    slow: float = 1.0

    def __post_init__(self) -> None:
        check_sizes(length=self.length)
        positive("factor", self.factor)
        if not 0 < self.slow < self.fast:
            raise ValueError(f"slow must be between 0 and fast={self.fast}, got {self.slow}")

    @property
    def magnitude(self) -> float:  # type: ignore[override]
        return 0.1 * math.log(max(self.factor, 1.0)) + 1.0

    def frequencies(self, frequency: Tensor, base: float) -> Tensor:
        count = len(frequency)  # dim / 2

        def index_of(turns: float) -> float:
            """The i whose wave turns so many times within the length of training."""
            return count * math.log(self.length / (2 * math.pi * turns)) / math.log(base)

        low = max(math.floor(index_of(self.fast)), 0)
        high = min(math.ceil(index_of(self.slow)), 2 * count - 1)
        index = torch.arange(count, device=frequency.device, dtype=frequency.dtype)
        scaled = ((index - low) / max(high - low, 0.001)).clamp(0, 1)
        return frequency * (1 - scaled) + frequency / self.factor * scaled


class Rotary(Position):
    """Rotate each pair of features by an angle proportional to the position. Su 2021, eq. 15.

        (x₂ᵢ + j·x₂ᵢ₊₁) · e^(j · pos · base^(−2i/dim))

    Norms do not change, and the dot product of a rotated query at m and key at n depends on
    m − n only. A `scaling` changes the frequencies, for positions beyond those of training.

    >>> Rotary(2).rotate(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    tensor([[1.0000, 0.0000],
            [0.5403, 0.8415]])

    Args:
        dim: width of one head, even
        base: the longest wavelength over 2π, 10000 in the paper
        rotated: how many features are rotated, the first ones; all if None. Black et al. 2022
            (GPT-NeoX), section 2.1.1, rotate a quarter
        scaling: `LinearScaling`, `NTKScaling`, `YaRN`, or an object like these
    """

    def __init__(
        self,
        dim: int,
        base: float = 10000.0,
        *,
        rotated: int | None = None,
        scaling: "Scaling | None" = None,
    ) -> None:
        super().__init__()
        rotated = dim if rotated is None else rotated
        check_sizes(dim=dim, rotated=rotated)
        if rotated > dim:
            raise ValueError(f"rotated must be at most dim={dim}, got {rotated}")
        if rotated % 2:
            name, wider = ("dim", "a head width of ") if rotated == dim else ("rotated", "")
            raise ValueError(
                f"Rotary rotates pairs of features, so {name} must be even, got {rotated}; "
                f"use {wider}{rotated - 1} or {rotated + 1}"
            )
        self.dim, self.rotated, self.scaling = dim, rotated, scaling
        self.base = positive("base", base)

    def rotate(self, x: Tensor, offset: int = 0) -> Tensor:
        check_width(self, x, self.dim)
        if self.rotated < self.dim:
            turned, rest = x.split((self.rotated, self.dim - self.rotated), -1)
            return torch.cat((self._turn(turned, offset), rest), -1)
        return self._turn(x, offset)

    def _turn(self, x: Tensor, offset: int) -> Tensor:
        scaling = Scaling() if self.scaling is None else self.scaling
        change = partial(scaling.frequencies, base=self.base)
        angle = angles(x, self.rotated, self.base, offset, change)  # (L, rotated/2)
        dtype = at_least_float32(x)
        cos, sin = ((scaling.magnitude * t).to(dtype) for t in (angle.cos(), angle.sin()))
        pairs = x.to(dtype).unflatten(-1, (-1, 2))  # (..., L, rotated/2, 2)
        if torch.compiler.is_compiling():  # a compiler fuses real numbers, but not complex ones
            a, b = pairs.unbind(-1)
            rotated = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1)
        else:  # one complex product is six times as fast as four real ones
            rotated = torch.view_as_real(_as_complex(pairs) * torch.complex(cos, sin))
        return rotated.flatten(-2).to(x.dtype)

    def extra_repr(self) -> str:
        rotated = "" if self.rotated == self.dim else f", rotated={self.rotated}"
        scaling = "" if self.scaling is None else f", scaling={self.scaling}"
        return f"{self.dim}, base={self.base:g}{rotated}{scaling}"


def _as_complex(pairs: Tensor) -> Tensor:
    """Pairs (..., 2) as complex numbers; copied where their memory layout requires it."""
    odd = any(stride % 2 for stride in pairs.stride()[:-1]) or pairs.storage_offset() % 2
    if odd or pairs.stride(-1) != 1:
        pairs = pairs.clone(memory_format=torch.contiguous_format)
    return torch.view_as_complex(pairs)
