"""Edit the attention of a model: hide, set, scale or replace a part, and compare its outputs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor

from regard.attention.dispatch import map_of
from regard.attention.observer import calling_module, observe
from regard.attention.record import CallRecord
from regard.core.mask import visible
from regard.core.normalize import softmax
from regard.core.request import Request
from regard.layers.role import SELF
from regard.trace.call import stitched
from regard.trace.modules import Modules, inner_module, without_fast_paths
from regard.trace.trace import Trace

TINY = 1e-30  # of a weight, whose logarithm is finite in every dtype

Numbers = int | Sequence[int] | None
"""One number, several, or all."""

Layers = str | Sequence[str]
"""Patterns of module names, such as "decoder.*"."""


@contextmanager
def edit(
    model: Any,
    layers: Layers = "*",
    *,
    heads: Numbers = None,
    queries: Numbers = None,
    keys: Numbers = None,
    cells: Sequence[tuple[int, int]] | None = None,
    weight: float = 0.0,
) -> Iterator["Edits"]:
    """Edit the attention of a model until the block ends, also if it ends with an exception.

    It works for the attention that `capture` records, of this library, torch and transformers.
    What to edit is said by the methods of the `Edits` that it yields; they take effect in the order
    in which they are called. A part given here is hidden, or set to `weight`, from the beginning.

    >>> from regard.layers import MultiHeadAttention
    >>> layer = MultiHeadAttention(6, heads=2).eval()
    >>> x = torch.randn(1, 3, 6)
    >>> with edit(layer) as edits:
    ...     edits.hide(word=2)
    ...     hidden = layer(x)
    >>> mask = torch.tensor([True, True, False])
    >>> torch.allclose(hidden, layer(x, mask=mask), atol=1e-6)
    True

    Args:
        model: a torch module, or an object with one as `.model`
        layers, heads, queries, keys, cells: see `Edits.hide`
        weight: see `Edits.set`

    Raises:
        ValueError: if no module has such a name, its attention cannot be edited so, or the block
            ends and an edit has met no call
    """
    module = inner_module(model, "edit")
    edits = Edits(Modules(module))
    parts: dict[str, Any] = {"head": heads, "query": queries, "key": keys, "cell": cells}
    if layers != "*" or any(part is not None for part in parts.values()):
        if weight:
            edits.set(layers, weight, **parts)
        else:
            edits.hide(layers, **parts)
    with edits.modules.observable(), without_fast_paths(), observe(edits._editor):
        yield edits
    edits._check_met()


class Edits:
    """The edits of one block.

    All methods select a part of the attention: `layers` are patterns of module names; `head`,
    `query`, `key` are one number or several, all if None; `cell` is a pair of a query and a key, or
    several. The part is the intersection of what is given. `word` is a key of every attention that
    reads the source, and of no other. In a decoder that goes step by step, a query is a step.
    """

    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        self._editor = Editor(modules)

    def hide(
        self,
        layers: Layers = "*",
        *,
        word: Numbers = None,
        head: Numbers = None,
        query: Numbers = None,
        key: Numbers = None,
        cell: Any = None,
    ) -> None:
        """Hide a part; the other weights of a row are normalized without it, as under any mask.

        `head=3` alone hides all keys from head 3, so that it adds nothing.
        """

        def hidden(request: Request, where: Place) -> Request:
            shown = visible(~where.cells)
            return replace(request, mask=shown if request.mask is None else request.mask & shown)

        self._add("hide", layers, word, head, query, key, cell, request=hidden)

    def set(
        self,
        layers: Layers,
        weights: float | Tensor,
        *,
        word: Numbers = None,
        head: Numbers = None,
        query: Numbers = None,
        key: Numbers = None,
        cell: Any = None,
    ) -> None:
        """Set weights, which needs softmax.

        Args:
            weights: of each selected cell, from 0 to 1: the other weights of its row keep their
                proportions. Or a row (N,), or a map (M, N) or (heads, M, N), whose rows add up to 1
        """
        if not isinstance(weights, Tensor) and not 0 <= weights <= 1:
            raise ValueError(f"weight should be from 0 to 1, got {weights}")
        if isinstance(weights, Tensor):
            total = weights.sum(-1)
            if not torch.allclose(total, torch.ones_like(total), atol=1e-4) or (weights < 0).any():
                raise ValueError("each row of weights should be 0 or above and add up to 1")

        def weighed(request: Request, where: Place) -> Request:
            return _weighed(request, where, weights)

        self._add("set", layers, word, head, query, key, cell, request=weighed)

    def zero_value(
        self, layers: Layers = "*", *, word: Numbers = None, key: Numbers = None
    ) -> None:
        """Set the values of keys to zero; all weights stay. Mohebbi et al. 2023."""

        def muted(request: Request, where: Place) -> Request:
            columns = where.cells.any(-2)  # (..., N)
            return replace(request, value=request.value.masked_fill(columns.unsqueeze(-1), 0.0))

        self._add("zero_value", layers, word, None, None, key, None, request=muted)

    def scale(
        self, layers: Layers, factor: float, *, head: Numbers = None, query: Numbers = None
    ) -> None:
        """Multiply the output of heads by a factor."""

        def scaled(output: Tensor, where: Place) -> Tensor:
            return output * factor

        self._add("scale", layers, None, head, query, None, None, output=scaled)

    def zero(self, layers: Layers, *, head: Numbers = None, query: Numbers = None) -> None:
        """Set the output of heads to zero."""
        self.scale(layers, 0.0, head=head, query=query)

    def mean(
        self,
        layers: Layers,
        *,
        source: Sequence[Trace],
        head: Numbers = None,
        query: Numbers = None,
    ) -> None:
        """Replace the output of heads by its mean over all positions of some traces."""
        means: dict[str, Tensor] = {}

        def mean(output: Tensor, where: Place) -> Tensor:
            if where.name not in means:
                outputs = [_outputs(trace, where.name) for trace in source]
                rows = [each.movedim(-3, 0).flatten(1, -2) for each in outputs]  # (heads, M, Dv)
                means[where.name] = torch.cat(rows, 1).mean(1)
            return means[where.name].to(output).view(*where.heads, 1, -1)

        self._add("mean", layers, None, head, query, None, None, output=mean)

    def patch(
        self, layers: Layers, *, source: Trace, head: Numbers = None, query: Numbers = None
    ) -> None:
        """Replace the output of heads by that of another input: activation patching.

        Args:
            source: of that input, of as many positions; names of its calls are those of the model
        """
        outputs: dict[str, Tensor] = {}

        def patched(output: Tensor, where: Place) -> Tensor:
            if where.name not in outputs:
                outputs[where.name] = _outputs(source, where.name)
            other = outputs[where.name][..., where.first : where.first + output.shape[-2], :]
            if other.shape[-2:] != output.shape[-2:]:
                raise ValueError(
                    f"{where.name!r} has {where.first + output.shape[-2]} positions, and "
                    f"{outputs[where.name].shape[-2]} in the source; patch needs inputs of one "
                    "length: pad one of them"
                )
            return other.to(output).reshape(*other.shape[:-3], *where.heads, *other.shape[-2:])

        self._add("patch", layers, None, head, query, None, None, output=patched)

    def compare(self, run: Callable[[], Any]) -> "Effect":
        """Run something twice, without and with the edits so far.

        >>> from regard.layers import MultiHeadAttention
        >>> layer, x = MultiHeadAttention(6, heads=2).eval(), torch.randn(1, 3, 6)
        >>> with torch.no_grad(), edit(layer, heads=[1]) as edits:
        ...     effect = edits.compare(lambda: layer(x))
        >>> effect.difference.shape
        torch.Size([1, 3, 6])

        Args:
            run: calls the model, or generates text with it
        """
        editor = self._editor
        editor.paused, editor.steps = True, {}
        try:
            before = run()
        finally:
            editor.paused, editor.steps = False, {}
        return Effect(before, run())

    def _add(
        self,
        kind: str,
        layers: Layers,
        word: Numbers,
        head: Numbers,
        query: Numbers,
        key: Numbers,
        cell: Any,
        **change: Any,
    ) -> None:
        patterns = [layers] if isinstance(layers, str) else list(layers)
        names = self.modules.by_name
        if not any(fnmatchcase(name, each) for name in names for each in patterns):
            raise ValueError(f"no module is named like {patterns}; see model.named_modules()")
        if word is not None and key is not None:
            raise ValueError("give word or key, not both: a word is a key of the source")
        is_pair = cell is not None and len(cell) > 0 and isinstance(cell[0], int)
        cells = None if cell is None else [cell] if is_pair else list(cell)
        keys = _listed(key if word is None else word)
        part = (_listed(head), _listed(query), keys, cells)
        self._editor.parts.append(Edit(kind, patterns, word is not None, *part, **change))

    def _check_met(self) -> None:
        for each in self._editor.parts:
            if not each.met:
                raise ValueError(
                    f"{each.kind} met no attention call of modules named like {each.patterns}; see "
                    "what regard.capture(model) records"
                )


class Effect:
    """What a run returned without and with edits.

    Args:
        before, after: tensors of logits, objects with `logits`, or anything else, such as a text
    """

    def __init__(self, before: Any, after: Any) -> None:
        self.before, self.after = before, after

    @property
    def difference(self) -> Tensor:
        """The logits after minus those before."""
        return _logits(self.after) - _logits(self.before)

    def probabilities(self, top: int = 5) -> tuple[Tensor, Tensor, Tensor]:
        """The likeliest tokens before or after: ids, and the probability of each before and after.

        Returns: three tensors (..., top)
        """
        before, after = (_logits(each).softmax(-1) for each in (self.before, self.after))
        ids = torch.maximum(before, after).topk(top, dim=-1).indices
        return ids, before.gather(-1, ids), after.gather(-1, ids)

    def __repr__(self) -> str:
        if all(isinstance(each, str) for each in (self.before, self.after)):
            return f"Effect({self.before!r} -> {self.after!r})"
        return f"Effect({type(self.before).__name__})"


def _logits(output: Any) -> Tensor:
    logits = getattr(output, "logits", output)
    if not isinstance(logits, Tensor):
        raise TypeError(
            f"logits are a tensor, or an attribute of the output, got {type(output).__name__}; "
            "read before and after instead"
        )
    return logits


@dataclass(eq=False)
class Place:
    """Where an edit applies in one call."""

    name: str  # of the module
    first: int  # position of the first query
    heads: torch.Size  # the leading dimensions without the batch
    cells: Tensor  # the selected ones, bool that broadcasts to (..., M, N)
    rows: Tensor  # the selected ones, bool that broadcasts to (..., M, 1)

    def of(self, rows: slice) -> "Place":
        """The place in some rows of the call."""
        own = self.rows if self.rows.shape[-2:-1] in ((), (1,)) else self.rows[..., rows, :]
        return replace(self, first=self.first + (rows.start or 0), rows=own)


@dataclass(eq=False)
class Edit:
    """A change of a part of the attention: of the request before a call, or of its output."""

    kind: str
    patterns: list[str]
    of_source: bool  # only attention that reads the source
    heads: list[int] | None
    queries: list[int] | None
    keys: list[int] | None
    cells: list[tuple[int, int]] | None
    request: Callable[[Request, Place], Request] | None = None
    output: Callable[[Tensor, Place], Tensor] | None = None
    met: bool = False

    def place(self, name: str, request: Request, first: int) -> Place:
        """Where the edit applies in a call whose first query has this position."""
        M, N, device = request.queries, request.keys, request.query.device
        heads = request.leading[1:] if request.has_batch else request.leading
        chosen = torch.ones((), dtype=torch.bool, device=device)
        if self.heads is not None and heads:
            count = heads.numel()
            if wrong := [head for head in self.heads if not 0 <= head < count]:
                raise ValueError(f"heads of {name!r} are 0 to {count - 1}, got {wrong[0]}")
            chosen = _selected(self.heads, range(count), device).view(*heads, 1, 1)
        rows = _selected(self.queries, range(first, first + M), device).unsqueeze(-1)
        cells = rows & _selected(self.keys, range(N), device)
        if self.cells is not None:
            cells = torch.zeros(M, N, dtype=torch.bool, device=device)
            for query, key in self.cells:
                if first <= query < first + M and 0 <= key < N:
                    cells[query - first, key] = True
        return Place(name, first, heads, cells & chosen, rows & chosen)

    def apply(self, request: Request, name: str, first: int) -> Request:
        """The request after this edit."""
        where = self.place(name, request, first)
        if self.request is not None:
            return self.request(request, where)
        before, change = request.edit_output, self.output
        assert change is not None

        def edit_output(output: Tensor, rows: slice) -> Tensor:
            output = output if before is None else before(output, rows)
            part = where.of(rows)
            return torch.where(part.rows, change(output, part).to(output.dtype), output)

        return replace(request, edit_output=edit_output)


class Editor:
    """An observer that applies edits, in order."""

    edits = True
    gradients = False

    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        self.parts: list[Edit] = []
        self.steps: dict[str, int] = {}  # queries so far, by the name of the module
        self.paused = False

    def edit(self, request: Request) -> Request:
        """The request after all edits of the module that makes the call."""
        name, parts = self._selected()
        if not parts:
            return request
        # a step of a decoder follows the queries before it; more queries are a new beginning
        first = self.steps.get(name, 0) if request.queries == 1 else 0
        self.steps[name] = first + request.queries
        for part in parts:
            part.met = True
            request = part.apply(request, name, first)
        return request

    def reject(self, reason: str) -> None:
        name, parts = self._selected()
        if parts:
            raise ValueError(f"the attention of {name!r} cannot be edited: {reason}")

    def notify(self, call: CallRecord) -> None: ...

    def _selected(self) -> tuple[str, list[Edit]]:
        """The name of the calling module, and the edits that apply to it."""
        module = calling_module.get()
        name = self.modules.name(module)
        if name is None or self.paused:
            return "", []
        reads_source = self.modules.role(module).keys == SELF.keys
        return name, [
            each
            for each in self.parts
            if any(fnmatchcase(name, pattern) for pattern in each.patterns)
            and (reads_source or not each.of_source)
        ]


def _weighed(request: Request, where: Place, weights: float | Tensor) -> Request:
    """The request with the bias that gives every selected cell its weight.

    softmax(s + b) is proportional to e^b · softmax(s), so b is the logarithm of the weight that a
    cell should have over the one that it has.
    """
    name, selected = where.name, where.cells
    if request.normalize is not softmax:
        raise ValueError(f"a weight can be set after softmax only, which {name!r} does not use")
    now = map_of(request).dense().double()  # (..., M, N)
    selected = selected.expand(now.shape)
    own = torch.as_tensor(weights, dtype=torch.float64, device=now.device)
    if own.dim():
        own = _rows(own, now, where)
    set_weights = (own * selected).sum(-1, keepdim=True)
    if (set_weights > 1 + 1e-4).any():
        most = int(selected.sum(-1).max())
        raise ValueError(f"weights of a row add up to 1: {most} cell(s) of {weights} do not")
    seen = request.visible(request.rows)
    if seen is not None and (selected & (own > 0) & ~seen).any():
        raise ValueError(f"a key that the mask of {name!r} hides cannot get a weight")
    rest = now.masked_fill(selected, 0.0).sum(-1, keepdim=True)
    ratio = torch.where(
        selected, own / now.clamp(min=TINY), (1 - set_weights) / rest.clamp(min=TINY)
    )
    bias = torch.where(selected.any(-1, keepdim=True), ratio.clamp(min=TINY).log(), 0.0)
    bias = bias.to(request.query.dtype)
    return replace(request, bias=bias if request.bias is None else request.bias + bias)


def _rows(weights: Tensor, now: Tensor, where: Place) -> Tensor:
    """The rows of a row (N,) or a map (M, N) or (heads, M, N) for the queries of a call."""
    M, N = now.shape[-2:]
    if weights.dim() > 1:
        weights = weights[..., where.first : where.first + M, :]
    if weights.dim() == 3:
        weights = weights.reshape(*where.heads, *weights.shape[-2:])
    try:
        return weights.expand(now.shape)
    except RuntimeError:
        raise ValueError(
            f"{where.name!r} has {M} queries from {where.first} and {N} keys, and the weights to "
            f"set are {tuple(weights.shape)}; give a row (N,), or a map (M, N) or (heads, M, N)"
        ) from None


def _outputs(trace: Trace, name: str) -> Tensor:
    """The outputs of the heads of a module in a trace, (heads, M, Dv), or with a batch before."""
    steps = [call for call in trace if call.name.partition("#")[0] == name]
    output = stitched(steps)[0].output if steps else None
    if output is None:
        raise ValueError(
            f"the source has no outputs of {name!r}: record it with regard.capture(model); it has "
            f"{', '.join(trace.names) or 'no calls'}"
        )
    return output


def _listed(numbers: Numbers) -> list[int] | None:
    return None if numbers is None else [numbers] if isinstance(numbers, int) else list(numbers)


def _selected(numbers: Sequence[int] | None, among: range, device: Any) -> Tensor:
    """Whether each of a range is selected, bool (length,), or (1,) for all of them."""
    if numbers is None:
        return torch.ones(1, dtype=torch.bool, device=device)
    return torch.tensor([number in numbers for number in among], dtype=torch.bool, device=device)
