"""The base class of masks, and their composition."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.core import block_map as block_maps
from regard.core import key_range as ranges
from regard.core.block_map import BlockMap
from regard.core.blocks import block_rows
from regard.core.key_range import KeyRange
from regard.core.shapes import broadcast, fits


class Grid(NamedTuple):
    """The size of a map: M queries by N keys, under leading dimensions."""

    queries: int
    keys: int
    leading: int
    device: torch.device


class Mask:
    """Which of N keys each of M queries may attend to."""

    leading = 0
    """How many leading dimensions this mask has of its own."""

    def block(self, rows: slice, keys: slice, grid: Grid) -> Tensor:
        """A block of the mask, bool, broadcastable to (*leading, rows, keys).

        Args:
            rows, keys: slices with start and stop
        """
        raise NotImplementedError

    def key_range(self, grid: Grid) -> KeyRange:
        """The interval of keys that each query can see.

        The default reads the whole mask, some rows at a time. Override it where the interval is
        known without that: fast paths ask for it in every call.
        """
        if grid.queries == 0 or grid.keys == 0:
            nothing = torch.zeros(grid.queries, dtype=torch.long, device=grid.device)
            return KeyRange(nothing, nothing, True)
        parts = [ranges.of_rows(block) for block in self._blocks(grid)]
        return KeyRange(*(torch.cat(part, dim=-1) for part in zip(*parts, strict=True)))

    def block_map(self, grid: Grid, size: int) -> BlockMap:
        """Which blocks of `size` queries and keys are hidden or visible as a whole."""
        return block_maps.of_range(self.key_range(grid), grid.keys, size)

    def spread(self, grid: Grid) -> torch.Size:
        """The leading dimensions of its blocks, which broadcast to those of the map."""
        return self.block(slice(0, 0), slice(0, 0), grid).shape[:-2]

    def check(self, grid: Grid) -> None:
        """Raise ValueError if this mask does not fit the grid."""

    def ignores_queries(self) -> bool:
        """Whether every query sees the same keys."""
        return False

    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors it is made of."""
        return ()

    def dense(self, queries: int, keys: int, *, leading: int | None = None) -> Tensor:
        """The boolean tensor, (..., M, N), for reading and testing.

        Args:
            leading: how many leading dimensions the attention has; the mask's own if not given
        """
        held = self.tensors()
        device = held[0].device if held else torch.device("cpu")
        grid = Grid(queries, keys, self.leading if leading is None else leading, device)
        self.check(grid)
        block = self.block(slice(0, queries), slice(0, keys), grid)
        return block.expand(*block.shape[:-2], queries, keys).clone()

    def seen(self, grid: Grid) -> Tensor:
        """Which keys at least one query sees, bool, broadcastable to (*leading, N)."""
        keys = self.key_range(grid)
        if keys.full is True:
            return ranges.seen_keys(keys, grid.keys, grid.queries)
        seen = torch.zeros((), dtype=torch.bool, device=grid.device)
        for block in self._blocks(grid):
            seen = seen | block.any(dim=-2)
        return seen

    def seeing(self, grid: Grid) -> Tensor:
        """Which queries see at least one key, bool, broadcastable to (*leading, M)."""
        keys = self.key_range(grid)
        if keys.full is True or grid.queries == 0:
            return keys.low < keys.high
        parts = [block.any(dim=-1) for block in self._blocks(grid)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def _blocks(self, grid: Grid) -> Iterator[Tensor]:
        """All of the mask, some rows at a time."""
        if torch.compiler.is_exporting():  # a graph for any size has no blocks
            block = self.block(slice(0, grid.queries), slice(0, grid.keys), grid)
            yield block.expand(*block.shape[:-2], grid.queries, grid.keys)
            return
        step = block_rows(grid.keys)
        for start in range(0, grid.queries, step):
            rows = slice(start, min(start + step, grid.queries))
            block = self.block(rows, slice(0, grid.keys), grid)
            yield block.expand(*block.shape[:-2], rows.stop - start, grid.keys)

    def example(self, index: int, grid: Grid) -> "Mask":
        """The mask of one entry of the first leading dimension of a grid."""
        return Example(self, index, grid)

    def __and__(self, other: "Mask | Tensor") -> "Mask":
        return And(self, _operand(other))

    def __or__(self, other: "Mask | Tensor") -> "Mask":
        return Or(self, _operand(other))

    __rand__ = __and__  # a boolean tensor on the left
    __ror__ = __or__

    def inverted(self) -> "Mask":
        """The same as ~mask, which torch.compile cannot trace."""
        return Not(self)

    __invert__ = inverted

    def __bool__(self) -> bool:
        raise TypeError("a mask has no truth value; combine masks with & | ~, not and, or, not")


class Example(Mask):
    """One entry of the mask of a batch.

    >>> from regard.core.mask import lengths
    >>> grid = Grid(1, 3, 1, torch.device("cpu"))
    >>> lengths(torch.tensor([3, 1])).example(1, grid).dense(1, 3)
    tensor([[ True, False, False]])

    Args:
        mask: of the batch
        index: of the entry
        grid: of the batch
    """

    def __init__(self, mask: Mask, index: int, grid: Grid) -> None:
        self.mask, self.index, self.grid = mask, index, grid
        self.leading = max(mask.leading - 1, 0)

    def block(self, rows: slice, keys: slice, grid: Grid) -> Tensor:
        return self._own(self.mask.block(rows, keys, self.grid), 2)

    def key_range(self, grid: Grid) -> KeyRange:
        low, high, full = self.mask.key_range(self.grid)
        full = self._own(full, 1) if isinstance(full, Tensor) else full
        return KeyRange(self._own(low, 1), self._own(high, 1), full)

    def ignores_queries(self) -> bool:
        return self.mask.ignores_queries()

    def tensors(self) -> tuple[Tensor, ...]:
        return self.mask.tensors()

    def _own(self, tensor: Tensor, tail: int) -> Tensor:
        """The entry's part of (*leading, *tail), where `tail` counts dimensions."""
        if tensor.dim() < self.grid.leading + tail:
            return tensor
        return tensor[self.index if len(tensor) > 1 else 0]

    def __repr__(self) -> str:
        return repr(self.mask)


class Visible(Mask):
    """A boolean tensor as a mask; a borrowed one may be changed after the call."""

    def __init__(self, tensor: Tensor, *, borrowed: bool = False) -> None:
        self.tensor, self.borrowed = tensor, borrowed
        self.leading = max(tensor.dim() - 2, 0)

    def __deepcopy__(self, memo: dict) -> "Visible":
        return Visible(_copied(self.tensor)) if self.borrowed else self

    def spread(self, grid: Grid) -> torch.Size:
        return self.tensor.shape[:-2]

    def check(self, grid: Grid) -> None:
        if not fits(self.tensor.shape[-2:], (grid.queries, grid.keys)):
            raise ValueError(
                f"mask of shape {tuple(self.tensor.shape)} does not fit {grid.queries} queries "
                f"and {grid.keys} keys; it should be (..., {grid.queries}, {grid.keys}) or "
                "broadcast to that, True = may attend"
            )

    def block(self, rows: slice, keys: slice, grid: Grid) -> Tensor:
        tensor = self._wide(grid)
        if keys != slice(0, grid.keys):
            tensor = tensor[..., keys]
        if tensor.shape[-2] == 1 or rows == slice(0, grid.queries):
            return tensor
        return tensor[..., rows, :]

    def key_range(self, grid: Grid) -> KeyRange:
        if self.tensor.dim() > 1 and self.tensor.shape[-1] == 1:  # all keys or none
            seen = self.tensor[..., 0].to(grid.device)
            return KeyRange(torch.zeros_like(seen, dtype=torch.long), seen * grid.keys, True)
        return ranges.of_rows(self._wide(grid))

    def block_map(self, grid: Grid, size: int) -> BlockMap:
        narrow = self.tensor if self.tensor.dim() > 1 else self.tensor.reshape(1, -1)
        return block_maps.of_dense(narrow.to(grid.device), size)

    def ignores_queries(self) -> bool:
        return self.tensor.dim() < 2 or self.tensor.shape[-2] == 1

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.tensor,)

    def _wide(self, grid: Grid) -> Tensor:
        """The tensor as (..., M, N), or (..., 1, N) if it is the same for every query."""
        tensor = self.tensor
        if tensor.device != grid.device:
            tensor = tensor.to(grid.device)
        if tensor.dim() < 2:
            return tensor.expand(1, grid.keys)
        wide = tensor.shape[-1] == grid.keys
        return tensor if wide else tensor.expand(*tensor.shape[:-1], grid.keys)

    def __repr__(self) -> str:
        return f"visible{tuple(self.tensor.shape)}"


