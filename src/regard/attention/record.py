"""The record of an attention call: what was kept of it, and the lazy map that follows from it."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from regard.core.blocks import block_rows
from regard.core.lower import copy_module
from regard.core.map import AttentionMap, Rows
from regard.core.normalize import NORMALIZERS
from regard.core.request import Request, detached
from regard.core.score import SCORES
from regard.paths.choice import PATHS

TOLERANCE = 1e-3
"""The largest difference of weights · values from the output, relative to it, of a right map."""

Combine = Callable[[Any, Tensor, slice], Tensor]


class LayerInputs(NamedTuple):
    """What W_Q, W_K and W_V of a layer received, (batch, length, dim) each."""

    inputs: tuple[Tensor, Tensor, Tensor]
    projections: tuple[nn.Module, ...] = ()  # as they were; () for torch's own, known exactly
    output: nn.Module | None = None  # W_O as it was

    def project(self) -> list[Tensor] | None:
        """X·W_Q, X·W_K and X·W_V, (batch, length, heads · width); None if they are not known."""
        if not self.projections:
            return None
        if len(self.projections) == 1:
            return list(self.projections[0](self.inputs[0]).chunk(3, dim=-1))
        return [each(x) for each, x in zip(self.projections, self.inputs, strict=True)]

    def example(self, index: int, batch: int) -> "LayerInputs | None":
        """The inputs of one example; None if they are not those of this batch."""
        if any(len(x) not in (1, batch) for x in self.inputs):
            return None
        query, key, value = (x[index if len(x) == batch else 0] for x in self.inputs)
        return self._replace(inputs=(query, key, value))


class Growing(Protocol):
    """What several calls share that are steps of one."""

    def grow(self, record: "CallRecord") -> None:
        """Let the record of the first step be of all steps so far."""
        ...


@dataclass(eq=False)
class CallRecord:
    """An attention call, by reference: nothing is computed for it until its map is read.

    The record of a call that observers are notified of is differentiable; `kept` is the one that a
    trace holds, detached and with the parameters of that moment.

    Args:
        value: (..., N, Dv)
        output: (..., M, Dv); None if the call only wrote
        shape: of the map, (..., M, N)
        path: what computed it
        source: the request, or what makes it; None if there is none
        make_map: from the request to the map
        combine: from rows of the map to rows of the output, as the call did; None if that cannot
            be repeated, because torch's own dropout came between
        part: of the module: one step of a memory both reads and writes
        tensors: the inputs of a request that is yet to be made, by name
        module: that called; None outside of methods with `@observed`
        weights: of the map, or of edges (E, heads), if the call computed them
        layer_inputs: three, before the projections
        has_batch: whether the first leading dimension of the map is the batch
        layer: what the projections of the module received, if a trace asked for it
        output_gradient: ∂L/∂output, if a trace asked for it and backward has run
        about: more of its provenance
        grows: what lets a record of an earlier call be of this one too, if this one goes on from it
        discarded: filled when the call turns out not to be attention of queries to keys
        result: the tensor that the model goes on with, and what makes the output of it, if the
            output is a view that no gradient reaches
        attached: the tensor of the autograd graph, if a trace asked for its gradient
    """

    value: Tensor
    output: Tensor | None
    shape: tuple[int, ...]
    path: str
    source: Request | Callable[[], Request] | None
    make_map: Callable[[Any], AttentionMap]
    combine: Combine | None
    part: str = ""
    tensors: tuple[tuple[str, Tensor], ...] = ()
    module: nn.Module | None = None
    weights: Tensor | None = None
    layer_inputs: Callable[[], tuple[Tensor, ...]] | None = None
    has_batch: bool = True
    layer: LayerInputs | None = None
    output_gradient: Tensor | None = None
    about: dict[str, Any] = field(default_factory=dict)
    grows: "Growing | None" = None
    discarded: list[bool] = field(default_factory=list)
    result: tuple[Tensor, Callable[[Tensor], Tensor]] | None = None
    attached: Tensor | None = None

    _is_kept: bool = False
    _versions: list[int] | None = None  # of its tensors; torch does not count in inference mode
    _made: tuple[list[int] | None, AttentionMap] | None = None

    def kept(self, freeze: "Freezer") -> "CallRecord":
        """The record as it is now: outside of the autograd graph, with copies of parameters."""
        record, request = copy.copy(self), self.source
        record._is_kept, record.result = True, None
        has_gradient = self.output is not None and self.output.requires_grad
        if callable(request) and self.value.is_inference():
            request = record.source = request()  # now: torch would not notice a change later
        if isinstance(request, Request):
            score = freeze(request.score)
            request = (request.detached() if has_gradient else request).retained()
            record.source = request if score is request.score else replace(request, score=score)
        if has_gradient and self.output is not None:
            record.output, record.value = detached(self.output), detached(self.value)
        if not self.value.is_inference():
            record._versions = [tensor._version for _, tensor in record._tensors]
        return record

    def keep_gradient(self, record: "CallRecord") -> None:
        """Let backward store ∂L/∂output in a record that was kept of this call."""
        if self.output is None:
            return
        tensor, arrange = self.result or (self.output, lambda gradient: gradient)
        if not tensor.requires_grad:  # of a frozen model
            tensor.requires_grad_()
        record.attached = tensor

        def store(gradient: Tensor) -> None:
            own, before = arrange(gradient.detach()), record.output_gradient
            record.output_gradient = own if before is None else before + own

        tensor.register_hook(store)

    @property
    def _tensors(self) -> list[tuple[str, Tensor]]:
        """The inputs of a map and the output, by name."""
        named = list(self.tensors)
        if isinstance(self.source, Request):
            named = [("value", self.source.value), *self.source.tensors()]
        return named if self.output is None else [*named, ("output", self.output)]

    @cached_property
    def request(self) -> Request | None:
        """The request of the call; None if it has none."""
        if not callable(self.source):
            return self.source
        with self._grad_mode():
            return self.source()

    def _grad_mode(self) -> torch.set_grad_enabled:
        return torch.set_grad_enabled(torch.is_grad_enabled() and not self._is_kept)

    @property
    def map(self) -> AttentionMap:
        """The whole map, (..., M, N), lazy.

        Raises:
            RuntimeError: if the inputs were changed in place since, and give another output now
        """
        now = self._now()
        if self._made is None or self._made[0] != now:
            with self._grad_mode():
                map = self.make_map(self.request)
            changed = [name for name in self._changed() if name != "output"]
            if changed and not self._still_true(map):
                raise RuntimeError(
                    f"{' and '.join(changed)} of this call changed in place after it, so its map "
                    "is lost; read the map before that"
                )
            self._made = now, map
        return self._made[1]

    @property
    def gradient(self) -> Rows | None:
        """∂L/∂W, lazy; None if the gradient of the output is not known.

        For weights · values it is G · Vᵀ, where G is the gradient of the output.
        """
        combine, given = self.combine, self.output_gradient
        if combine is None or given is None or "output" in self._changed():
            return None

        def rows(some: slice) -> Tensor:
            with torch.no_grad():  # of what the request was made of
                weights = self.map[..., some, :]
            with torch.enable_grad():
                weights = weights.detach().requires_grad_()
                output = combine(self.request, weights, some)
                grad_output = given[..., some, :].to(output.dtype)
                (gradient,) = torch.autograd.grad(output, weights, grad_output)
            return gradient

        return Rows(rows, self.map.shape)  # which may group heads, unlike the output

    def _now(self) -> list[int] | None:
        return self._versions and [tensor._version for _, tensor in self._tensors]

    def _changed(self) -> list[str]:
        """Which tensors were changed in place."""
        pairs = zip(self._tensors, self._versions or (), self._now() or (), strict=False)
        return [name for (name, _), before, now in pairs if before != now]

    @cached_property
    def error(self) -> float | None:
        """max |weights · values − the output of the model|; None if that cannot be computed."""
        return self._error(self.map)

    @torch.no_grad()
    def _error(self, map: AttentionMap) -> float | None:
        combine, output = self.combine, self.output
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

    def by_head(self) -> AttentionMap:
        """The lazy map as (batch, heads, M, N).

        A single leading dimension is the batch, or heads without a batch; of three, the last two
        are groups of heads that share keys.
        """
        M, N = self.shape[-2:]
        new = self._batch_and_heads()

        def weights(rows: slice) -> Tensor:
            return _reshaped(self.map[..., rows, :], new)

        def scores(rows: slice) -> Tensor:
            return _reshaped(self.map.scores[..., rows, :], new)

        return AttentionMap(weights, scores, (*new, M, N), self._example)

    def output_by_head(self) -> Tensor | None:
        """The output of each head, (batch, heads, M, Dv); None if it is not known."""
        new, M = self._batch_and_heads(), self.shape[-2]
        if self.output is not None and self.output.shape[:-1] == self.shape[:-1]:
            return self.output.detach().reshape(*new, M, -1)
        if self.request is None:  # weights · values before W_O
            return None
        request, map = self.request, self.map
        step, parts = block_rows(map.shape[:-2].numel() * map.shape[-1]), []
        with torch.no_grad():
            for start in range(0, M, step):
                rows = slice(start, min(start + step, M))
                weights = map[..., rows, :]
                parts.append(request.edited(weights @ request.value.to(weights.dtype), rows))
        return torch.cat(parts, dim=-2).reshape(*new, M, -1)

    def gradient_by_head(self) -> Rows | None:
        """∂L/∂W as (batch, heads, M, N), lazy; None if it is not known."""
        gradient, new = self.gradient, self._batch_and_heads()
        if gradient is None:
            return None
        shape = (*new, *self.shape[-2:])
        return Rows(lambda rows: _reshaped(gradient[..., rows, :], new), shape)

    def _batch_and_heads(self) -> tuple[int, int]:
        leading = list(self.shape[:-2]) if self.has_batch else [1, *self.shape[:-2]]
        batch, *heads = leading or [1]
        return batch, torch.Size(heads).numel()

    def _example(self, index: int) -> AttentionMap | None:
        """The map of one entry, (heads, M, N); None if only the batch can be computed."""
        if self.request is None or tuple(self.shape[:-2]) != tuple(self.request.leading):
            return None
        request = self.request.example(index)
        if request is None:
            return None
        self.map  # noqa: B018  raises if it is lost
        with torch.no_grad():
            one = self.make_map(request)
        heads = self._batch_and_heads()[1]
        shape = (heads, *self.shape[-2:])
        return one.changed(lambda rows: rows.reshape(heads, *rows.shape[-2:]), shape)

    @property
    def provenance(self) -> dict[str, Any]:
        """The path, dtype, score, normalizer, mask and dropout, as far as they are known."""
        about: dict[str, Any] = {"path": self.path, "dtype": str(self.value.dtype)[6:]}
        request = self.request if self.path in PATHS else self.source
        if isinstance(request, Request):
            about["score"] = _name_of(request.score, SCORES)
            about["normalizer"] = _name_of(request.normalize, NORMALIZERS)
            about["mask"] = None if request.mask is None else repr(request.mask)
            if request.dropout:
                about["dropout"] = request.dropout
        return about | self.about


def _reshaped(rows: Tensor, leading: tuple[int, int]) -> Tensor:
    return rows.reshape(*leading, *rows.shape[-2:])


def _name_of(thing: Any, known: dict[str, Any]) -> str:
    """The name of a score or normalizer."""
    for name, each in known.items():
        if each is thing:
            return name
    return getattr(thing, "__name__", type(thing).__name__)


class Freezer:
    """Copies scores with their parameters, again only if a parameter has changed.

    >>> score, freeze = nn.Linear(2, 3), Freezer()
    >>> kept = freeze(score)
    >>> _ = nn.init.zeros_(score.weight)
    >>> freeze(score) is kept, bool((kept.weight == 0).all())
    (False, False)
    """

    def __init__(self) -> None:
        self._copies: dict[int, _Copy] = {}

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
        own = self._copies.get(id(module))
        if own is None:
            if not (module._parameters or module._buffers or module._modules):
                return module
            tensors = [*module.parameters(), *module.buffers()]
            own = self._copies[id(module)] = _Copy(module, tensors)
        return own.now()


class _Copy:
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
