"""Noise as a function of (seed, position): the same draw on every path, in any block.

A random number generator hands out numbers in the order they are asked for, so a path that
works in blocks, a backward pass and a lazy map would each see other noise. Here each cell
(i, j) of the map hashes its own place: the noise of any block can be made at any time.
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
    """32 random bits per cell as int32, from one hash per row and one per column."""
    length, width = size
    device = seed.device
    count = math.prod(leading)
    row = torch.arange(count, device=device).unsqueeze(-1) * length
    row = row + torch.arange(rows.start, rows.stop, device=device)
    row_hash = _mix64(row.view(*leading, rows.stop - rows.start, 1) * 4 + stream + seed)
    column_hash = _mix64(~(torch.arange(width, device=device) * 4 + stream) + seed)
    return _mix32(row_hash.to(torch.int32) + column_hash.to(torch.int32))


def _mix64(x: Tensor) -> Tensor:
    """Steele et al. 2014's SplitMix64 finalizer; int64 multiplication wraps around."""
    x = (x ^ (x >> 30)) * -4658895280553007687  # arithmetic shifts mix as well as logical ones
    x = (x ^ (x >> 27)) * -7723592293110705685
    return (x ^ (x >> 31)) & 0x7FFFFFFF


def _mix32(x: Tensor) -> Tensor:
    """Appleby's MurmurHash3 finalizer: each input bit flips each output bit half of the time."""
    x = (x ^ _shift(x, 16)) * -2048144789
    x = (x ^ _shift(x, 13)) * -1028477387
    return x ^ _shift(x, 16)


def _shift(x: Tensor, bits: int) -> Tensor:
    """A logical right shift of int32."""
    return (x >> bits) & ((1 << (32 - bits)) - 1)