class And(Mask):
    """Visible in both."""

    def __init__(self, left: Mask, right: Mask) -> None:
        self.left, self.right = left, right
        self.leading = max(left.leading, right.leading)

    def spread(self, grid: Grid) -> torch.Size:
        return broadcast(self.left.spread(grid), self.right.spread(grid))

    def check(self, grid: Grid) -> None:
        self.left.check(grid)
        self.right.check(grid)

    def block(self, rows: slice, keys: slice, grid: Grid) -> Tensor:
        return self.left.block(rows, keys, grid) & self.right.block(rows, keys, grid)

    def key_range(self, grid: Grid) -> KeyRange:
        return ranges.both(self.left.key_range(grid), self.right.key_range(grid))

    def block_map(self, grid: Grid, size: int) -> BlockMap:
        a, b = self.left.block_map(grid, size), self.right.block_map(grid, size)
        return BlockMap(a.some & b.some, a.every & b.every)

    def ignores_queries(self) -> bool:
        return self.left.ignores_queries() and self.right.ignores_queries()

    def tensors(self) -> tuple[Tensor, ...]:
        return self.left.tensors() + self.right.tensors()

    def __repr__(self) -> str:
        return f"({self.left} & {self.right})"


class Or(And):
    """Visible in one or the other."""

    def block(self, rows: slice, keys: slice, grid: Grid) -> Tensor:
        return self.left.block(rows, keys, grid) | self.right.block(rows, keys, grid)

    def key_range(self, grid: Grid) -> KeyRange:
        return ranges.either(self.left.key_range(grid), self.right.key_range(grid))

    def block_map(self, grid: Grid, size: int) -> BlockMap:
        a, b = self.left.block_map(grid, size), self.right.block_map(grid, size)
        return BlockMap(a.some | b.some, a.every | b.every)

    def __repr__(self) -> str:
        return f"({self.left} | {self.right})"


