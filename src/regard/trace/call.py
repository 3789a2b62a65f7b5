"""One attention call: its map, its inputs, parts of it, and the steps of a decoder as one call."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.record import LayerInputs
from regard.core.map import AttentionMap, Rows, full_index
from regard.core.mask import Grid, Mask

LARGEST_READ = 2**25
"""Most weights of a map from a file, or numbers of its inputs, that are read at once."""


class Inputs(NamedTuple):
    """The inputs of an attention call, from which it can be computed step by step."""

    query: Tensor  # (..., M, Dq)
    key: Tensor  # (..., N, Dk)
    value: Tensor  # (..., N, Dv)
    score: Any  # a Score: (query, key) -> (..., M, N)
    mask: Mask | None
    bias: Tensor | None
    normalize: Callable[..., Tensor] | None
    output: nn.Module | None = None  # W_O, which the concatenated heads go through
    layer: LayerInputs | None = None  # what W_Q, W_K and W_V received; None if not recorded
    has_projections: bool = False  # whether the layer is known to have W_Q, W_K and W_V


DISTRIBUTIONS = (None, "softmax", "sparsemax", "entmax15", "hard")  # None: not recorded


@dataclass(eq=False)
class Call:
    """A map with its name, the token lists of its rows and columns, and its provenance.

    >>> call = Call("cross", torch.tensor([[[0.25, 0.75]]]))
    >>> call.heads, call.map.dense().tolist()
    (1, [[[0.25, 0.75]]])

    Args:
        name: the name of the module in the model, such as "decoder.layers.0.memory_attention"; a
            second call of the same module is "name#2"
        map: (heads, M, N) of one example, or (batch, heads, M, N); lazy, or a tensor
        queries: the token list of the rows, "target" or "source"
        keys: the token list of the columns
        provenance: role, path, reason, dtype, score, normalizer, error, ...
        made_of: returns the inputs of the call; None if they were not kept
        checked: returns max |weights · values − output|, or None if that is not known
        gradient_of: returns ∂L/∂W, a lazy tensor of the shape of the map, or None
        output_of: returns the outputs of the heads, (heads, M, Dv) or with a batch, or None
    """

    name: str
    map: AttentionMap
    queries: str = "target"
    keys: str = "source"
    provenance: dict[str, Any] = field(default_factory=dict)
    made_of: Callable[[], Inputs] | None = None
    checked: Callable[[], float | None] | None = None
    gradient_of: Callable[[], Rows | None] | None = None
    output_of: Callable[[], Tensor | None] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.map, Tensor):
            self.map = AttentionMap.of(self.map)
        if not 3 <= len(self.map.shape) <= 4:
            raise ValueError(
                f"the map of {self.name!r} should be (heads, M, N) or (batch, heads, M, N), got "
                f"{tuple(self.map.shape)}"
            )

    @property
    def inputs(self) -> Inputs | None:
        """The inputs of the call; None if they were not kept."""
        return None if self.made_of is None else self.made_of()

    @property
    def gradient(self) -> Rows | None:
        """∂L/∂W for the backward that ran, G · Vᵀ by rows, as lazy as the map.

        None unless the call was recorded with `capture(model, gradients=True)` and backward has
        reached it.
        """
        return None if self.gradient_of is None else self.gradient_of()

    @property
    def output(self) -> Tensor | None:
        """What each head adds up, weights · values: (heads, M, Dv), or with a batch before."""
        return None if self.output_of is None else self.output_of()

    def verify(self) -> float | None:
        """The largest difference between weights · values and the output of the model.

        It is stored in the provenance as "error"; None if dropout came between, or for calls whose
        output is not known.
        """
        if self.checked is not None and "error" not in self.provenance:
            self.provenance["error"] = self.checked()
        return self.provenance.get("error")

    @property
    def role(self) -> str:
        """What the attention is called: "masked decoder self-attention"; "" if not known."""
        return str(self.provenance.get("role", ""))

    @property
    def title(self) -> str:
        """The role and the name, for people."""
        return f"{self.role}: {self.name}" if self.role else self.name

    @property
    def is_distribution(self) -> bool:
        """Whether rows sum to one at most; with another normalizer they need not."""
        return self.provenance.get("normalizer") in DISTRIBUTIONS

    @property
    def heads(self) -> int:
        return self.map.shape[-3]

    @property
    def shape(self) -> torch.Size:
        return self.map.shape

    @property
    def batch(self) -> int | None:
        """The number of examples; None if this is a call of one."""
        return self.map.shape[0] if len(self.map.shape) == 4 else None

    def of(self, example: int, rows: int | None = None, columns: int | None = None) -> "Call":
        """One example of a batch, as (heads, M, N), without padding.

        Args:
            rows, columns: how many of its queries and keys to keep; all if None
        """
        if self.batch is None:
            raise ValueError(f"{self.name!r} has one example only, not a batch")
        if not -self.batch <= example < self.batch:
            raise IndexError(f"example {example} of a batch of {self.batch}")
        map = self.map.example(example % self.batch).part((), slice(rows), slice(columns))
        made_of, batch = self.made_of, self.batch
        one = None if made_of is None else lambda: _of(made_of(), batch, example)
        gradient = _selected(self.gradient_of, (example % batch, ..., slice(rows), slice(columns)))
        output = _part(self.output_of, (example % batch, ..., slice(rows), slice(None)))
        return replace(self, map=map, made_of=one, gradient_of=gradient, output_of=output)

    def select(self, heads: Sequence[int] | None = None, rows: slice | None = None) -> "Call":
        """Select heads and rows of the map; the provenance stores which. The inputs stay whole."""
        map, about = self.map, dict(self.provenance)
        if heads is not None:
            wrong = [head for head in heads if not 0 <= head < self.heads]
            if wrong or not heads:
                raise ValueError(f"heads of {self.name!r} are 0 to {self.heads - 1}, got {heads}")
            before = about.get("heads", list(range(self.heads)))
            about["heads"] = [before[head] for head in heads]
            shape = (*map.shape[:-3], len(heads), *map.shape[-2:])
            map = map.changed(lambda rows: rows[..., list(heads), :, :], shape)
        if rows is not None:
            kept = range(self.shape[-2])[rows]
            before = about.get("rows", list(range(self.shape[-2])))
            about["rows"] = [before[row] for row in kept]
            map = map.part((), rows, slice(None))
        own = slice(None) if heads is None else list(heads)
        which = slice(None) if rows is None else rows
        gradient = _selected(self.gradient_of, (..., which, slice(None)), own)
        output = _part(self.output_of, (..., own, which, slice(None)))
        return replace(self, map=map, provenance=about, gradient_of=gradient, output_of=output)

    def __repr__(self) -> str:
        return f"Call({self.name!r}, {self.queries} × {self.keys}, {tuple(self.shape)})"

    def _repr_html_(self) -> str:
        return f"<div>{escape(repr(self))}</div>{self.map._repr_html_()}"


class LimitedMap(AttentionMap):
    """A map of an untrusted file, which refuses to give out too many weights at once."""

    def _like(self, *parts: Any) -> AttentionMap:
        return LimitedMap(*parts)

    def __getitem__(self, index: Any) -> Tensor:
        parts = full_index(index, self.shape)
        sizes = [
            len(range(size)[part]) if isinstance(part, slice) else 1
            for part, size in zip(parts, self.shape, strict=True)
        ]
        check_count(sizes)
        return super().__getitem__(index)


def check_count(shape: Sequence[int]) -> None:
    """Raise if a tensor of this shape is more than `LARGEST_READ`."""
    count = math.prod(shape)
    if count > LARGEST_READ:
        raise ValueError(
            f"{count} weights at once are more than {LARGEST_READ}; read some of the rows, as in "
            "map[..., :100, :], or map.pooled(256)"
        )


def _selected(
    gradient_of: Callable[[], Rows | None] | None,
    index: tuple[Any, ...],
    heads: slice | list[int] = slice(None),
) -> Callable[[], Rows | None] | None:
    """What returns a part of a gradient, if there is one."""
    if gradient_of is None:
        return None

    def part() -> Rows | None:
        whole = gradient_of()
        return None if whole is None else Rows.of(whole[index][..., heads, :, :])

    return part


def _part(
    output_of: Callable[[], Tensor | None] | None, index: tuple[Any, ...]
) -> Callable[[], Tensor | None] | None:
    """What returns a part of the outputs of heads, if they are known."""
    if output_of is None:
        return None

    def part() -> Tensor | None:
        whole = output_of()
        return None if whole is None else whole[index]

    return part


def _of(inputs: Inputs, batch: int, example: int) -> Inputs:
    """The inputs of one example; what all examples share is unchanged."""

    def own(tensor: Tensor) -> Tensor:
        return tensor[example] if tensor.dim() > 3 and len(tensor) == batch else tensor

    bias = None if inputs.bias is None else own(inputs.bias)
    layer = None if inputs.layer is None else inputs.layer.example(example % batch, batch)
    query, key, value = own(inputs.query), own(inputs.key), own(inputs.value)
    size = (inputs.query.shape[-2], inputs.key.shape[-2], inputs.query.dim() - 2)
    grid = Grid(*size, inputs.query.device)
    mask = None if inputs.mask is None else inputs.mask.example(example % batch, grid)
    return inputs._replace(query=query, key=key, value=value, bias=bias, mask=mask, layer=layer)


def stitched(calls: Sequence[Call]) -> list[Call]:
    """Join the calls of each module, row below row, in order.

    A decoder that goes step by step makes one call for each token: a row at a time, and over its
    own past with one more key at a time. Key j is position j in all of them, so shorter rows are
    padded with zeros.

    >>> steps = [Call("self", torch.ones(1, 1, 1)), Call("self#2", torch.full((1, 1, 2), 0.5))]
    >>> stitched(steps)[0].map.dense()
    tensor([[[1.0000, 0.0000],
             [0.5000, 0.5000]]])

    Raises:
        ValueError: if the calls of a module differ in batch size or heads: beams, or sentences
            that finished early
    """
    modules: dict[str, list[Call]] = {}
    for call in calls:
        modules.setdefault(call.name.partition("#")[0], []).append(call)
    return [_joined(name, steps) for name, steps in modules.items()]


def _joined(name: str, steps: list[Call]) -> Call:
    first = steps[0]
    leading = {step.shape[:-2] for step in steps}
    if len(leading) > 1:
        shapes = ", ".join(str(tuple(shape)) for shape in sorted(leading))
        raise ValueError(
            f"the calls of {name!r} have different batches {shapes}, so they are not the steps "
            "of one decoder; decode one sentence at a time, and to see a beam, decode its output "
            "again by teacher forcing"
        )
    if len(steps) == 1:
        return first
    width = max(step.shape[-1] for step in steps)
    ends = list(accumulate(step.shape[-2] for step in steps))
    shape = (*first.shape[:-2], ends[-1], width)

    def rows(read: Callable[[Call, slice], Tensor]) -> Callable[[slice], Tensor]:
        def some(which: slice) -> Tensor:
            parts = []
            for step, end in zip(steps, ends, strict=True):
                begin = end - step.shape[-2]
                low, high = max(which.start, begin) - begin, min(which.stop, end) - begin
                if low < high:
                    part = read(step, slice(low, high))
                    parts.append(F.pad(part, (0, width - part.shape[-1])))
            return torch.cat(parts, dim=-2) if parts else torch.zeros(*shape[:-2], 0, width)

        return some

    scored = all(step.map._scores is not None for step in steps)
    map = first.map._like(
        rows(lambda step, some: step.map[..., some, :]),
        rows(lambda step, some: step.map.scores[..., some, :]) if scored else None,
        shape,
    )
    about = {**first.provenance, "steps": len(steps)}
    about.pop("error", None)
    made_of = _made_of([step.made_of for step in steps])

    def gradient() -> Rows | None:
        if any(step.gradient is None for step in steps):
            return None
        return Rows(rows(lambda step, some: step.gradient[..., some, :]), shape)  # type: ignore

    def output() -> Tensor | None:
        parts = [part for step in steps if (part := step.output) is not None]
        return torch.cat(parts, dim=-2) if len(parts) == len(steps) else None

    return replace(
        first,
        name=name,
        map=map,
        provenance=about,
        made_of=made_of,
        checked=lambda: _worst(steps),
        gradient_of=gradient,
        output_of=output,
    )


def _made_of(steps: list[Callable[[], Inputs] | None]) -> Callable[[], Inputs] | None:
    """The queries of all steps, row below row; None unless the steps have the same keys.

    Steps over a memory have keys of one shape; those over their own past do not.
    """
    known = [step for step in steps if step is not None]
    if len(known) < len(steps) or len({step().key.shape for step in known}) > 1:
        return None
    query = torch.cat([step().query for step in known], dim=-2)
    layers = [layer for step in known if (layer := step().layer) is not None]
    joined: LayerInputs | None = None
    if len(layers) == len(known):
        rows = torch.cat([each.inputs[0] for each in layers], dim=-2)
        joined = layers[0]._replace(inputs=(rows, *layers[0].inputs[1:]))
    return lambda: known[0]()._replace(query=query, layer=joined)


def _worst(steps: list[Call]) -> float | None:
    """The largest error of the steps, None if one of them is unknown."""
    errors = [step.verify() for step in steps]
    known = [error for error in errors if error is not None]
    return max(known) if len(known) == len(errors) else None
