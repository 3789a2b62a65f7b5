"""Noise as a function of (seed, position): the same draw on every path, in any block.

A random number generator returns numbers in the order of the calls, so a path that works in
blocks, a backward pass and a lazy map would each get other noise. Here each cell (i, j) of the map
hashes its own position: the noise of any block can be made at any time.
"""

import math

import torch
from torch import Tensor

DROPOUT, GUMBEL = 1, 2  # streams: one call may need both


def draw_seed(device: torch.device) -> Tensor:
    """A seed from torch's generator, so that `torch.manual_seed` repeats the noise."""
    return torch.randint(2**62, (), dtype=torch.int64, device=device)


def kept(
    seed: Tensor, probability: float, leading: tuple[int, ...], rows: slice, size: tuple[int, int]
) -> Tensor:
    """Which weights dropout keeps, for a block of query rows: bool (*leading, rows, N).

    Args:
        probability: of being dropped
        leading: the leading dimensions of the map
        rows: which of the M queries, with start and stop
        size: (M, N) of the whole map
    """
    threshold = min(round(probability * 2**32), 2**32 - 1) - 2**31
    return _hash(seed, DROPOUT, leading, rows, size) >= threshold


def uniform(seed: Tensor, leading: tuple[int, ...], rows: slice, size: tuple[int, int]) -> Tensor:
    """Noise in (0, 1) for a block of query rows: float32 (*leading, rows, N)."""
    # the upper 23 bits: with the half between them, as many as float32 has, so that nothing
    # is rounded to 1
    bits = _shift(_hash(seed, GUMBEL, leading, rows, size), 9)
    return (bits.to(torch.float32) + 0.5) / 2**23


def _hash(
    seed: Tensor, stream: int, leading: tuple[int, ...], rows: slice, size: tuple[int, int]
) -> Tensor:
    """32 random bits per cell as int32: a · c + b with random a, b of its row and c of its column.

    Carter & Wegman 1979, mixed once more, since the lower bits of such a product are poor. Cells
    are many and are gone over few times; rows and columns are few and are hashed well.
    """
    length, width = size
    device = seed.device
    row = torch.arange(math.prod(leading), device=device).unsqueeze(-1) * length
    row = row + torch.arange(rows.start, rows.stop, device=device)
    row = row.view(*leading, rows.stop - rows.start, 1) * 8 + stream
    column = _mix64(torch.arange(width, device=device) * 8 + stream + 4 + seed)
    slope, start = _mix64(row + seed) | 1, _mix64(~row + seed)
    cell = slope.to(torch.int32) * column.to(torch.int32)  # the only passes over all cells
    cell += start.to(torch.int32)
    cell ^= cell >> 15
    cell *= -1028477387
    return cell


def _mix64(x: Tensor) -> Tensor:
    """Steele et al. 2014's SplitMix64 finalizer; int64 multiplication wraps around."""
    x = (x ^ (x >> 30)) * -4658895280553007687  # arithmetic shifts mix as well as logical ones
    x = (x ^ (x >> 27)) * -7723592293110705685
    return x ^ (x >> 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """A logical right shift of int32."""
    return (x >> bits) & ((1 << (32 - bits)) - 1)
