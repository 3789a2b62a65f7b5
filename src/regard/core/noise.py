"""Noise as a function of (seed, position): the same draw on every path, in any block.

A random number generator returns numbers in the order of the calls, so a path that works in
blocks, a backward pass and a lazy map would each get other noise. Here each cell (i, j) of the map
hashes its own position: the noise of any block can be made at any time.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

DROPOUT, GUMBEL = 1, 2  # streams: one call may need both
CACHED = 1 << 17  # cells that are hashed at a time: half a megabyte


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
    return _hashed(seed, DROPOUT, leading, rows, size, lambda bits: bits >= threshold)


def uniform(seed: Tensor, leading: tuple[int, ...], rows: slice, size: tuple[int, int]) -> Tensor:
    """Noise in (0, 1) for a block of query rows: float32 (*leading, rows, N)."""

    def between(bits: Tensor) -> Tensor:
        # the upper 23 bits: with the half between them, as many as float32 has, so that nothing
        # is rounded to 1
        return (_shift(bits, 9).to(torch.float32) + 0.5) / 2**23

    return _hashed(seed, GUMBEL, leading, rows, size, between)


def _hashed(
    seed: Tensor,
    stream: int,
    leading: tuple[int, ...],
    rows: slice,
    size: tuple[int, int],
    noise: Callable[[Tensor], Tensor],
) -> Tensor:
    """`noise` of 32 random bits per cell: a · c + b with random a, b of its row, c of its column.

    Carter & Wegman 1979, mixed once more, since the lower bits of such a product are poor. Cells
    are many and are gone over few times, in blocks that stay in the cache; rows and columns are
    few and are hashed well.
    """
    length, width = size
    device = seed.device
    row = torch.arange(math.prod(leading), device=device).unsqueeze(-1) * length
    row = row + torch.arange(rows.start, rows.stop, device=device)
    row = row.view(-1, 1) * 8 + stream
    column = _mix64(torch.arange(width, device=device) * 8 + stream + 4 + seed)
    slope, start, column = (
        t.to(torch.int32) for t in (_mix64(row + seed) | 1, _mix64(~row + seed), column)
    )
    step = len(row) if torch.compiler.is_compiling() else max(1, CACHED // max(width, 1))
    blocks = []
    for a, b in zip(slope.split(step), start.split(step), strict=True):
        cell = a * column  # the only passes over all cells
        cell += b
        cell ^= cell >> 15
        cell *= -1028477387
        blocks.append(noise(cell))
    return torch.cat(blocks).view(*leading, rows.stop - rows.start, width)


def _mix64(x: Tensor) -> Tensor:
    """Steele et al. 2014's SplitMix64 finalizer; int64 multiplication wraps around."""
    x = (x ^ (x >> 30)) * -4658895280553007687  # arithmetic shifts mix as well as logical ones
    x = (x ^ (x >> 27)) * -7723592293110705685
    return x ^ (x >> 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """A logical right shift of int32."""
    return (x >> bits) & ((1 << (32 - bits)) - 1)
