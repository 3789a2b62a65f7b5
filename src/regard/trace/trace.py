"""A trace: the attention calls of a model, by name, with the tokens of their rows and columns."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.core.map import AttentionMap
from regard.core.names import did_you_mean
from regard.trace.call import Call, stitched
from regard.trace.missed import Missed

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(eq=False)
class Trace:
    """Attention calls, in the order in which they happened.

    >>> import torch
    >>> trace = Trace.of_maps(
    ...     {"cross": torch.tensor([[[1.0, 0.0], [0.25, 0.75]]])},
    ...     queries=["le", "chat"],
    ...     keys=["the", "cat"],
    ... )
    >>> trace.names, trace["cross"].map[0, 1].tolist(), trace.tokens["source"]
    (['cross'], [0.25, 0.75], ['the', 'cat'])

    Args:
        calls: the attention calls
        tokens: labels of rows and columns, by the names that the calls use: "source", "target".
            A list of strings, or one such list for each example of a batch
        about: model, version, text, language, ...
        missed: modules that look like attention, ran, and were not recorded, with the reason
    """

    calls: list[Call] = field(default_factory=list)
    tokens: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    missed: list[Missed] = field(default_factory=list)

    @classmethod
    def of_maps(
        cls,
        maps: Mapping[str, Tensor | AttentionMap],
        *,
        queries: Sequence[str],
        keys: Sequence[str] | None = None,
        **about: Any,
    ) -> "Trace":
        """A trace of given maps, (heads, M, N) each, or (M, N) for one head.

        Args:
            queries: labels of the rows
            keys: labels of the columns; without them the queries attend to themselves
            about: model, text, ...
        """
        rows = "source" if keys is None else "target"
        tokens = {rows: list(queries)} | ({} if keys is None else {"source": list(keys)})
        calls = [Call(name, _with_heads(map), rows, "source") for name, map in maps.items()]
        trace = cls(calls, tokens, about)
        for call in calls:
            trace.check(call)
        return trace

    @property
    def names(self) -> list[str]:
        """The names of the calls, in order."""
        return [call.name for call in self.calls]

    @property
    def batch(self) -> int | None:
        """The number of examples; None if this is a trace of one."""
        sizes = {call.batch for call in self.calls}
        return next(iter(sizes)) if len(sizes) == 1 else None

    def __getitem__(self, name: str | int) -> Call:
        """The call of this name, or in this place of the order."""
        if isinstance(name, int):
            return self.calls[name]
        for call in self.calls:
            if call.name == name:
                return call
        known = self.names
        raise KeyError(f"no call {name!r} in this trace{did_you_mean(name, known)}")

    def __iter__(self) -> Iterator[Call]:
        return iter(self.calls)

    def __len__(self) -> int:
        return len(self.calls)

    def label(self, **tokens: Sequence[Any]) -> "Trace":
        """Set the labels of rows and columns: `trace.label(source=["the", "cat"])`; returns itself.

        Args:
            tokens: a list of strings, or one such list for each example of a batch
        """
        self.tokens |= {side: list(labels) for side, labels in tokens.items()}
        return self

    def labels(self, call: Call) -> tuple[list[str], list[str]]:
        """The labels of a call's rows and columns; numbers if there are no labels that fit."""
        rows = self._labels(call.queries, call.provenance.get("rows"), call.shape[-2])
        return rows, self._labels(call.keys, None, call.shape[-1])

    def of(self, example: int) -> "Trace":
        """The trace of one example of a batch, without padding if its tokens are known."""
        if self.calls and self.batch is None:
            if example in (0, -1) and all(call.batch is None for call in self.calls):
                return self
            raise ValueError("the calls of this trace have different batch sizes; see stitched()")
        tokens = {
            side: labels[example] if labels and not isinstance(labels[0], str) else labels
            for side, labels in self.tokens.items()
        }

        def real(side: str, size: int) -> int | None:
            return len(tokens[side]) if side in tokens and len(tokens[side]) <= size else None

        calls = []
        for call in self.calls:
            rows, columns = real(call.queries, call.shape[-2]), real(call.keys, call.shape[-1])
            calls.append(call.of(example, rows or None, columns or None))
        return Trace(calls, tokens, {**self.about, "example": example}, self.missed)

    def select(
        self,
        layers: str | Sequence[str] | None = None,
        *,
        heads: Sequence[int] | None = None,
        rows: slice | None = None,
    ) -> "Trace":
        """A part of the trace, lazily.

        Args:
            layers: patterns of names or roles of calls: "decoder.*.memory_attention",
                "encoder-decoder attention"
            heads: numbers of heads
            rows: a slice of queries
        """
        patterns = [layers] if isinstance(layers, str) else layers
        calls = self.calls
        if patterns is not None:
            calls = [c for c in calls if any(_is_called(c, each) for each in patterns)]
            if not calls:
                raise KeyError(f"no call is named like {patterns}; there are {self.names}")
        selected = [call.select(heads, rows) for call in calls]
        return Trace(selected, self.tokens, self.about, self.missed)

    def stitched(self) -> "Trace":
        """The trace with the calls of each module joined to one: the steps of a decoder."""
        return Trace(stitched(self.calls), self.tokens, self.about, self.missed)

    def save(self, path: str | PathLike[str], *, inputs: bool = False) -> None:
        """Write the trace to a file, see `save_trace`; `load_trace` reads it."""
        from regard.trace.file import save_trace

        save_trace(self, path, inputs=inputs)

    def show(self, *, width: int | None = None) -> None:
        """Print the trace to the terminal, see `regard.visual.views`."""
        from regard.visual.views import show

        print(show(self, width=width))

    def figure(self, path: str | PathLike[str] | None = None) -> "Figure":
        """Draw the trace as its task is drawn, or its maps.

        Args:
            path: a file to write, .png or .svg

        Returns: the figure of matplotlib, which a notebook shows
        """
        from regard.visual.views import figure

        return figure(self, None if path is None else Path(path))

    def page(self, path: str | PathLike[str], *, language: str = "en") -> Path:
        """Write one HTML file with linked views that opens without a network; returns the path."""
        from regard.visual.page import write

        return write(self, Path(path), language=language)

    def _repr_html_(self) -> str:
        """The page in a frame, for notebooks."""
        from html import escape

        from regard.visual.page import document, iframe

        try:
            return iframe(document(self))
        except ValueError as error:  # a batch, or no calls yet: show the reason
            return f"<pre>{escape(str(self))}\n{escape(str(error))}</pre>"

    def check(self, call: Call) -> None:
        """Raise unless there is a label for each row and column of a map of one example."""
        for side, size in ((call.queries, call.shape[-2]), (call.keys, call.shape[-1])):
            count = len(self.tokens.get(side, ()))
            if count and count != size:
                raise ValueError(
                    f"{call.name!r} is {tuple(call.shape)}, but there are {count} {side} tokens; "
                    f"give the {size} that it attends from or to, or set the role of its module "
                    "(regard.layers.AttentionRole) if they are of another sequence"
                )

    def _labels(self, side: str, rows: list[int] | None, size: int) -> list[str]:
        labels = self.tokens.get(side, [])
        if rows is not None and rows and max(rows) < len(labels):
            labels = [labels[row] for row in rows]
        if len(labels) != size or not all(isinstance(label, str) for label in labels):
            return [str(index) for index in range(size)]
        return labels

    def __repr__(self) -> str:
        lines = [f"Trace of {len(self.calls)} attention call{'s' * (len(self.calls) != 1)}"]
        lines += [
            f"  {repr(call.name)[1:-1]}  {call.queries} × {call.keys}  {tuple(call.shape)}"
            for call in self
        ]
        lines += [f"  not recorded: {repr(str(each))[1:-1]}" for each in self.missed]
        return "\n".join(lines)


def _is_called(call: Call, pattern: str) -> bool:
    """Whether the name or the role of a call is like the pattern; a hyphen stands for any dash."""
    role = call.role.replace("–", "-")
    return fnmatchcase(call.name, pattern) or fnmatchcase(role, pattern.replace("–", "-"))


def _with_heads(map: Tensor | AttentionMap) -> AttentionMap:
    """A map (M, N) as one of one head, (1, M, N)."""
    lazy = AttentionMap.of(map) if isinstance(map, Tensor) else map
    if len(lazy.shape) != 2:
        return lazy
    return lazy.changed(lambda rows: rows.unsqueeze(0), (1, *lazy.shape))