class Not(Mask):
    """Visible where the other is not."""

    def __init__(self, mask: Mask) -> None:
        self.mask = mask
        self.leading = mask.leading

    def spread(self, grid: Grid) -> torch.Size:
        return self.mask.spread(grid)

    def check(self, grid: Grid) -> None:
        self.mask.check(grid)

    def block(self, rows: slice, keys: slice, grid: Grid) -> Tensor:
        return ~self.mask.block(rows, keys, grid)

    def key_range(self, grid: Grid) -> KeyRange:
        return ranges.neither(self.mask.key_range(grid), grid.keys)

    def block_map(self, grid: Grid, size: int) -> BlockMap:
        some, every = self.mask.block_map(grid, size)
        return BlockMap(~every, ~some)

    def ignores_queries(self) -> bool:
        return self.mask.ignores_queries()

    def tensors(self) -> tuple[Tensor, ...]:
        return self.mask.tensors()

    def __repr__(self) -> str:
        return f"~{self.mask}"


def visible(tensor: Tensor | Any) -> Mask:
    """Any boolean tensor (..., M, N), True = may attend; it broadcasts as tensors do.

    A `mask_mod(b, h, q, kv)` and a `BlockMask` of torch's flex_attention are masks as well.

    Raises:
        TypeError: if it is not boolean
    """
    mask = _of_flex(tensor)
    return Visible(_copied(check_bool(tensor))) if mask is None else mask


def _of_flex(mask: Any) -> Mask | None:
    """What flex_attention takes, as a mask; None for a tensor and anything else."""
    if isinstance(mask, Tensor):
        return None
    from regard.core.mask.flex import flex_mask  # derived from the classes here

    return flex_mask(mask)


def check_bool(tensor: Tensor) -> Tensor:
    """The tensor, or TypeError if it is not boolean."""
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"a mask is a bool tensor with True = may attend, got {type(tensor).__name__}; pass a "
            "tensor, or a mask such as regard.causal()"
        )
    if tensor.dtype != torch.bool:
        raise TypeError(
            f"a mask is a bool tensor with True = may attend, got {tensor.dtype}; if it holds "
            "numbers to add to the scores (0 and -inf), pass it as bias=, else compare: mask != 0"
        )
    return tensor


def _copied(tensor: Tensor) -> Tensor:
    """A copy that keeps broadcast dimensions, since the user may change a mask before backward."""
    if torch.compiler.is_compiling():
        return tensor
    small = tensor
    for dim in range(tensor.dim()):
        if tensor.stride(dim) == 0:
            small = small.narrow(dim, 0, min(1, tensor.shape[dim]))
    return small.clone().expand(tensor.shape)


def as_mask(mask: Mask | Tensor | Any) -> Mask:
    """The mask of one call: a mask as it is, anything else as `visible` takes it.

    Without gradients a tensor is not copied: a map that is read later takes `Request.retained`.
    """
    if isinstance(mask, Mask):
        return mask
    if torch.is_grad_enabled() or not isinstance(mask, Tensor):
        return visible(mask)
    return Visible(check_bool(mask), borrowed=True)


def _operand(mask: Mask | Tensor) -> Mask:
    return mask if isinstance(mask, Mask) else visible(mask)


def align(tensor: Tensor, leading: int, tail: int) -> Tensor:
    """Put ones between a tensor's own leading dimensions and its last `tail` ones.

    (B, *tail) becomes (B, 1, ..., 1, *tail) with `leading` leading dimensions, so that what is
    given per sequence lines up with the first dimension and broadcasts over heads.
    """
    own = tensor.dim() - tail
    return tensor.reshape((*tensor.shape[:own], *(1,) * (leading - own), *tensor.shape[own:]))


def check_leading(mask: Mask, leading: int) -> None:
    if mask.leading > leading:
        raise ValueError(
            f"{mask} has {mask.leading} leading dimensions but query, key and value have "
            f"{leading}; give them a batch dimension"
        )
