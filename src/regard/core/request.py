"""A request: the arguments of one attention call, checked and in canonical form."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FunctionType

import torch
from torch import Tensor, nn

from regard.core import noise
from regard.core.blocks import can_inspect_values, version_check
from regard.core.map import AttentionMap
from regard.core.mask import Grid, Mask, as_mask, visible
from regard.core.names import find_score
from regard.core.normalize import (
    NORMALIZERS,
    Gumbel,
    Normalizer,
    find_normalizer,
    needs_noise,
    softmax,
)
from regard.core.score import Score, precise
from regard.core.shapes import broadcast, fits
from regard.core.ties import at_least

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@dataclass(eq=False, slots=True)
class Request:
    """Queries (..., M, Dq), keys (..., N, Dk), values (..., N, Dv) and how they attend.

    Never changed; `dataclasses.replace` makes another. (Making a frozen one takes five times as
    long.)
    """

    query: Tensor
    key: Tensor
    value: Tensor
    score: Score
    mask: Mask | None
    bias: Tensor | None  # finite; what -inf hides is in the mask
    normalize: Callable[..., Tensor]
    dropout: float
    seed: Tensor | None
    leading: torch.Size  # of the map and the output
    has_batch: bool = True  # whether the first leading dimension is the batch: a graph has none
    edit_output: Callable[[Tensor, slice], Tensor] | None = None  # of rows of the output

    @property
    def queries(self) -> int:
        return self.query.shape[-2]

    @property
    def keys(self) -> int:
        return self.key.shape[-2]

    @property
    def size(self) -> tuple[int, int]:
        """(M, N)"""
        return self.query.shape[-2], self.key.shape[-2]

    @property
    def grid(self) -> Grid:
        return Grid(self.queries, self.keys, len(self.leading), self.query.device)

    @property
    def rows(self) -> slice:
        """All query rows."""
        return slice(0, self.queries)

    @property
    def cells(self) -> int:
        """The number of cells of the whole map."""
        return self.leading.numel() * self.queries * self.keys

    def tensors(self) -> list[tuple[str, Tensor]]:
        """The tensors that determine the map, by name."""
        named = [("query", self.query), ("key", self.key), ("bias", self.bias)]
        named += [("mask", tensor) for tensor in (() if self.mask is None else self.mask.tensors())]
        return [(name, tensor) for name, tensor in named if tensor is not None]

    def seeded(self) -> "Request":
        """The request with a seed for its noise, if it has any."""
        if not self.dropout and not needs_noise(self.normalize):
            return self
        return replace(self, seed=noise.draw_seed(self.query.device))

    def detached(self) -> "Request":
        """The request outside of the autograd graph; parameters are copied, as they will change."""
        return replace(
            self,
            query=detached(self.query),
            key=detached(self.key),
            value=detached(self.value),
            bias=None if self.bias is None else detached(self.bias),
        )

    def example(self, index: int) -> "Request | None":
        """The request of one entry of the batch; None if its noise is that of the whole batch."""
        if not self.has_batch or not self.leading or needs_noise(self.normalize):
            return None

        def own(tensor: Tensor) -> Tensor:
            if tensor.dim() < len(self.leading) + 2:
                return tensor
            return tensor[index if len(tensor) > 1 else 0]

        return replace(
            self,
            query=own(self.query),
            key=own(self.key),
            value=own(self.value),
            mask=None if self.mask is None else self.mask.example(index, self.grid),
            bias=None if self.bias is None else own(self.bias),
            leading=self.leading[1:],
            has_batch=False,
        )

    def retained(self) -> "Request":
        """The request for a map that is read later, when its tensors may have changed.

        It has copies of what torch counts no changes of: tensors that were made in inference
        mode, and without gradients a mask given as a tensor, which a call does not copy. A graph
        that is being compiled has no versions, and reads its own tensors.
        """
        if torch.compiler.is_compiling():
            return self
        return replace(
            self,
            query=_counted(self.query),
            key=_counted(self.key),
            value=_counted(self.value),
            bias=None if self.bias is None else _counted(self.bias),
            mask=copy.deepcopy(self.mask),
        )

    def lazy_map(
        self,
        weights: Callable[[slice], Tensor],
        scores: Callable[[slice], Tensor] | None = None,
        features: tuple[int, ...] = (),
    ) -> AttentionMap:
        """The map whose rows are computed from this request.

        Args:
            weights, scores: from rows to (*leading, *features, rows, N)

        Raises:
            RuntimeError: when it is read, if a tensor of the request was changed in place since
        """
        check = version_check(self.tensors(), "its map is lost")

        def checked(compute: Callable[[slice], Tensor]) -> Callable[[slice], Tensor]:
            def rows(which: slice) -> Tensor:
                check()
                return compute(which)

            return rows

        return AttentionMap(
            checked(weights),
            None if scores is None else checked(scores),
            (*self.leading, *features, *self.size),
        )

    # -------------------------------------------------------------- the four nouns, by rows

    def scores(self, query: Tensor, bias: Tensor | None) -> Tensor:
        """A = f(Q, K) + bias for some rows, in float32 or better, (..., rows, N)."""
        scores = self.score(query, self.key)
        expected = (*self.leading, query.shape[-2], self.keys)
        fitting = isinstance(scores, Tensor) and scores.shape[-2:] == expected[-2:]
        if not fitting or not fits(scores.shape, expected):
            got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ValueError(
                f"the score should return {expected}, or what broadcasts to it, for query "
                f"{tuple(query.shape)} and key {tuple(self.key.shape)}, got {got}"
            )
        check_devices(query.device, scores=scores)
        scores = scores.to(precise(scores.dtype))
        return scores if bias is None else scores + bias.to(scores.dtype)

    def visible(self, rows: slice) -> Tensor | None:
        """The mask for some rows, bool broadcastable to (..., rows, N), or None."""
        if self.mask is None:
            return None
        return self.mask.block(rows, slice(0, self.keys), self.grid)

    def weights(self, scores: Tensor, rows: slice) -> Tensor:
        """W = normalize(A + mask) for some rows, before dropout.

        A query that sees nothing is normalized as if it saw everything, and then hidden, so that
        its gradient is finite with any normalizer.
        """
        visible = self.visible(rows)
        mask, blind = visible, False
        if visible is not None:
            seeing = visible.any(-1, keepdim=True)
            blind = not (can_inspect_values(seeing) and bool(seeing.all()))
            mask = visible | ~seeing if blind else visible
        if needs_noise(self.normalize):
            assert self.seed is not None
            uniform = noise.uniform(self.seed, self.leading, rows, self.size).to(scores.dtype)
            weights = self.normalize(scores, mask, uniform)
        else:
            weights = self.normalize(scores, mask)
        known = any(self.normalize is each for each in NORMALIZERS.values()) or isinstance(
            self.normalize, Gumbel
        )
        if visible is None or (known and not blind):  # these give hidden keys zero by themselves
            return weights
        return weights.masked_fill(~visible, 0.0)

    def apply_dropout(self, weights: Tensor, rows: slice) -> Tensor:
        """The weights after dropout."""
        if not self.dropout:
            return weights
        assert self.seed is not None
        kept = noise.kept(self.seed, self.dropout, self.leading, rows, self.size)
        return weights.masked_fill(~kept, 0.0) * (1.0 / (1.0 - self.dropout))

    def edited(self, output: Tensor, rows: slice) -> Tensor:
        """Rows of the output, (..., rows, Dv), after the edit of an observer, if there is one."""
        return output if self.edit_output is None else self.edit_output(output, rows)

    # -------------------------------------------------------------- hidden from every query

    def zero_hidden(self) -> "Request":
        """The request after `zero_hidden`; itself without a mask, or if nothing can overflow."""
        tensors = self.query, self.key, self.value
        if self.mask is None or all(map(is_moderate, tensors)):
            return self
        query, key, value = zero_hidden(*tensors, self.mask, self.grid)
        return replace(self, query=query, key=key, value=value)


def zero_hidden(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask, grid: Grid
) -> tuple[Tensor, Tensor, Tensor]:
    """Zeros for keys and values hidden from all queries, and for queries that see nothing.

    A weight of zero does not stop NaN or inf: 0 · NaN is NaN, and products of large numbers are
    inf. What several maps share is hidden only if it is hidden in all of them.
    """
    seeing, seen = mask.seeing(grid).unsqueeze(-1), mask.seen(grid).unsqueeze(-1)
    pairs = (query, seeing), (key, seen), (value, seen)
    return tuple(torch.where(_fit(known, t), t, 0.0) for t, known in pairs)  # type: ignore[return-value]


def detached(tensor: Tensor) -> Tensor:
    """The detached tensor; a parameter is copied, since an optimizer will change it."""
    if isinstance(tensor, nn.Parameter):
        return tensor.detach().clone()
    return tensor.detach() if tensor.requires_grad else tensor


def _counted(tensor: Tensor) -> Tensor:
    """The tensor, or a copy if torch does not count its changes."""
    return tensor.clone() if tensor.is_inference() else tensor


def is_moderate(tensor: Tensor) -> bool:
    """Whether products of projections of the tensor are finite; False if that cannot be known."""
    if not can_inspect_values(tensor):
        return False
    if not tensor.numel():
        return True
    low, high = tensor.detach().aminmax()  # NaN if there is one
    limit = torch.finfo(precise(tensor.dtype)).max ** 0.375
    return -limit < float(low) and float(high) < limit


def make_request(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: str | Score,
    mask: Mask | Tensor | None = None,
    bias: Tensor | None = None,
    normalize: str | Callable[..., Tensor] = softmax,
    dropout: float = 0.0,
) -> Request:
    """Check all arguments once and put them in canonical form; names become functions.

    Raises:
        TypeError, ValueError: with what was expected, what was given, and how to fix it
    """
    _check_tensors(query, key, value)
    score, normalize = find_score(score), find_normalizer(normalize)
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}; 0 drops none")
    mask = None if mask is None else as_mask(mask)
    if bias is not None:
        bias, mask = _canonical_bias(bias, mask, query, key)
    if not isinstance(normalize, FunctionType) and not torch.compiler.is_compiling():
        normalize = copy.copy(normalize)  # a temperature may be annealed before backward
    leading = query.shape[:-2]
    if bias is not None or not leading == key.shape[:-2] == value.shape[:-2]:
        leading = _leading([query, key, value] if bias is None else [query, key, value, bias])
        _check_one_value_per_key(key, value)
    if mask is not None:
        leading = masked_leading(mask, leading, query.shape[-2], key.shape[-2], query.device)
    if isinstance(normalize, Normalizer):
        normalize.check(leading, key.shape[-2])
    _check_module_devices(query.device, score, normalize)
    return Request(query, key, value, score, mask, bias, normalize, dropout, None, leading)


def _canonical_bias(
    bias: Tensor, mask: Mask | None, query: Tensor, key: Tensor
) -> tuple[Tensor, Mask | None]:
    """A finite bias (..., M, N) in a dtype that the scores can have, and a mask for its -inf."""
    _check_bias(bias, query.shape[-2], key.shape[-2])
    check_devices(query.device, bias=bias)
    known = can_inspect_values(bias)
    shows_all = known and (not bias.numel() or float(bias.detach().amin()) > -math.inf)
    # a broadcast row is expanded, so that blocks of rows can be cut from it
    bias = bias.expand(*bias.shape[:-2], query.shape[-2], key.shape[-2])
    if not shows_all:  # with NaN in it, this is not known yet
        hidden = bias.detach() == -math.inf
        bias = bias.masked_fill(hidden, 0.0)
        mask = visible(~hidden) if mask is None else mask & visible(~hidden)
    if bias.dtype == torch.float64 != query.dtype:  # half the range: a score is yet to be added
        most = torch.finfo(torch.float32).max / 2
        bias = at_least(-at_least(-bias, -most), -most).to(torch.float32)
    return bias, mask


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


def check_devices(device: torch.device, **tensors: Tensor) -> None:
    """Raise ValueError if one of the tensors is not on the device, which kernels do not check."""
    for name, tensor in tensors.items():
        if tensor.device != device:
            raise ValueError(
                f"all tensors of a call must be on one device, got query on {device} and {name} "
                f"on {tensor.device}; move it: {name}.to(query.device)"
            )


def check_mask(mask: Mask, grid: Grid) -> None:
    """Raise ValueError unless a mask fits a map; it may be on any device where it has values."""
    if grid.device.type != "meta" and any(tensor.is_meta for tensor in mask.tensors()):
        raise ValueError(f"mask {mask} is on the meta device, where it has no values")
    mask.check(grid)


def _check_module_devices(device: torch.device, *functions: Callable[..., Tensor] | None) -> None:
    if torch.compiler.is_compiling():
        return  # torch checks every operation then
    for function in functions:
        if isinstance(function, nn.Module):  # named_parameters() takes as long as a small attention
            for name, tensor in (function._parameters | function._buffers).items():
                if tensor is not None and tensor.device != device:
                    check_devices(device, **{name: tensor})
            _check_module_devices(device, *function._modules.values())


def check_not_nested(name: str, tensor: Tensor) -> None:
    """Raise TypeError for a nested tensor, whose sequences have lengths of their own."""
    if tensor.is_nested:
        raise TypeError(
            f"{name} must be a tensor of one length, got a nested tensor; pad it with "
            "torch.nested.to_padded_tensor and use mask=regard.lengths(...), or concatenate its "
            "sequences and use mask=regard.segments(...)"
        )


def _check_tensors(query: Tensor, key: Tensor, value: Tensor) -> None:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
        check_not_nested(name, tensor)
        if tensor.dtype not in FLOATS:
            raise TypeError(f"{name} must be a float tensor, got {tensor.dtype}; try .float()")
        if tensor.dim() < 2:
            raise ValueError(
                f"{name} must be (..., length, dim), got shape {tuple(tensor.shape)}; a single "
                f"vector is {name}[None]"
            )
    check_devices(query.device, key=key, value=value)
    if query.dim() < key.dim():
        raise ValueError(
            f"query must have as many dimensions as key, got query {tuple(query.shape)} and key "
            f"{tuple(key.shape)}; one query for each row of a batch is query[:, None], queries "
            "shared by the whole batch are query[None]"
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


def _check_one_value_per_key(key: Tensor, value: Tensor) -> None:
    """Raise if a value of batch 1 would be repeated for keys that differ, which is rarely meant."""
    if key.dim() == value.dim() > 2 and value.shape[0] == 1 < key.shape[0]:
        raise ValueError(
            f"key and value must have the same batch, got key {tuple(key.shape)} and value "
            f"{tuple(value.shape)}; value.expand(...) or value[0] repeats a value on purpose"
        )


def _check_bias(bias: Tensor, queries: int, keys: int) -> None:
    if not isinstance(bias, Tensor) or not bias.is_floating_point():
        kind = bias.dtype if isinstance(bias, Tensor) else type(bias).__name__
        raise TypeError(f"bias must be a float tensor, got {kind}; a bool tensor goes to mask=")
    if bias.dim() < 2 or not fits(bias.shape[-2:], (queries, keys)):
        raise ValueError(
            f"bias of shape {tuple(bias.shape)} does not fit {queries} queries and {keys} keys; "
            f"it should be (..., {queries}, {keys}) or broadcast to that"
        )


def _leading(tensors: list[Tensor]) -> torch.Size:
    """The leading dimensions of the map: those of all inputs, broadcast."""
    try:
        return broadcast(*(t.shape[:-2] for t in tensors))
    except RuntimeError:
        shapes = ", ".join(str(tuple(t.shape)) for t in tensors)
        raise ValueError(
            f"the leading dimensions of query, key, value (and bias) do not broadcast: {shapes}; "
            "they should be equal, 1 or absent"
        ) from None


def masked_leading(
    mask: Mask, leading: torch.Size, queries: int, keys: int, device: torch.device
) -> torch.Size:
    """The leading dimensions of a map broadcast with its mask, which is checked to fit."""
    grid = Grid(queries, keys, len(leading), device)
    check_mask(mask, grid)
    try:
        own = mask.spread(grid)
        if not own or (len(own) == len(leading) and own == leading):
            return leading
        wide = broadcast(leading, own)
    except RuntimeError:
        raise ValueError(
            f"mask {mask} does not fit a map of shape {(*leading, queries, keys)}; its leading "
            f"dimensions should broadcast to {tuple(leading)}"
        ) from None
    # with more dimensions there is another first one, with which lengths and segments line up
    same = len(wide) == len(leading)
    return wide if same else masked_leading(mask, wide, queries, keys, device)
