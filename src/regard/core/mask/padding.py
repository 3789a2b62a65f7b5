"""Masks for sequences of different lengths."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.core import block_map as block_maps
from regard.core import key_range as ranges
from regard.core.block_map import BlockMap
from regard.core.blocks import can_inspect_values
from regard.core.key_range import KeyRange
from regard.core.mask.algebra import And, Grid, Mask, Visible, align, check_bool, check_leading
from regard.core.shapes import broadcast


class Lengths(Mask):
    """The first `keys` keys, for the first `queries` queries, of each sequence."""

    def __init__(self, keys: Tensor, queries: Tensor | None) -> None:
        self.keys, self.queries = keys, queries
        self.leading = max(keys.dim(), 0 if queries is None else queries.dim())
        self.longest = _longest(keys)
        self.longest_query = _longest(queries)

    def check(self, grid: Grid) -> None:
        check_leading(self, grid.leading)
        if self.longest > grid.keys:
            raise _too_long(self.longest, grid.keys, "keys")
        if self.longest_query > grid.queries:
            raise _too_long(self.longest_query, grid.queries, "queries")

    def block(self, rows: slice, keys: slice, grid: Grid) -> Tensor:
        key = torch.arange(keys.start, keys.stop, device=grid.device)
        seen = key < self._aligned(self.keys, grid, 2)
        if self.queries is None:
            return seen
        query = torch.arange(rows.start, rows.stop, device=grid.device).unsqueeze(-1)
        return seen & (query < self._aligned(self.queries, grid, 2))

    def spread(self, grid: Grid) -> torch.Size:
        own = [t.shape + (1,) * (grid.leading - t.dim()) for t in self.tensors()]
        return torch.Size(own[0]) if len(own) == 1 else broadcast(*own)

    def key_range(self, grid: Grid) -> KeyRange:
        high = self._aligned(self.keys, grid, 1)
        if self.queries is not None:
            query = torch.arange(grid.queries, device=grid.device)
            high = high * (query < self._aligned(self.queries, grid, 1))
        return ranges.interval(torch.zeros_like(high), high, grid.keys)

    def ignores_queries(self) -> bool:
        return self.queries is None

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.keys,) if self.queries is None else (self.keys, self.queries)

    def _aligned(self, counts: Tensor, grid: Grid, more: int) -> Tensor:
        """Counts (*leading, 1, …, 1) with `more` dimensions after the leading ones."""
        if counts.device != grid.device:
            counts = counts.to(grid.device)
        return counts.view(*counts.shape, *(1,) * (grid.leading + more - counts.dim()))

    def __repr__(self) -> str:
        return f"lengths(keys{tuple(self.keys.shape)}{'' if self.queries is None else ', queries'})"


def _too_long(longest: int, length: int, name: str) -> ValueError:
    return ValueError(
        f"lengths() has {longest} {name} but there are only {length}; lengths count the real "
        f"{name} of each sequence"
    )


def lengths(keys: Tensor | Sequence[int], queries: Tensor | Sequence[int] | None = None) -> Mask:
    """Padding: sequence b has `keys[b]` real keys and, if given, `queries[b]` real queries.

    >>> lengths(torch.tensor([1, 3])).dense(1, 3)
    tensor([[[ True, False, False]],
    <BLANKLINE>
            [[ True,  True,  True]]])

    Args:
        keys: integers (B,), lined up with the first leading dimension; (B, H) with the first two
        queries: the same for queries; those beyond see nothing and give zeros
    """
    return Lengths(_counts(keys), None if queries is None else _counts(queries))


class Padding(Visible):
    """Which keys of each sequence are real: bool (B, N), lined up with the first dimension."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__(tensor)
        self.leading = tensor.dim() - 1

    def check(self, grid: Grid) -> None:
        check_leading(self, grid.leading)
        if self.tensor.shape[-1] != grid.keys:
            raise ValueError(
                f"key_padding_mask of shape {tuple(self.tensor.shape)} does not fit "
                f"{grid.keys} keys; it should be (batch, {grid.keys})"
            )

    def spread(self, grid: Grid) -> torch.Size:
        return align(self.tensor, grid.leading, 1).shape[:-1]

    def block(self, rows: slice, keys: slice, grid: Grid) -> Tensor:
        return align(self.tensor.to(grid.device), grid.leading, 1)[..., None, keys]

    def key_range(self, grid: Grid) -> KeyRange:
        return ranges.of_rows(self.block(slice(0, 1), slice(0, grid.keys), grid))

    def block_map(self, grid: Grid, size: int) -> BlockMap:
        return block_maps.of_dense(self.block(slice(0, 1), slice(0, grid.keys), grid), size)

    def ignores_queries(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"padding{tuple(self.tensor.shape)}"


def from_torch_mha(
    attn_mask: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    *,
    heads: int | None = None,
) -> Mask | None:
    """Convert the masks of `nn.MultiheadAttention`, in which True = may NOT attend.

    >>> from_torch_mha(torch.tensor([[False, True]])).dense(1, 2)
    tensor([[ True, False]])

    Args:
        attn_mask: bool (M, N), or (B · heads, M, N) together with `heads`
        key_padding_mask: bool (B, N)

    Raises:
        TypeError: if one of them is a float tensor: that is a bias, pass it as `bias=`
    """
    parts: list[Mask] = []
    if attn_mask is not None:
        hidden = _boolean(attn_mask)
        if hidden.dim() == 3:
            if heads is None or hidden.shape[0] % heads:
                raise ValueError(
                    f"attn_mask {tuple(hidden.shape)} is (batch · heads, M, N): give heads=, a "
                    f"divisor of {hidden.shape[0]}"
                )
            hidden = hidden.unflatten(0, (-1, heads))
        parts.append(Visible(~hidden))
    if key_padding_mask is not None:
        parts.append(Padding(~_boolean(key_padding_mask)))
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else And(*parts)


def _boolean(tensor: Tensor) -> Tensor:
    return check_bool(tensor)


def _counts(counts: Tensor | Sequence[int]) -> Tensor:
    tensor = torch.as_tensor(counts)
    if tensor.dtype in (torch.bool, torch.uint8) or tensor.is_floating_point():
        raise TypeError(f"lengths() takes whole numbers, got {tensor.dtype}; try .long()")
    if tensor.numel() and can_inspect_values(tensor) and int(tensor.min()) < 0:
        raise ValueError(
            f"lengths() counts from 0, got {int(tensor.min())}; an empty sequence is 0"
        )
    return tensor.to(torch.int64, copy=True)  # the user may change the tensor before backward


def _longest(counts: Tensor | None) -> int:
    if counts is None or not counts.numel() or not can_inspect_values(counts):
        return 0
    return int(counts.max())
