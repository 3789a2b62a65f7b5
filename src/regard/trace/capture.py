"""Record what a model attends to, without changing anything about it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.observer import AttentionCall, observe
from regard.core.blocks import in_functorch
from regard.core.normalize import NORMALIZERS
from regard.core.request import Request
from regard.core.score import SCORES
from regard.layers.graph import GraphAttention
from regard.models.aligner import GlobalAligner, LocalAligner
from regard.trace.adapters import torch_calls
from regard.trace.call import Call, Inputs
from regard.trace.freeze import Freezer
from regard.trace.record import Heard, Record, Recorded, hear
from regard.trace.running import Names, running
from regard.trace.side import sides
from regard.trace.trace import Trace


@contextmanager
def capture(model: Any = None) -> Iterator[Trace]:
    """Record every attention call inside a model, by the name of its module.

    What is kept are references to queries, keys, values, score, mask and seed: no map is computed
    until somebody looks, and the result of the model is the same to the last bit. It sees the calls
    of its own thread, of this library and of torch: `nn.MultiheadAttention`, `nn.Transformer`,
    `F.scaled_dot_product_attention`. A compiled graph is not seen.

    >>> import regard
    >>> from regard.layers import MultiHeadAttention
    >>> model = nn.Sequential(MultiHeadAttention(6, heads=2))
    >>> with regard.capture(model) as trace:
    ...     _ = model(torch.randn(3, 5, 6))
    >>> trace
    Trace of 1 attention calls
      0  source × source  (3, 2, 5, 5)
    >>> trace["0"].map[0, 1, 4].shape, trace["0"].verify() < 1e-6
    (torch.Size([5]), True)

    Args:
        model: whose calls to record; what holds one as `.model`, such as a loaded run; or None for
            every call there is, by the class of the module that makes it

    Yields: a trace that grows as calls happen
    """
    if model is not None and not isinstance(model, nn.Module):
        held = getattr(model, "model", None)
        if not isinstance(held, nn.Module):
            raise TypeError(
                f"capture takes a torch module, or what has one as .model, got "
                f"{type(model).__name__}"
            )
        model = held
    recorder = Recorder()
    with torch_calls.reported(), observe(recorder):
        yield Captured(recorder, model)


class Recorder:
    """A watcher that keeps what it hears; names and maps are found when somebody looks."""

    edits = False

    def __init__(self) -> None:
        self.records: list[Heard] = []
        self.freeze = Freezer()

    def edit(self, request: Request) -> Request:
        return request

    def notify(self, report: AttentionCall) -> None:
        """Keep a call, unless it is repeated for a gradient or belongs to a transform."""
        again = torch.is_grad_enabled() and torch._C._current_graph_task_id() != -1
        if not again and not in_functorch():
            self.records.append(hear(report, running(depth=2), self.freeze))


class Captured(Trace):
    """A trace of what a recorder keeps, which may still grow."""

    def __init__(self, recorder: Recorder, model: nn.Module | None) -> None:
        self._recorder, self._model = recorder, model
        self._found: list[Call] = []
        self._seen = 0
        self._counts: dict[str, int] = {}
        about = {} if model is None else {"model": type(model).__name__}
        super().__init__([], {}, {**about, "version": sys.modules["regard"].__version__})

    @property
    def calls(self) -> list[Call]:
        """The calls so far, in order."""
        new = self._recorder.records[self._seen :]
        if new:
            self._seen += len(new)
            names = Names(self._model)
            self._found += [call for each in new if (call := self._call(Record(each), names))]
        return self._found

    @calls.setter
    def calls(self, calls: list[Call]) -> None:
        self._found = calls

    def _call(self, record: Record, names: Names) -> Call | None:
        module = record.module
        name = names.of(module)
        if name is None:  # of another model
            return None
        holders = [names.modules.get(name.rpartition(".")[0]), module]
        aligns = any(isinstance(each, GlobalAligner | LocalAligner) for each in holders)
        name = f"{name}.{record.part}" if record.part else name
        queries, keys = sides(name, list(names.modules), aligns=aligns)
        count = self._counts[name] = self._counts.get(name, 0) + 1
        arrange, shape = _arranged(record.shape, isinstance(module, GraphAttention))
        return Call(
            name if count == 1 else f"{name}#{count}",
            Recorded(record, arrange, shape),
            queries,
            keys,
            _provenance(record),
            None if record._request is None else lambda: _inputs(record),
            lambda: record.error,
        )


def _arranged(
    shape: tuple[int, ...], no_batch: bool
) -> tuple[Callable[[Tensor], Tensor], tuple[int, ...]]:
    """How to bring a map (..., M, N) to (batch, heads, M, N), and that shape.

    One leading dimension is the batch, unless there is none; of three, the last two are groups of
    heads that share keys.
    """
    *leading, M, N = shape
    if no_batch:
        leading = [1, *leading]
    if len(leading) == 1:
        leading = [*leading, 1]
    batch, *heads = leading or [1, 1]
    new = (batch, int(torch.Size(heads).numel()))

    def arrange(block: Tensor) -> Tensor:
        return block.reshape(*new, *block.shape[-2:])

    return arrange, (*new, M, N)


def _inputs(record: Record) -> Inputs:
    request = record.request
    assert request is not None
    output = getattr(record.module, "output_projection", getattr(record.module, "out_proj", None))
    return Inputs(
        request.query,
        request.key,
        request.value,
        request.score,
        request.mask,
        request.bias,
        request.normalize,
        output if isinstance(output, nn.Linear) else None,
    )


def _provenance(record: Record) -> dict[str, Any]:
    found: dict[str, Any] = {"path": record.path, "dtype": str(record.dtype)[6:]}
    request = record._request
    if isinstance(request, Request):
        found["score"] = _named(request.score, SCORES)
        found["normalizer"] = _named(request.normalize, NORMALIZERS)
        found["mask"] = None if request.mask is None else repr(request.mask)
        if request.dropout:
            found["dropout"] = request.dropout
    return found


def _named(thing: Any, known: dict[str, Any]) -> str:
    """What a score or a normalizer is called."""
    for name, each in known.items():
        if each is thing:
            return name
    return getattr(thing, "__name__", type(thing).__name__)
