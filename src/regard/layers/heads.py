"""Between the border of a layer, (batch, length, dim), and its heads: masks, maps and inputs.

At the border a mask of three dimensions is (batch, M, N): it belongs to sequences, not to heads.
Grouped-query attention runs over (batch, key heads, group), where a mask or bias of the layer is
over (batch, heads).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from regard.core.blocks import in_functorch
from regard.core.key_range import KeyRange
from regard.core.map import AttentionMap
from regard.core.mask import Grid, Mask, visible
from regard.core.mask.algebra import And, Not, Visible
from regard.core.score import precise


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
    """(..., heads or 1, *tail) to (..., key heads, group, *tail), or ones; tail counts dims."""
    if tensor.dim() <= tail:
        return tensor
    dim = tensor.dim() - tail - 1
    return tensor.unsqueeze(dim) if tensor.shape[dim] == 1 else tensor.unflatten(dim, groups)


def mask_over_heads(mask: Mask | Tensor) -> Mask:
    """A mask of the border as one over (batch, heads): (batch, M, N) is the same for all heads.

    >>> mask_over_heads(torch.ones(2, 3, 5, dtype=torch.bool)).tensors()[0].shape
    torch.Size([2, 1, 3, 5])
    """
    if isinstance(mask, And):  # and Or
        return type(mask)(mask_over_heads(mask.left), mask_over_heads(mask.right))
    if isinstance(mask, Not):
        return Not(mask_over_heads(mask.mask))
    if not isinstance(mask, Mask):
        mask = visible(mask)
    if type(mask) is Visible and mask.tensor.dim() == 3:
        return Visible(mask.tensor.unsqueeze(1))
    return mask


def without_hidden(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The inputs with zeros where no query sees the key, and where a query sees no key.

    A projection would carry NaN from there into its own gradient, 0 · NaN. Finite inputs stay
    as they are.

    Args:
        query, key, value: (batch, length, width)
        mask: over (batch, heads)
    """
    if mask is None:
        return query, key, value
    if not torch.compiler.is_compiling() and not in_functorch():
        distinct = {id(tensor): tensor for tensor in (query, key, value)}.values()
        total = sum(t.detach().sum(dtype=precise(t.dtype)) for t in distinct)
        if bool(torch.isfinite(torch.as_tensor(total))):
            return query, key, value
    grid = Grid(query.shape[-2], key.shape[-2], 2, query.device)
    mask.check(grid)
    seeing, seen = _any_head(mask.seeing(grid)), _any_head(mask.seen(grid))
    return (
        torch.where(seeing, query, 0.0),
        torch.where(seen, key, 0.0),
        torch.where(seen, value, 0.0),
    )


def ungrouped_map(map: AttentionMap) -> AttentionMap:
    """A map (batch, kv_heads, group, M, N) as (batch, heads, M, N), as lazy as before."""
    batch, kv_heads, group, *size = map.shape

    def weights(rows: slice) -> Tensor:
        return map[..., rows, :].flatten(1, 2)

    def scores(rows: slice) -> Tensor:
        return map.scores[..., rows, :].flatten(1, 2)

    return AttentionMap(weights, scores, (batch, kv_heads * group, *size))


def computed_map(
    map: AttentionMap, change: Callable[[Tensor], Tensor] = lambda x: x
) -> AttentionMap:
    """The map of a step, computed at once: later steps write where its keys lie."""
    weights, scores = change(map.dense()), change(map.scores.dense())

    return AttentionMap(
        lambda rows: weights[..., rows, :], lambda rows: scores[..., rows, :], weights.shape
    )


def _any_head(shown: Tensor) -> Tensor:
    """(batch or 1, heads or 1, length) to (batch or 1, length, 1)."""
    return (shown.any(1) if shown.dim() == 3 else shown).unsqueeze(-1)
