"""A request: everything one attention call was asked for, checked and in canonical form."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.core import noise
from regard.core.blocks import can_inspect_values
from regard.core.mask import Grid, Mask, as_mask, visible
from regard.core.normalize import NORMALIZERS
from regard.core.score import Score, precise
from regard.core.shapes import broadcast

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@dataclass(frozen=True, eq=False)
class Request:
    """Queries (..., M, Dq), keys (..., N, Dk), values (..., N, Dv) and how they attend."""

    query: Tensor
    key: Tensor
    value: Tensor
    score: Score
    mask: Mask | None
    bias: Tensor | None  # finite; what -inf hid is in the mask
    normalize: Callable[..., Tensor]
    dropout: float
    seed: Tensor | None
    leading: torch.Size  # of the map and the output

    @property
    def queries(self) -> int:
        return self.query.shape[-2]

    @property
    def keys(self) -> int:
        return self.key.shape[-2]

    @property
    def grid(self) -> Grid:
        return Grid(self.queries, self.keys, len(self.leading), self.query.device)

    @property
    def rows(self) -> slice:
        """All query rows."""
        return slice(0, self.queries)

    @property
    def cells(self) -> int:
        """How many numbers the whole map holds."""
        return math.prod(self.leading) * self.queries * self.keys

    def tensors(self) -> list[tuple[str, Tensor]]:
        """What the map is made of, by name."""
        named = [("query", self.query), ("key", self.key), ("bias", self.bias)]
        named += [("mask", tensor) for tensor in (() if self.mask is None else self.mask.tensors())]
        return [(name, tensor) for name, tensor in named if tensor is not None]

    def seeded(self) -> "Request":
        """The request with a seed, if it needs one: from here on its noise is decided."""
        if not self.dropout and not getattr(self.normalize, "needs_noise", False):
            return self
        return replace(self, seed=noise.draw_seed(self.query.device))

    # -------------------------------------------------------------- the four nouns, by rows

    def scores(self, query: Tensor, bias: Tensor | None) -> Tensor:
        """A = f(Q, K) + bias for some rows, in float32 or better, (..., rows, N)."""
        scores = self.score(query, self.key)
        expected = (*self.leading, query.shape[-2], self.keys)
        if not isinstance(scores, Tensor) or not _fits(scores.shape, expected):
            came = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ValueError(
                f"the score should return {expected}, or what broadcasts to it, for query "
                f"{tuple(query.shape)} and key {tuple(self.key.shape)}, got {came}"
            )
        scores = scores.to(precise(scores.dtype))
        return scores if bias is None else scores + bias.to(scores.dtype)

    def visible(self, rows: slice) -> Tensor | None:
        """The mask for some rows, bool broadcastable to (..., rows, N), or None."""
        if self.mask is None:
            return None
        return self.mask.block(rows, slice(0, self.keys), self.grid)

    def weights(self, scores: Tensor, rows: slice) -> Tensor:
        """W = normalize(A + mask) for some rows, before dropout.

        A query that sees nothing is normalized as if it saw everything, and then hidden: so it
        has a finite gradient with any normalizer.
        """
        visible = self.visible(rows)
        mask, blind = visible, False
        if visible is not None:
            seeing = visible.any(-1, keepdim=True)
            blind = not (can_inspect_values() and bool(seeing.all()))
            mask = visible | ~seeing if blind else visible
        if getattr(self.normalize, "needs_noise", False):
            assert self.seed is not None
            size = (self.queries, self.keys)
            uniform = noise.uniform(self.seed, self.leading, rows, size).to(scores.dtype)
            weights = self.normalize(scores, mask, uniform)
        else:
            weights = self.normalize(scores, mask)
        ours = any(self.normalize is known for known in NORMALIZERS.values())
        if visible is None or (ours and not blind):  # ours give hidden keys zero by themselves
            return weights
        return weights.masked_fill(~visible, 0.0)

    def apply_dropout(self, weights: Tensor, rows: slice) -> Tensor:
        """The weights after dropout."""
        if not self.dropout:
            return weights
        assert self.seed is not None
        size = (self.queries, self.keys)
        kept = noise.kept(self.seed, self.dropout, self.leading, rows, size)
        return weights.masked_fill(~kept, 0.0) * (1.0 / (1.0 - self.dropout))

    # -------------------------------------------------------------- hidden from everybody

    def zero_hidden(self) -> "Request":
        """The request with zeros for keys and values that nobody sees, and blind queries.

        A weight of zero does not stop NaN or inf: 0 · NaN is NaN. Where nothing is hidden, or
        everything is finite, this is the request itself.
        """
        if self.mask is None or (can_inspect_values() and self._finite()):
            return self
        seen = self.mask.seen(self.grid).unsqueeze(-1)
        seeing = self.mask.seeing(self.grid).unsqueeze(-1)
        return replace(
            self,
            query=torch.where(_fit(seeing, self.query), self.query, 0.0),
            key=torch.where(_fit(seen, self.key), self.key, 0.0),
            value=torch.where(_fit(seen, self.value), self.value, 0.0),
        )

    def _finite(self) -> bool:
        total = sum(
            t.detach().sum(dtype=precise(t.dtype)) for t in (self.query, self.key, self.value)
        )
        return bool(torch.isfinite(torch.as_tensor(total)))


def make_request(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: Score,
    mask: Mask | Tensor | None,
    bias: Tensor | None,
    normalize: Callable[..., Tensor],
    dropout: float,
) -> Request:
    """Check everything once and put it in canonical form.

    Raises:
        TypeError, ValueError: with what was expected, what came, and what to do
    """
    _check_tensors(query, key, value)
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}; 0 drops none")
    mask = None if mask is None else as_mask(mask)
    if bias is not None:
        _check_bias(bias, query.shape[-2], key.shape[-2])
        # a broadcast row is written out, so that blocks of rows can be cut from it
        bias = bias.expand(*bias.shape[:-2], query.shape[-2], key.shape[-2])
        hidden = bias.detach() == -math.inf
        if not can_inspect_values() or bool(hidden.any()):
            bias = bias.masked_fill(hidden, 0.0)
            mask = visible(~hidden) if mask is None else mask & visible(~hidden)
    leading = _leading(query, key, value, mask, bias)
    return Request(query, key, value, score, mask, bias, normalize, dropout, None, leading)


def _fits(shape: torch.Size, whole: tuple[int, ...]) -> bool:
    """Whether a map of this shape broadcasts to the whole one over its leading dimensions."""
    if not 2 <= len(shape) <= len(whole) or shape[-2:] != whole[-2:]:
        return False
    return all(own in (1, size) for own, size in zip(shape, whole[-len(shape) :], strict=True))


def _fit(seen: Tensor, tensor: Tensor) -> Tensor:
    """`seen` (*leading, L, 1) for a tensor whose leading dimensions may broadcast.

    What is shared by several entries is seen if one of them sees it.
    """
    while seen.dim() > tensor.dim():
        seen = seen.any(0)
    for dim in range(-seen.dim(), -2):
        if tensor.shape[dim] == 1 < seen.shape[dim]:
            seen = seen.any(dim, keepdim=True)
    return seen


def _check_tensors(query: Tensor, key: Tensor, value: Tensor) -> None:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
        if tensor.dtype not in FLOATS:
            raise TypeError(f"{name} must be a float tensor, got {tensor.dtype}; try .float()")
        if tensor.dim() < 2:
            raise ValueError(
                f"{name} must be (..., length, dim), got shape {tuple(tensor.shape)}; a single "
                f"vector is {name}[None]"
            )
    if not query.dtype == key.dtype == value.dtype:
        raise TypeError(
            f"query, key and value must share a dtype, got {query.dtype}, {key.dtype}, "
            f"{value.dtype}; cast them with .to({query.dtype})"
        )
    if key.shape[-2] != value.shape[-2]:
        raise ValueError(
            f"key and value must have the same length, got key {tuple(key.shape)} with "
            f"{key.shape[-2]} and value {tuple(value.shape)} with {value.shape[-2]}; give one "
            "value per key"
        )


def _check_bias(bias: Tensor, queries: int, keys: int) -> None:
    if not isinstance(bias, Tensor) or not bias.is_floating_point():
        kind = bias.dtype if isinstance(bias, Tensor) else type(bias).__name__
        raise TypeError(f"bias must be a float tensor, got {kind}; a bool tensor goes to mask=")
    shape = (1, 1, *bias.shape)[-2:]
    if bias.dim() < 2 or shape[0] not in (1, queries) or shape[1] not in (1, keys):
        raise ValueError(
            f"bias of shape {tuple(bias.shape)} does not fit {queries} queries and {keys} keys; "
            f"it should be (..., {queries}, {keys}) or broadcast to that"
        )


def _leading(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask | None, bias: Tensor | None
) -> torch.Size:
    """The leading dimensions of the map: those of all inputs, broadcast."""
    tensors = [t for t in (query, key, value, bias) if t is not None]
    try:
        leading = broadcast(*(t.shape[:-2] for t in tensors))
    except RuntimeError:
        shapes = ", ".join(str(tuple(t.shape)) for t in tensors)
        raise ValueError(
            f"the leading dimensions of query, key, value (and bias) do not broadcast: {shapes}; "
            "they should be equal, 1 or absent"
        ) from None
    if mask is None:
        return leading
    return masked_leading(mask, leading, query.shape[-2], key.shape[-2], query.device)


def masked_leading(
    mask: Mask, leading: torch.Size, queries: int, keys: int, device: torch.device
) -> torch.Size:
    """The leading dimensions of a map broadcast with its mask, which is checked to fit."""
    grid = Grid(queries, keys, len(leading), device)
    mask.check(grid)
    try:
        wide = broadcast(leading, mask.spread(grid))
    except RuntimeError:
        raise ValueError(
            f"mask {mask} does not fit a map of shape {(*leading, queries, keys)}; its leading "
            f"dimensions should broadcast to {tuple(leading)}"
        ) from None
    # with more dimensions there is another first one, with which lengths and segments line up
    same = len(wide) == len(leading)
    return wide if same else masked_leading(mask, wide, queries, keys, device)
