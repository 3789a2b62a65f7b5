"""Jagged nested tensors: sequences of different lengths without padding, as one packed sequence."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.core.mask import Mask, as_mask, segments
from regard.paths.packed import is_window


class Packed(NamedTuple):
    """A jagged batch as one sequence, with the mask that keeps its parts apart."""

    query: Tensor  # (..., sum of lengths, D)
    key: Tensor
    value: Tensor
    mask: Mask
    offsets: tuple[Tensor, Tensor]  # of queries and keys, (B + 1,)
    nested: Callable[[Tensor], Tensor]  # what is like the query, as a jagged tensor again


def is_jagged(*tensors: object) -> bool:
    """Whether one of some tensors is nested."""
    return any(isinstance(each, Tensor) and each.is_nested for each in tensors)


def pack(query: Any, key: Any, value: Any, mask: Mask | Tensor | None) -> Packed:
    """Take jagged queries, keys and values apart.

    Args:
        query, key, value: (B, lengths, D) or (B, heads, lengths, D), in torch's jagged layout
        mask: `causal()` or `window()`, within each sequence

    Raises:
        TypeError: unless all are jagged
        ValueError: for sequences that do not fit each other, or another mask
    """
    for name, each in (("query", query), ("key", key), ("value", value)):
        if not each.is_nested or each.layout != torch.jagged:
            kind = "nested tensor of another layout" if each.is_nested else "tensor of one length"
            raise TypeError(
                f"{name} should be a jagged nested tensor as the others are, got a {kind}; "
                "torch.nested.nested_tensor(list, layout=torch.jagged) makes one"
            )
        if each.dim() not in (3, 4) or each._ragged_idx != each.dim() - 2:
            raise ValueError(
                f"{name} should be (batch, lengths, dim) or (batch, heads, lengths, dim), got "
                f"{each.dim()} dimensions with lengths in dimension {each._ragged_idx}"
            )
    query, key, value = (x if x.lengths() is None else x.contiguous() for x in (query, key, value))
    rows, keys = query.offsets(), key.offsets()
    if not torch.equal(keys, value.offsets()):
        raise ValueError("key and value should have the same lengths; give one value per key")
    if len(rows) != len(keys):
        raise ValueError(f"query has {len(rows) - 1} sequences and key {len(keys) - 1}")
    same = rows is keys or torch.equal(rows, keys)
    whole = segments(cu_seqlens=rows if same else (rows, keys))
    if mask is not None:
        mask = as_mask(mask)
        if not same or not is_window(mask):
            raise ValueError(
                f"{mask} cannot be used with these jagged tensors: sequences of their own lengths "
                "take causal() and window(), and need as many queries as keys each"
            )
        whole = whole & mask

    def nested(x: Tensor) -> Tensor:
        if x.dim() == 2:
            return torch.nested.nested_tensor_from_jagged(x, rows)
        return torch.nested.nested_tensor_from_jagged(x.transpose(0, 1), rows).transpose(1, 2)

    return Packed(query.values(), key.values(), value.values(), whole, (rows, keys), nested)
