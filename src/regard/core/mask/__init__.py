"""Masks: which keys a query may attend to. True = may attend.

A mask is a small symbolic object. Masks compose with `&`, `|` and `~`; no M × N tensor exists
until somebody asks for `dense` or for a block. Positions are aligned so that the last query
sits on the last key: with M queries and N keys, query i stands at position i + N − M, unless an
explicit `offset` says otherwise.

To add one: a class with `block` and `key_range`, and a function that makes it, in a file here.
"""

from regard.core.mask.algebra import Grid, Mask, as_mask, visible
from regard.core.mask.padding import from_torch_mha, lengths
from regard.core.mask.position import Window, causal, window
from regard.core.mask.segment import segments

__all__ = [
    "Grid",
    "Mask",
    "Window",
    "as_mask",
    "causal",
    "from_torch_mha",
    "lengths",
    "segments",
    "visible",
    "window",
]
