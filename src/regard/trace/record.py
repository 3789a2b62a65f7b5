"""What is kept of a call: references to what it was made of, from which its map is made later."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.watch import Report
from regard.core.blocks import block_rows
from regard.core.map import AttentionMap
from regard.core.mask import Grid, Mask
from regard.core.request import Request

TOLERANCE = 1e-3
"""How far weights · values may be from the output, relative to it, before a map counts as wrong."""


class Record:
    """A call as it was: its tensors by reference, its score with the parameters of that moment.

    Args:
        report: what the call reported
        request: the report's request with a score that no optimizer changes, or what makes it
    """

    def __init__(self, report: Report, request: Request | Callable[[], Request] | None) -> None:
        self._request, self._map, self._combine = request, report.map, report.combine
        self.shape = torch.Size(report.shape)
        tensors = report.tensors
        if isinstance(request, Request):
            tensors = (*request.tensors(), ("value", request.value))
        self.versions = [(name, tensor, _version(tensor)) for name, tensor in tensors]
        self._made: tuple[list[int | None], AttentionMap] | None = None
        output = report.output
        self.output = None if output is None else output.detach()
        self.output_version = None if output is None else _version(output)

    @cached_property
    def request(self) -> Request | None:
        """What was asked."""
        with torch.no_grad():
            return self._request() if callable(self._request) else self._request

    @property
    def map(self) -> AttentionMap:
        """The whole map, (..., M, N), lazy.

        Raises:
            RuntimeError: if what it is made of was changed in place since, and makes another
                output now
        """
        now = [_version(tensor) for _, tensor, _ in self.versions]
        if self._made is None or self._made[0] != now:
            with torch.no_grad():
                map = self._map(self.request)
            names = [
                name
                for (name, _, before), own in zip(self.versions, now, strict=True)
                if own != before
            ]
            if names and not self._still_true(map):
                raise RuntimeError(
                    f"{' and '.join(names)} of this call changed in place after it, so its map is "
                    "gone; read the map before that"
                )
            self._made = now, map
        return self._made[1]

    @cached_property
    def error(self) -> float | None:
        """max |weights · values − the output that the model really used|; None if unknowable."""
        return self._error(self.map)

    @torch.no_grad()
    def _error(self, map: AttentionMap) -> float | None:
        combine, output = self._combine, self.output
        if combine is None or output is None or _version(output) != self.output_version:
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
        """Whether the map makes the output that there was: then the change was elsewhere.

        A cache of keys grows in place behind the part that a call has read.
        """
        error = self._error(map)
        if error is None or self.output is None:
            return False
        return error <= TOLERANCE * max(1e-6, float(self.output.abs().max()))

    def example(self, index: int) -> AttentionMap | None:
        """The map of one entry of the first dimension, by itself; None if it takes the batch."""
        request = self.request
        if request is None or not request.leading or self.shape[:-2] != request.leading:
            return None
        if getattr(request.normalize, "needs_noise", False):
            return None
        self.map  # noqa: B018  looks whether it is still there
        leading = len(request.leading)

        def own(tensor: Tensor) -> Tensor:
            if tensor.dim() < leading + 2:
                return tensor
            return tensor[index if len(tensor) > 1 else 0]

        mask = None if request.mask is None else _OneOf(request.mask, index, request.grid)
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
        return self._map(one)


class Recorded(AttentionMap):
    """The map of a record as (batch, heads, M, N), which nobody has computed yet.

    Args:
        record: what was kept
        arrange: the record's (..., rows, N) to (batch, heads, rows, N)
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
        """One example, (heads, M, N), without computing the others; None if that cannot be."""
        one = self.record.example(index)
        if one is None:
            return None
        heads, shape = self.shape[1], self.shape[1:]

        def weights(rows: slice) -> Tensor:
            block = one[..., rows, :]
            return block.reshape(heads, *block.shape[-2:])

        def scores(rows: slice) -> Tensor:
            block = one.scores[..., rows, :]
            return block.reshape(heads, *block.shape[-2:])

        return AttentionMap(weights, scores, shape)


class Freezer:
    """Scores with copies of their parameters, each copied once for as long as it does not change.

    >>> score, freeze = nn.Linear(2, 3), Freezer()
    >>> kept = freeze(score)
    >>> _ = nn.init.zeros_(score.weight)
    >>> freeze(score) is kept, bool((kept.weight == 0).all())
    (False, False)
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[nn.Module, list[int | None], nn.Module]] = {}

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
        tensors = [*module.parameters(), *module.buffers()]
        if not tensors:
            return module
        versions = [_version(tensor) for tensor in tensors]
        kept = self._kept.get(id(module))
        if kept is None or kept[1] != versions:
            memo: dict[int, Any] = {id(tensor): tensor.detach().clone() for tensor in tensors}
            kept = module, versions, copy.deepcopy(module, memo)
            self._kept[id(module)] = kept
        return kept[2]


class _OneOf(Mask):
    """A mask of a batch, for one of its entries."""

    def __init__(self, mask: Mask, index: int, grid: Grid) -> None:
        self.mask, self.index, self.grid = mask, index, grid
        self.leading = max(mask.leading - 1, 0)

    def block(self, rows: slice, keys: slice, grid: Grid) -> Tensor:
        block = self.mask.block(rows, keys, self.grid)
        if block.dim() < self.grid.leading + 2:
            return block
        return block[self.index if len(block) > 1 else 0]

    def tensors(self) -> tuple[Tensor, ...]:
        return self.mask.tensors()

    def __repr__(self) -> str:
        return repr(self.mask)


def _version(tensor: Tensor) -> int | None:
    """How often a tensor was changed in place; torch does not count in inference mode."""
    return None if tensor.is_inference() else tensor._version
