"""Masks of layers: over (batch, M, N) outside and (batch, heads, M, N) inside; padding; and maps.

A mask of three dimensions given to a layer is (batch, M, N), the same for all heads. Grouped-query
attention runs over (batch, key heads, group), where masks and biases are over (batch, heads).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from regard.core.key_range import KeyRange
from regard.core.map import AttentionMap
from regard.core.mask import Grid, Mask, as_mask, lengths
from regard.core.mask.algebra import And, Not, Visible
from regard.core.mask.padding import Padding
from regard.core.request import is_moderate, zero_hidden
from regard.core.shapes import fits


class GroupedMask(Mask):
    """A mask over (batch, heads), for attention over (batch, key heads, group)."""

    leading = 3

    def __init__(self, mask: Mask, groups: tuple[int, int]) -> None:
        self.mask, self.groups = mask, groups

    def check(self, grid: Grid) -> None:
        self.mask.check(self._flat(grid))

    def block(self, rows: slice, keys: slice, grid: Grid) -> Tensor:
        return split_heads(self.mask.block(rows, keys, self._flat(grid)), self.groups, 2)

    def key_range(self, grid: Grid) -> KeyRange:
        low, high, full = self.mask.key_range(self._flat(grid))
        full = split_heads(full, self.groups, 1) if isinstance(full, Tensor) else full
        return KeyRange(split_heads(low, self.groups, 1), split_heads(high, self.groups, 1), full)

    def ignores_queries(self) -> bool:
        return self.mask.ignores_queries()

    def tensors(self) -> tuple[Tensor, ...]:
        return self.mask.tensors()

    def _flat(self, grid: Grid) -> Grid:
        return grid._replace(leading=grid.leading - 1)

    def __repr__(self) -> str:
        return repr(self.mask)


def split_heads(tensor: Tensor, groups: tuple[int, int], tail: int) -> Tensor:
    """(..., heads or 1, *tail) to (..., key heads, group, *tail); `tail` is the number of dims."""
    if tensor.dim() <= tail:
        return tensor
    dim = tensor.dim() - tail - 1
    return tensor.unsqueeze(dim) if tensor.shape[dim] == 1 else tensor.unflatten(dim, groups)


def mask_over_heads(mask: Mask | Tensor) -> Mask:
    """The mask of a layer as one over (batch, heads): (batch, M, N) is the same for all heads.

    >>> mask_over_heads(torch.ones(2, 3, 5, dtype=torch.bool)).tensors()[0].shape
    torch.Size([2, 1, 3, 5])
    """
    if isinstance(mask, And):  # and Or
        return type(mask)(mask_over_heads(mask.left), mask_over_heads(mask.right))
    if isinstance(mask, Not):
        return Not(mask_over_heads(mask.mask))
    if not isinstance(mask, Mask):
        mask = as_mask(mask)
    if type(mask) is Visible and mask.tensor.dim() == 3:
        return Visible(mask.tensor.unsqueeze(1), borrowed=mask.borrowed)
    return mask


def zero_hidden_inputs(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The inputs of a layer after `zero_hidden`; themselves if nothing can overflow.

    A projection would carry NaN and inf from there into its own gradient: 0 · NaN is NaN.

    Args:
        query, key, value: (batch, length, width)
        mask: over (batch, heads)
    """
    if mask is None or all(map(is_moderate, {query, key, value})):
        return query, key, value
    grid = Grid(query.shape[-2], key.shape[-2], 2, query.device)
    mask.check(grid)
    query, key, value = zero_hidden(
        query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1), mask, grid
    )
    return query.squeeze(1), key.squeeze(1), value.squeeze(1)


def ungrouped_map(map: AttentionMap) -> AttentionMap:
    """A map (batch, kv_heads, group, M, N) as (batch, heads, M, N), as lazy as before."""
    batch, kv_heads, group, *size = map.shape
    return map.changed(lambda rows: rows.flatten(1, 2), (batch, kv_heads * group, *size))


def computed_map(
    map: AttentionMap, change: Callable[[Tensor], Tensor] = lambda x: x
) -> AttentionMap:
    """The map of a step, computed now: later steps may overwrite its keys."""
    return AttentionMap.of(change(map.dense()), change(map.scores.dense()))


def padding_mask(real: Mask | Tensor | None, x: Tensor, name: str = "mask") -> Mask | None:
    """Which positions of x are real, as a mask that hides the others.

    >>> padding_mask(torch.tensor([1, 3]), torch.zeros(2, 3, 5)).dense(1, 3).int()
    tensor([[[1, 0, 0]],
    <BLANKLINE>
            [[1, 1, 1]]], dtype=torch.int32)

    Args:
        real: how many positions are real, integers (...,); or which, bool (..., L) with
            True = real; or a Mask that is the same for all queries
        x: (..., L, dim)
        name: of `real`, for errors
    """
    if real is None or isinstance(real, Mask):
        return real
    if not isinstance(real, Tensor) or real.is_floating_point():
        kind = real.dtype if isinstance(real, Tensor) else type(real).__name__
        raise TypeError(
            f"{name} should be bool (True = real) or integers (how many are real), got {kind}"
        )
    boolean = real.dtype == torch.bool
    shape = x.shape[:-1] if boolean else x.shape[:-2]
    if real.shape != shape:
        meaning = "which positions are real" if boolean else "how many positions are real"
        raise ValueError(
            f"{name}, {meaning}, should be {tuple(shape)} for an input of shape "
            f"{tuple(x.shape)}, got {tuple(real.shape)}"
        )
    return Padding(real) if boolean else lengths(real)


def zero_padding(x: Tensor, mask: Mask | None) -> Tensor:
    """x (..., L, dim) with zeros at padding: NaN there reaches no output and no gradient."""
    if mask is None:
        return x
    grid = Grid(1, x.shape[-2], x.dim() - 2, x.device)
    mask.check(grid)
    seen = mask.seen(grid)  # (..., L)
    if not fits(seen.shape, x.shape[:-1]):
        raise ValueError(
            f"{mask} is for sequences {tuple(seen.shape)} and does not fit {tuple(x.shape)}"
        )
    return torch.where(seen.unsqueeze(-1), x, 0.0)
