"""Which path computes a request, and why: the rules, on one screen."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from regard.core.blocks import BLOCK_ELEMENTS, can_inspect_values, in_functorch
from regard.core.lower import is_additive, is_dot
from regard.core.names import did_you_mean
from regard.core.request import Request
from regard.paths import additive, banded, block_sparse, capped, flex, fused, gather, packed
from regard.paths.blockwise import blockwise
from regard.paths.kernels import compile as compiled
from regard.paths.reference import reference
from regard.system import torch_internals

FLASH = "flash attention"
WITH_FLASH = ("fused", "banded", "packed", "block_sparse")

TINY = 64
"""Cells of a map up to which no fast path is worth its preparation."""


class Path(NamedTuple):
    """A way of computing requests."""

    compute: Callable[[Request], Tensor]
    unsupported_reason: Callable[[Request], str | None] = lambda request: None
    zeroes_hidden: Callable[[Request], bool] = lambda request: False
    """Whether it keeps hidden NaN and inf out of its result; else they are zeroed before."""


PATHS: dict[str, Path] = {
    "reference": Path(reference),
    "fused": Path(fused.fused, fused.unsupported_reason, fused.zeroes_hidden),
    "banded": Path(banded.banded, banded.unsupported_reason, fused.zeroes_hidden),
    "block_sparse": Path(
        block_sparse.block_sparse, block_sparse.unsupported_reason, fused.zeroes_hidden
    ),
    "packed": Path(packed.packed, packed.unsupported_reason, fused.zeroes_hidden),
    "flex": Path(flex.flex, flex.unsupported_reason),
    "capped": Path(capped.capped, capped.unsupported_reason),
    "additive_kernel": Path(additive.additive, additive.unsupported_reason),
    "gather": Path(gather.gather, gather.unsupported_reason),
    "blockwise": Path(blockwise),
}


def choose(request: Request, path: str = "auto") -> tuple[str, str]:
    """The name of the path to take and the reason, cheapest first.

    Raises:
        ValueError: if a path given by name is unknown or cannot compute this
    """
    if path != "auto":
        return _named(request, path)
    if in_functorch():
        return "reference", "torch.func or forward-mode AD is active and needs the plain formula"
    if torch.compiler.is_exporting():
        return "reference", "an exported graph is for any size and any runtime: the plain formula"
    if request.cells <= TINY:
        return "reference", f"a map of {request.cells} cells is too small for a fast path to pay"
    if gather.unsupported_reason(request) is None:
        return "gather", "hard attention without a gradient fetches one value for each query"
    if is_dot(request.score):
        why = fused.unsupported_reason(request)
        if why:
            return "blockwise", f"torch cannot fuse this ({why}), so it runs in blocks of queries"
        if packed.pays(request):
            return "packed", f"{request.mask} packs sequences; those of equal lengths are one call"
        if flex.pays(request):
            return "flex", f"torch's compiled flex_attention skips what {request.mask} hides"
        sparse = block_sparse.faster(request)
        if sparse:
            return sparse, f"{request.mask} hides whole blocks of keys, which are skipped"
        return "fused", "the score is a dot product and its softmax is fused by torch"
    if capped.unsupported_reason(request) is None:
        return "capped", "c · tanh(q · k) with softmax runs in tiles that stay in the cache"
    if is_additive(request.score):
        native = not torch.compiler.is_compiling() and compiled.available(request.query)
        how = "compiled" if native else "computed by torch"
        why = additive.unsupported_reason(request)
        if why:
            return "blockwise", f"the score is {how}, the rest runs in blocks of queries ({why})"
        return "additive_kernel", f"w · tanh(q + k) has a kernel that holds no map, {how} here"
    return "blockwise", "this score cannot be fused, so it runs in blocks of queries"


def _named(request: Request, path: str) -> tuple[str, str]:
    if path not in PATHS:
        raise ValueError(f"unknown path {path!r}{did_you_mean(path, ['auto', *PATHS])}")
    why = PATHS[path].unsupported_reason(request)
    if why:
        raise ValueError(f"path {path!r} cannot do this: {why}; use path='auto'")
    return path, "chosen by name"


@dataclass(frozen=True)
class Plan:
    """How a request will be computed. `str(plan)` is a readable paragraph."""

    path: str
    reason: str
    flops: int
    bytes: int

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.reason}. A forward pass takes about {_short(self.flops)}FLOP "
            f"and {_short(self.bytes)}B of memory, output included."
        )


def plan(request: Request, path: str = "auto") -> Plan:
    """The choice with its estimated cost, for one forward pass."""
    name, reason = choose(request, path)
    if name in WITH_FLASH and request.query.is_cpu and torch_internals.functions(FLASH) is None:
        reason += (
            f"; torch's private kernels were not tested with torch {torch_internals.RELEASE}, so "
            f"its public function takes over, without their speed"
        )
    skips = name in ("banded", "packed", "capped", "additive_kernel")
    cells = banded.cells_in_range(request) if skips else request.cells
    if name in ("block_sparse", "flex") and can_inspect_values(request.query):
        cells = block_sparse.cells_in_blocks(request)
    width, value_width = request.query.shape[-1], request.value.shape[-1]
    # a multiplication and an addition per dot product; tanh, factored, takes about eight
    score = (8 if is_additive(request.score) else 2) * width
    flops = cells * (score + 5 + 2 * value_width)
    queries = request.leading.numel() * request.queries
    held = {
        "reference": 2 * request.cells,
        "blockwise": 2 * min(request.cells, BLOCK_ELEMENTS),
        "capped": min(request.cells, capped.CELLS) + queries,
    }
    numbers = held.get(name, queries) + queries * value_width
    return Plan(name, reason, flops, numbers * request.query.element_size())


def _short(number: int) -> str:
    """A large number with a unit.

    >>> _short(12_345_678)
    '12.3 M'
    """
    amount = float(number)
    for unit in ("", "k", "M", "G"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} T"
