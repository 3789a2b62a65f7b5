"""Recorded calls: references to their inputs, from which maps are computed when they are read."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.attention.observer import AttentionCall
from regard.core.blocks import block_rows
from regard.core.key_range import KeyRange
from regard.core.lower import copy_module
from regard.core.map import AttentionMap
from regard.core.mask import Grid, Mask
from regard.core.normalize import needs_noise
from regard.core.request import Request
from regard.trace.projections import LayerInputs

TOLERANCE = 1e-3
"""The largest difference of weights · values from the output, relative to it, of a right map."""


class Freezer:
    """Copies scores with their parameters, again only if a parameter has changed.

    >>> score, freeze = nn.Linear(2, 3), Freezer()
    >>> kept = freeze(score)
    >>> _ = nn.init.zeros_(score.weight)
    >>> freeze(score) is kept, bool((kept.weight == 0).all())
    (False, False)
    """

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}

    def __call__(self, score: Any) -> Any:
        """The score as it is now."""
        if isinstance(score, nn.Module):
            return self._module(score)
        inside = getattr(score, "__dict__", {})
        modules = {name: part for name, part in inside.items() if isinstance(part, nn.Module)}
        if not modules:
            return score
        score = copy.copy(score)
        score.__dict__.update({name: self._module(part) for name, part in modules.items()})
        return score

    def _module(self, module: nn.Module) -> nn.Module:
        kept = self._kept.get(id(module))
        if kept is None:
            if not (module._parameters or module._buffers or module._modules):
                return module
            tensors = [*module.parameters(), *module.buffers()]
            kept = self._kept[id(module)] = _Kept(module, tensors)
        return kept.now()


class _Kept:
    """A module, and its last copy."""

    def __init__(self, module: nn.Module, tensors: list[Tensor]) -> None:
        self.module, self.tensors = module, tensors
        self.versions: list[int] = []
        self.copy = module

    def now(self) -> nn.Module:
        """A copy with the parameters of now; the module itself if it has none."""
        versions = [0 if t.is_inference() else t._version for t in self.tensors]
        if versions != self.versions:
            self.copy = copy_module(self.module, lambda tensor: tensor.detach().clone())
            self.versions = versions
        return self.copy


class CallSnapshot(NamedTuple):
    """What is kept of a call when it happens: as little as possible."""

    call: AttentionCall
    score: Any  # with the parameters of that moment
    versions: list[int] | None  # of its tensors; torch does not count in inference mode
    layer: LayerInputs | None = None


def snapshot(
    call: AttentionCall, freeze: Freezer, layer: LayerInputs | None = None
) -> CallSnapshot:
    """Keep a call by reference, detached from the autograd graph."""
    output, request, score = call.output, call.request, None
    if output is not None and output.requires_grad:
        if isinstance(request, Request):
            request = _detached(request)
        call = call._replace(output=_detach(output), value=_detach(call.value), request=request)
    if isinstance(request, Request):
        score = freeze(request.score)
    versions = None if call.value.is_inference() else [t._version for _, t in _tensors(call)]
    return CallSnapshot(call, score, versions, layer)


class Record:
    """A finished call, from which its map is computed."""

    def __init__(self, kept: CallSnapshot) -> None:
        call = kept.call
        self._request, self._map, self._combine = call.request, call.map, call.combine
        self._score, self.module, self.versions = kept.score, call.module, kept.versions
        self.path, self.part, self.shape = call.path, call.part, call.shape
        self.dtype, self.output = call.value.dtype, call.output
        self._tensors, self._layer = _tensors(call), kept.layer or call.layer_inputs
        self._made: tuple[list[int] | None, AttentionMap] | None = None

    @cached_property
    def request(self) -> Request | None:
        """The request of the call, with the parameters of that moment."""
        if isinstance(self._request, Request):
            return _detached(self._request, self._score)
        with torch.no_grad():
            return None if self._request is None else self._request()

    @cached_property
    def layer(self) -> LayerInputs | None:
        """The inputs of the layer, before its projections; None if they were not recorded."""
        if callable(self._layer):
            with torch.no_grad():
                query, key, value = (x.detach() for x in self._layer())
                return LayerInputs((query, key, value))
        return self._layer

    @property
    def map(self) -> AttentionMap:
        """The whole map, (..., M, N), lazy.

        Raises:
            RuntimeError: if the inputs were changed in place since, and give another output now
        """
        now = self._now()
        if self._made is None or self._made[0] != now:
            with torch.no_grad():
                map = self._map(self.request)
            changed = self._changed()
            if changed and not self._still_true(map):
                raise RuntimeError(
                    f"{' and '.join(changed)} of this call changed in place after it, so its map "
                    "is lost; read the map before that"
                )
            self._made = now, map
        return self._made[1]

    def _now(self) -> list[int] | None:
        return self.versions and [tensor._version for _, tensor in self._tensors]

    def _changed(self) -> list[str]:
        """Which tensors were changed in place."""
        pairs = zip(self._tensors, self.versions or (), self._now() or (), strict=False)
        return [name for (name, _), before, now in pairs if before != now]

    @cached_property
    def error(self) -> float | None:
        """max |weights · values − the output of the model|; None if that cannot be computed."""
        return self._error(self.map)

    @torch.no_grad()
    def _error(self, map: AttentionMap) -> float | None:
        combine, output = self._combine, self.output
        if combine is None or output is None or "output" in self._changed():
            return None
        worst = output.new_zeros((), dtype=torch.float64)
        length = map.shape[-2]
        step = block_rows(map.shape[:-2].numel() * map.shape[-1])
        for start in range(0, length, step):
            rows = slice(start, min(start + step, length))
            made = combine(self.request, map[..., rows, :], rows)
            gap = (made.to(torch.float64) - output[..., rows, :].to(torch.float64)).abs()
            worst = torch.maximum(worst, gap.max() if gap.numel() else worst)
        return float(worst)

    def _still_true(self, map: AttentionMap) -> bool:
        """Whether the map still gives the output of the call: then the change was elsewhere.

        A cache of keys grows in place behind the part that a call has read.
        """
        error = self._error(map)
        if error is None or self.output is None:
            return False
        return error <= TOLERANCE * max(1e-6, float(self.output.abs().max()))

    def example(self, index: int) -> AttentionMap | None:
        """The map of one entry of the first dimension; None if only the batch can be computed."""
        request = self.request
        if request is None or not request.leading or needs_noise(request.normalize):
            return None
        if tuple(self.shape[:-2]) != tuple(request.leading):
            return None
        self.map  # noqa: B018  raises if it is lost
        leading = len(request.leading)

        def own(tensor: Tensor) -> Tensor:
            if tensor.dim() < leading + 2:
                return tensor
            return tensor[index if len(tensor) > 1 else 0]

        mask = None if request.mask is None else BatchEntryMask(request.mask, index, request.grid)
        bias = None if request.bias is None else own(request.bias)
        one = replace(
            request,
            query=own(request.query),
            key=own(request.key),
            value=own(request.value),
            mask=mask,
            bias=bias,
            leading=request.leading[1:],
        )
        with torch.no_grad():
            return self._map(one)


class RecordedMap(AttentionMap):
    """The lazy map of a record as (batch, heads, M, N).

    Args:
        record: the call
        arrange: from the call's (..., rows, N) to (batch, heads, rows, N)
        shape: (batch, heads, M, N)
    """

    def __init__(
        self, record: Record, arrange: Callable[[Tensor], Tensor], shape: tuple[int, ...]
    ) -> None:
        super().__init__(self._weights, self._raw, shape)
        self.record, self.arrange = record, arrange

    def _weights(self, rows: slice) -> Tensor:
        return self.arrange(self.record.map[..., rows, :])

    def _raw(self, rows: slice) -> Tensor:
        return self.arrange(self.record.map.scores[..., rows, :])

    def example(self, index: int) -> AttentionMap | None:
        """One example, (heads, M, N), without computing the others; None if that is impossible."""
        one = self.record.example(index)
        if one is None:
            return None
        heads = self.shape[1]
        return one.changed(
            lambda rows: rows.reshape(heads, *rows.shape[-2:]), tuple(self.shape[1:])
        )


class BatchEntryMask(Mask):
    """One entry of the mask of a batch.

    >>> import torch
    >>> from regard.core.mask import lengths
    >>> grid = Grid(1, 3, 1, torch.device("cpu"))
    >>> BatchEntryMask(lengths(torch.tensor([3, 1])), 1, grid).dense(1, 3)
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


def _tensors(call: AttentionCall) -> list[tuple[str, Tensor]]:
    """The inputs of a map and the output, by name."""
    request, found = call.request, list(call.tensors)
    if isinstance(request, Request):
        found = [("value", request.value), *request.tensors()]
    return found if call.output is None else [*found, ("output", call.output)]


def _detached(request: Request, score: Any = None) -> Request:
    """The request detached from the autograd graph, with another score if one is given."""
    return replace(
        request,
        query=_detach(request.query),
        key=_detach(request.key),
        value=_detach(request.value),
        bias=None if request.bias is None else _detach(request.bias),
        score=request.score if score is None else score,
    )


def _detach(tensor: Tensor) -> Tensor:
    """The detached tensor; a parameter is copied, since an optimizer will change it."""
    if isinstance(tensor, nn.Parameter):
        return tensor.detach().clone()
    return tensor.detach() if tensor.requires_grad else tensor
