"""Masks: which keys a query may attend to. True = may attend.

A mask is a small symbolic object. Masks compose with `&`, `|` and `~`; no M × N tensor exists
before `dense` or `block` is called. Positions are aligned so that the last query is at the last
key: with M queries and N keys, query i is at position i + N − M, or at i + `offset` if given.
A mask keeps copies of its tensors, so that changing them later changes no gradient.

To add one: a class with `block`, and a function that makes it, in a file here. `key_range` or
`block_map` makes it faster; a mask with tensors also has `leading`, `tensors` and `check`. See
ARCHITECTURE.md.
"""

from regard.core.mask.algebra import Grid, Mask, as_mask, visible
from regard.core.mask.padding import from_torch_mha, lengths
from regard.core.mask.position import Window, causal, window
from regard.core.mask.segment import segments
from regard.core.mask.sparse import block_sparse, global_tokens

__all__ = [
    "Grid",
    "Mask",
    "Window",
    "as_mask",
    "block_sparse",
    "causal",
    "from_torch_mha",
    "global_tokens",
    "lengths",
    "segments",
    "visible",
    "window",
]
