"""One attention call that happened: its map, and what it was made of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.core.map import AttentionMap
from regard.core.mask import Mask
from regard.trace.record import RecordedMap


class Inputs(NamedTuple):
    """What went into an attention call, for those who want to see it step by step."""

    query: Tensor  # (..., M, Dq)
    key: Tensor  # (..., N, Dk)
    value: Tensor  # (..., N, Dv)
    score: Any  # a Score: (query, key) -> (..., M, N)
    mask: Mask | None
    bias: Tensor | None
    normalize: Callable[..., Tensor] | None
    output: nn.Linear | None = None  # W_O, which the heads side by side go through


@dataclass(eq=False)
class Call:
    """A map by name, with what its rows and columns are and where it comes from.

    >>> call = Call("cross", torch.tensor([[[0.25, 0.75]]]))
    >>> call.heads, call.map.dense().tolist()
    (1, [[[0.25, 0.75]]])

    Args:
        name: of the module inside the model, such as "decoder.layers.0.memory_attention"; a
            second call of the same module is "name#2"
        map: (heads, M, N) of one example, or (batch, heads, M, N); lazy, or a tensor
        queries: the token list that the rows belong to, "target" or "source"
        keys: the token list that the columns belong to
        provenance: path, reason, dtype, score, normalizer, error, ...
        made_of: gives what the map was made of, of the same example or batch; None if not kept
        checked: gives max |weights · values − output|, None where that cannot be known
    """

    name: str
    map: AttentionMap
    queries: str = "target"
    keys: str = "source"
    provenance: dict[str, Any] = field(default_factory=dict)
    made_of: Callable[[], Inputs] | None = None
    checked: Callable[[], float | None] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.map, Tensor):
            self.map = held(self.map)
        if not 3 <= len(self.map.shape) <= 4:
            raise ValueError(
                f"the map of {self.name!r} should be (heads, M, N) or (batch, heads, M, N), got "
                f"{tuple(self.map.shape)}"
            )

    @property
    def inputs(self) -> Inputs | None:
        """What the map was made of; None if that was not kept."""
        return None if self.made_of is None else self.made_of()

    def verify(self) -> float | None:
        """How far weights · values are from the output that the model really used, at most.

        The provenance remembers it as "error"; None if dropout came between, or nothing is known.
        """
        if self.checked is not None and "error" not in self.provenance:
            self.provenance["error"] = self.checked()
        return self.provenance.get("error")

    @property
    def heads(self) -> int:
        return self.map.shape[-3]

    @property
    def shape(self) -> torch.Size:
        return self.map.shape

    @property
    def batch(self) -> int | None:
        """How many examples there are; None if this is one."""
        return self.map.shape[0] if len(self.map.shape) == 4 else None

    def of(self, example: int, rows: int | None = None, columns: int | None = None) -> "Call":
        """One example of a batch, as (heads, M, N), without its padding.

        Args:
            rows, columns: how many queries and keys of it are real; all if None
        """
        if self.batch is None:
            raise ValueError(f"{self.name!r} is of one example already")
        if not -self.batch <= example < self.batch:
            raise IndexError(f"example {example} of a batch of {self.batch}")
        own = self.map.example(example % self.batch) if isinstance(self.map, RecordedMap) else None
        whole, place = (self.map, (example,)) if own is None else (own, ())
        map = cut(whole, place, slice(rows), slice(columns))
        made_of, batch = self.made_of, self.batch
        one = None if made_of is None else lambda: _of(made_of(), batch, example)
        return replace(self, map=map, made_of=one)

    def select(self, heads: Sequence[int] | None = None, rows: slice | None = None) -> "Call":
        """Some heads and rows of the map; the provenance remembers which."""
        map, about = self.map, dict(self.provenance)
        if heads is not None:
            wrong = [head for head in heads if not 0 <= head < self.heads]
            if wrong or not heads:
                raise ValueError(f"heads of {self.name!r} are 0 to {self.heads - 1}, got {heads}")
            before = about.get("heads", list(range(self.heads)))
            about["heads"] = [before[head] for head in heads]
            map = _heads(map, list(heads))
        if rows is not None:
            kept = range(self.shape[-2])[rows]
            before = about.get("rows", list(range(self.shape[-2])))
            about["rows"] = [before[row] for row in kept]
            map = cut(map, (), rows, slice(None))
        return replace(self, map=map, provenance=about, made_of=None)

    def __repr__(self) -> str:
        return f"Call({self.name!r}, {self.queries} × {self.keys}, {tuple(self.shape)})"


def held(weights: Tensor, scores: Tensor | None = None) -> AttentionMap:
    """A map whose numbers are there already, (..., M, N)."""
    return AttentionMap(
        lambda rows: weights[..., rows, :],
        None if scores is None else lambda rows: scores[..., rows, :],
        weights.shape,
    )


def cut(map: AttentionMap, place: tuple[int, ...], rows: slice, columns: slice) -> AttentionMap:
    """Part of a map, as lazy as the whole: indices of the first dimensions, rows and columns."""
    which, width = range(map.shape[-2])[rows], len(range(map.shape[-1])[columns])

    def picked(some: slice) -> slice:
        found = which[some]
        return slice(found.start, max(found.stop, 0), found.step)

    def weights(some: slice) -> Tensor:
        return map[(*place, ..., picked(some), columns)]

    def scores(some: slice) -> Tensor:
        return map.scores[(*place, ..., picked(some), columns)]

    shape = (*map.shape[len(place) : -2], len(which), width)
    return AttentionMap(weights, None if map._scores is None else scores, shape)


def _heads(map: AttentionMap, heads: list[int]) -> AttentionMap:
    def weights(rows: slice) -> Tensor:
        return map[..., rows, :][..., heads, :, :]

    def scores(rows: slice) -> Tensor:
        return map.scores[..., rows, :][..., heads, :, :]

    shape = (*map.shape[:-3], len(heads), *map.shape[-2:])
    return AttentionMap(weights, None if map._scores is None else scores, shape)


def _of(inputs: Inputs, batch: int, example: int) -> Inputs:
    """The inputs of one example; what all examples share stays as it is."""

    def own(tensor: Tensor) -> Tensor:
        return tensor[example] if tensor.dim() > 3 and len(tensor) == batch else tensor

    bias = None if inputs.bias is None else own(inputs.bias)
    return inputs._replace(
        query=own(inputs.query), key=own(inputs.key), value=own(inputs.value), bias=bias
    )
