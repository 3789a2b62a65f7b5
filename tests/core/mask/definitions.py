"""What a mask shows, cell by cell."""

from collections.abc import Callable

import torch
from hypothesis import strategies as st
from torch import Tensor

from regard.core.mask import Mask

CPU = torch.device("cpu")
B = H = 3  # as many heads as sequences, so that a swapped axis shows
Cell = Callable[[int, int, int, int], bool]
"""Whether, in sequence b and head h, query i sees key j."""


def table(cell: Cell, queries: int, keys: int) -> Tensor:
    """The definition, cell by cell: bool (B, H, M, N)."""
    cells = [
        cell(b, h, i, j)
        for b in range(B)
        for h in range(H)
        for i in range(queries)
        for j in range(keys)
    ]
    return torch.tensor(cells, dtype=torch.bool).view(B, H, queries, keys)


def dense(mask: Mask, queries: int, keys: int) -> Tensor:
    return mask.dense(queries, keys, leading=2).expand(B, H, queries, keys)


def random_bits(draw: st.DrawFn, *shape: int) -> Tensor:
    seed = draw(st.integers(0, 2**31))
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) > 0.4
