"""Hide a part of the attention of a model or set its weights, to see how its output changes."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.dispatch import map_of
from regard.attention.observer import calling_module, observe
from regard.attention.record import CallRecord
from regard.core.mask import visible
from regard.core.normalize import softmax
from regard.core.request import Request
from regard.trace.modules import Modules

TINY = 1e-30  # of a weight, whose logarithm is finite in every dtype


@contextmanager
def edit(
    model: nn.Module,
    layers: str | Sequence[str] = "*",
    *,
    heads: Sequence[int] | None = None,
    queries: Sequence[int] | None = None,
    keys: Sequence[int] | None = None,
    cells: Sequence[tuple[int, int]] | None = None,
    weight: float = 0.0,
) -> Iterator[None]:
    """Hide a part of the attention of a model, or set its weights, until the block ends.

    The part is the intersection of what is given: `heads=[3]` hides all keys from head 3, so that
    it adds nothing; `keys=[2]` hides key 2 from all heads and queries; `heads=[3], keys=[2]` hides
    key 2 from head 3; `cells=[(1, 2)]` hides key 2 from query 1. The other weights of a row are
    normalized without the hidden ones, as under any mask. It works for the attention that `capture`
    records, of this library, torch and transformers; an edit without any effect warns.

    With `weight`, each cell of the part gets this weight instead, and the other weights of its row
    keep their proportions: `cells=[(1, 2)], weight=0.7` leaves 0.3 to the other keys of query 1.
    That needs softmax.

    >>> from regard.layers import MultiHeadAttention
    >>> layer = MultiHeadAttention(6, heads=2).eval()
    >>> x = torch.randn(1, 3, 6)
    >>> with edit(layer, keys=[2]):
    ...     hidden = layer(x)
    >>> mask = torch.tensor([True, True, False])
    >>> torch.allclose(hidden, layer(x, mask=mask), atol=1e-6)
    True

    Args:
        model: a torch module
        layers: patterns of module names, such as "decoder.*"
        heads: numbers of heads
        queries, keys: positions; in a decoder that goes step by step, a query is a step
        cells: pairs of a query and a key
        weight: from 0, which hides, to 1

    Raises:
        ValueError: if no module has such a name, or its attention cannot be edited so
    """
    if not 0 <= weight <= 1:
        raise ValueError(f"weight should be from 0 to 1, got {weight}")
    patterns = [layers] if isinstance(layers, str) else list(layers)
    modules = Modules(model)
    if not any(fnmatchcase(name, each) for name in modules.by_name for each in patterns):
        raise ValueError(f"no module is named like {patterns}; see model.named_modules()")
    editor = Editor(modules, patterns, heads, queries, keys, cells, weight)
    with modules.observable(), _without_fast_paths(), observe(editor):
        yield
    if not editor.edited:
        warnings.warn(
            f"edit changed no attention call: modules named like {patterns} made none that is "
            "visible; see what regard.capture(model) records",
            stacklevel=3,
        )


@contextmanager
def _without_fast_paths() -> Iterator[None]:
    """Keep torch's modules from their fused layers, whose attention cannot be edited."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


class Editor:
    """An observer that hides a part of what calls may attend to, or sets its weights."""

    edits = True

    def __init__(
        self,
        modules: Modules,
        patterns: list[str],
        heads: Sequence[int] | None,
        queries: Sequence[int] | None,
        keys: Sequence[int] | None,
        cells: Sequence[tuple[int, int]] | None,
        weight: float,
    ) -> None:
        self.modules, self.patterns = modules, patterns
        self.heads, self.queries, self.keys, self.cells = heads, queries, keys, cells
        self.weight = weight
        self.steps: dict[str, int] = {}
        self.edited = False

    def edit(self, request: Request) -> Request:
        """The request with a mask that hides the selected part, or a bias that weighs it."""
        name = self._name()
        if name is None:
            return request
        self.edited = True
        first = 0
        if request.queries == 1:  # one step of a decoder
            first = self.steps.get(name, 0)
            self.steps[name] = first + 1
        selected = self._cells(request, first) & self._heads(request)
        if self.weight:
            return self._weighed(request, selected, name)
        shown = visible(~selected)
        mask = shown if request.mask is None else request.mask & shown
        return replace(request, mask=mask)

    def _weighed(self, request: Request, selected: Tensor, name: str) -> Request:
        """The request with the bias that gives every selected cell `weight`.

        softmax(s + b) is proportional to e^b · softmax(s), so b is the logarithm of the weight that
        a cell should have over the one that it has.
        """
        if request.normalize is not softmax:
            raise ValueError(f"a weight can be set after softmax only, which {name!r} does not use")
        now = map_of(request).dense().double()  # (..., M, N)
        selected = selected.expand(now.shape)
        given = self.weight * selected.sum(-1, keepdim=True)
        if (given > 1 + 1e-9).any():
            most = int(selected.sum(-1).max())
            raise ValueError(
                f"weights of a row add up to 1: {most} cell(s) of {self.weight} do not"
            )
        seen = request.visible(request.rows)
        if seen is not None and (selected & ~seen).any():
            raise ValueError(f"a key that the mask of {name!r} hides cannot get a weight")
        rest = now.masked_fill(selected, 0.0).sum(-1, keepdim=True)
        wanted = torch.where(
            selected, self.weight / now.clamp(min=TINY), (1 - given) / rest.clamp(min=TINY)
        )
        bias = torch.where(selected.any(-1, keepdim=True), wanted.clamp(min=TINY).log(), 0.0)
        bias = bias.to(request.query.dtype)
        return replace(request, bias=bias if request.bias is None else request.bias + bias)

    def reject(self, reason: str) -> None:
        name = self._name()
        if name is not None:
            raise ValueError(f"the attention of {name!r} cannot be edited: {reason}")

    def notify(self, call: CallRecord) -> None: ...

    def _name(self) -> str | None:
        """The name of the calling module, if it is to be edited."""
        name = self.modules.name(calling_module.get())
        if name is None or not any(fnmatchcase(name, each) for each in self.patterns):
            return None
        return name

    def _cells(self, request: Request, first: int) -> Tensor:
        """The selected cells, bool (M or 1, N or 1)."""
        M, N, device = request.queries, request.keys, request.query.device
        if self.cells is not None:
            hidden = torch.zeros(M, N, dtype=torch.bool, device=device)
            for query, key in self.cells:
                if first <= query < first + M and 0 <= key < N:
                    hidden[query - first, key] = True
            return hidden
        rows = _selected(self.queries, range(first, first + M), device)
        columns = _selected(self.keys, range(N), device)
        return rows.unsqueeze(-1) & columns

    def _heads(self, request: Request) -> Tensor:
        """The selected heads, bool (..., heads, 1, 1)."""
        shape = request.leading[1:] if request.has_batch else request.leading
        if self.heads is None or not shape:
            return torch.ones((), dtype=torch.bool, device=request.query.device)
        chosen = _selected(self.heads, range(shape.numel()), request.query.device)
        return chosen.view(*shape, 1, 1)


def _selected(numbers: Sequence[int] | None, among: range, device: Any) -> Tensor:
    """Whether each of a range is selected, bool (length,), or (1,) for all of them."""
    if numbers is None:
        return torch.ones(1, dtype=torch.bool, device=device)
    return torch.tensor([number in numbers for number in among], dtype=torch.bool, device=device)
