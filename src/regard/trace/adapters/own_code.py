"""Attention that a model computes in its own code: a softmax, followed to the product with values.

While something observes, torch's softmax, products, and what usually stands between them are
replaced by functions that call them, unchanged, and then look where the weights went. A softmax is
attention if what it gives, followed by its storage through dropout, casts, views, masks and
factors, is contracted over its own dimension with something that is not a parameter.
"""

import re
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from threading import Lock
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.attention.dispatch import map_of
from regard.attention.observer import (
    any_edits,
    calling_module,
    edit_request,
    notify,
    observers,
    unobserved,
)
from regard.attention.record import CallRecord
from regard.core.blocks import can_inspect_values
from regard.core.map import AttentionMap
from regard.core.mask import visible
from regard.core.request import make_request
from regard.system.torch_internals import VARIABLE_FUNCTIONS
from regard.trace import missed

Place = tuple[Any, str]
Wrap = Callable[[Callable], Callable]
Labels = Sequence[Hashable]

NOT_ATTENTION = re.compile(r"(?i)expert|moe|router|codebook|quantiz|classif|nystrom")
"""Class names of modules whose softmax is not attention of queries to keys."""

HEADS = re.compile(r"(?i)(?:num|n)?_?(?:attention|attn)?_?heads?|nhead|h")
"""How modules name their number of heads."""

REMEMBERED = 6
"""Softmaxes, and what was made of them, that are followed at once."""


# ---------------------------------------------------------------------- what is followed


class _Weights(NamedTuple):
    """A softmax, or what an elementwise function made of it."""

    tensor: Tensor  # as the model has it; held, so that its storage is not used again
    dim: int  # over which it is normalized
    before: Tensor  # the same without dropout, in the layout of `tensor`
    shape: torch.Size  # of the softmax
    token: object
    sink: bool = False  # whether a column of the softmax was dropped

    def dim_of(self, view: Tensor) -> int | None:
        """The dimension of a view that is the one of the softmax, or that without a sink."""
        if view.shape == self.tensor.shape and view.stride() == self.tensor.stride():
            return self.dim
        size, stride = self.tensor.shape[self.dim], self.tensor.stride(self.dim)
        alike = [
            dim
            for dim in range(view.dim())
            if (view.shape[dim] == size and (size == 1 or view.stride(dim) == stride))
            or (view.shape[dim] == size - 1 > 0 and view.stride(dim) == stride)
        ]
        return alike[-1] if alike else None

    def drops_sink(self, view: Tensor, dim: int | None) -> bool:
        """Whether a view, or what it is a view of, has fewer columns than the softmax."""
        return self.sink or (dim is not None and view.shape[dim] < self.tensor.shape[self.dim])

    def without_dropout(self, view: Tensor) -> Tensor:
        """A view of the weights, as they were before dropout."""
        if self.before is self.tensor:
            return view.detach()
        offset = view.storage_offset() - self.tensor.storage_offset()
        start = offset + self.before.storage_offset()
        return self.before.detach().as_strided(view.shape, view.stride(), start)


class _Following:
    """The softmaxes of a thread that may yet become attention, by their storages."""

    def __init__(self) -> None:
        self.weights: dict[int, _Weights] = {}
        self.count = 0  # of recorded products
        self.outputs: list[tuple[CallRecord, Tensor, object]] = []  # of products, with their run

    def find(self, tensor: Any) -> _Weights | None:
        if not self.weights or not isinstance(tensor, Tensor):
            return None
        pointer = _pointer(tensor)
        return None if pointer is None else self.weights.get(pointer)

    def begin(self, result: Any, dim: Any) -> None:
        """Follow the result of a softmax."""
        module = calling_module.get()
        if not isinstance(result, Tensor) or not isinstance(dim, int) or not result.dim():
            return
        if NOT_ATTENTION.search(type(module).__name__) or _is_ours(sys._getframe(2)):
            return
        if not can_inspect_values(result) or missed.is_recomputed() or _pointer(result) is None:
            return
        token = object()
        missed.softmax_began(token)
        self._add(_Weights(result, dim % result.dim(), result, result.shape, token))

    def go_on(self, weights: _Weights, view: Tensor, result: Any, *, drops: bool = False) -> None:
        """Follow what a function made of the weights."""
        if not isinstance(result, Tensor) or _pointer(result) in (None, _pointer(view)):
            return
        dim = weights.dim_of(view)
        if dim is None:
            return
        if result.shape != view.shape:
            if dim != view.dim() - 1 or not result.dim() or result.shape[-1] != view.shape[-1]:
                return
            dim = result.dim() - 1
        before = result
        if drops or weights.before is not weights.tensor:
            before = weights.without_dropout(view)
            if before.stride() != result.stride():
                before = (
                    before.reshape(result.shape)
                    .contiguous()
                    .as_strided_(result.shape, result.contiguous().stride())
                )
            if before.stride() != result.stride():
                return
        shape = weights.shape if result.shape == weights.shape else result.shape
        self._add(
            _Weights(result, dim, before, shape, weights.token, weights.drops_sink(view, dim))
        )

    def _add(self, weights: _Weights) -> None:
        pointer = _pointer(weights.tensor)
        assert pointer is not None
        others = {key: each for key, each in self.weights.items() if key != pointer}
        while len(others) >= REMEMBERED:
            del others[next(iter(others))]
        self._set({**others, pointer: weights})

    def _set(self, weights: dict[int, _Weights]) -> None:
        """Change what is followed, and how many threads follow something."""
        global _busy
        with _lock:
            _busy += bool(weights) - bool(self.weights)
        self.weights = weights

    def end(self, weights: _Weights) -> None:
        """Stop following a softmax and all that was made of it."""
        others = {key: each for key, each in self.weights.items() if each.token != weights.token}
        self._set(others)

    def product(self, product: "_Product", result: Tensor) -> Tensor:
        """Record a product, if one of its factors is the weights of attention."""
        for turned in (product, product.turned()):
            weights = self.find(turned.left)
            if weights is None:
                continue
            dim = turned.contracted_dim()
            if dim is None or dim != weights.dim_of(turned.left) or turned.right.dim() < 2:
                continue
            self.end(weights)
            if _is_parameter(turned.right):  # a mixture of rows of a table
                missed.softmax_ended(weights.token)
                return result
            if self._is_of_linear_attention(turned.right):
                return result
            missed.softmax_ended(weights.token)
            return self._attention(weights, turned, result)
        return result

    def _is_of_linear_attention(self, factor: Tensor) -> bool:
        """Whether a factor is itself such a product: two softmaxes, and no map of either."""
        run = missed.running()
        for record, output, own in self.outputs:
            if run is not None and own is run and _pointer(output) == _pointer(factor):
                record.discarded.append(True)
                return True
        return False

    def _attention(self, weights: _Weights, product: "_Product", result: Tensor) -> Tensor:
        listening = observers()
        layout = _Layout.of(weights, product)
        rows = layout.rows(weights.without_dropout(product.left))
        drops = weights.before is not weights.tensor
        if any_edits(listening):
            result, rows = _edited(listening, layout, product, rows, drops=drops, result=result)
        dropped = layout.rows(product.left.detach()) if drops else None
        record = layout.record(rows, product, result, dropped)
        if weights.drops_sink(product.left, product.contracted_dim()):
            record.about["sink"] = "the rest of each row"
        notify(listening, record)
        self.count += 1
        self.outputs = [*self.outputs[-3:], (record, result, missed.running())]
        return result


_following: ContextVar[_Following | None] = ContextVar("following", default=None)
_busy = 0
"""How many threads follow a softmax now: if none, a replaced function costs one look at this."""

_lock = Lock()


@contextmanager
def following() -> Iterator[None]:
    """Follow the softmaxes of this thread until the block ends."""
    state = _Following()
    token = _following.set(state)
    try:
        yield
    finally:
        _following.reset(token)
        state._set({})


def count() -> int:
    """How many products were recorded in this block."""
    state = _following.get()
    return 0 if state is None else state.count


def _active() -> _Following | None:
    # first the observers, of which there are none inside of a compiled graph
    return _following.get() if observers() else None


def _is_ours(frame: FrameType | None) -> bool:
    """Whether this library computes a softmax, of a map that is read or for a call of its own."""
    if frame is not None and frame.f_globals.get("__name__") == "torch.nn.functional":
        frame = frame.f_back
    return frame is not None and str(frame.f_globals.get("__name__")).startswith("regard.")


def _pointer(tensor: Tensor) -> int | None:
    """Where the storage of a tensor is; None if it has none."""
    if tensor.is_meta or tensor.is_nested or tensor.layout != torch.strided:
        return None
    try:
        return tensor.untyped_storage().data_ptr() or None
    except (RuntimeError, NotImplementedError):  # inside of torch.func, or of a fake mode
        return None


def _is_parameter(tensor: Tensor) -> bool:
    """Whether a tensor is a parameter, or a buffer without a batch, or a view of one."""
    if isinstance(tensor, nn.Parameter) or isinstance(tensor._base, nn.Parameter):
        return True
    module = calling_module.get()
    if module is None or tensor.dim() > 2:
        return False
    pointer = _pointer(tensor)
    return any(_pointer(each) == pointer for each in (*module.parameters(), *module.buffers()))


# ---------------------------------------------------------------------- products


@dataclass(eq=False)
class _Product:
    """A product of two tensors as an Einstein sum: a label for each dimension."""

    left: Tensor
    right: Tensor
    of_left: Labels
    of_right: Labels
    of_output: Labels
    repeat: Callable[[Tensor, Tensor], Tensor]  # of left and right

    def turned(self) -> "_Product":
        def repeat(left: Tensor, right: Tensor) -> Tensor:
            return self.repeat(right, left)

        three = self.of_right, self.of_left, self.of_output
        return _Product(self.right, self.left, *three, repeat)

    def contracted_dim(self) -> int | None:
        """The only dimension of `left` that is summed over, if it is one of `right` too."""
        summed = [label for label in self.of_left if label not in self.of_output]
        if len(summed) != 1 or summed[0] not in self.of_right:
            return None
        return list(self.of_left).index(summed[0])


def _matmul(left: Tensor, right: Tensor) -> tuple[Labels, Labels, Labels] | None:
    """The labels of a matrix product; leading dimensions are numbered from the right."""

    def leading(tensor: Tensor) -> list[Hashable]:
        return list(range(tensor.dim() - 3, -1, -1))

    if min(left.dim(), right.dim()) == 0:
        return None
    of_left = [*leading(left), "m", "n"] if left.dim() > 1 else ["n"]
    of_right = [*leading(right), "n", "d"] if right.dim() > 1 else ["n"]
    longer = max(leading(left), leading(right), key=len)
    rows, columns = ["m"] * (left.dim() > 1), ["d"] * (right.dim() > 1)
    return of_left, of_right, [*longer, *rows, *columns]


def einsum_labels(equation: str, *dims: int) -> list[list[Hashable]] | None:
    """The labels of the operands and of the output of an Einstein sum.

    >>> einsum_labels("b h i j, b h j d -> b h i d", 4, 4)[-1]
    ['b', 'h', 'i', 'd']
    >>> einsum_labels("...ij,...jd->...id", 3, 3)
    [[0, 'i', 'j'], [0, 'j', 'd'], [0, 'i', 'd']]
    """
    operands, arrow, output = equation.replace(" ", "").partition("->")
    terms = operands.split(",")
    if len(terms) != len(dims):
        return None
    rests = [dim - len(term) + 3 for term, dim in zip(terms, dims, strict=True) if "..." in term]
    count = max(rests, default=0)

    def labels(term: str, own: int) -> list[Hashable]:
        before, dots, after = term.partition("...")
        return [*before, *(range(own - 1, -1, -1) if dots else ()), *after]

    parts = [labels(term, dim - len(term) + 3) for term, dim in zip(terms, dims, strict=True)]
    if arrow:
        return [*parts, labels(output, count)]
    letters = [each for part in parts for each in part if isinstance(each, str)]
    once = sorted(each for each in set(letters) if letters.count(each) == 1)
    return [*parts, [*range(count - 1, -1, -1), *once]]


@dataclass(eq=False)
class _Layout:
    """How the weights of a product are a map (*leading, M, N), and its output (*leading, M, D)."""

    leading: list[Hashable]  # labels
    sizes: list[int]  # of them
    row: Hashable | None  # the label of the queries; None for a single one
    key: Hashable
    shape: list[int]  # the leading dimensions of the map, perhaps split into batch and heads
    product: _Product

    @classmethod
    def of(cls, weights: _Weights, product: _Product) -> "_Layout":
        labels = list(product.of_left)
        dim = product.contracted_dim()
        assert dim is not None
        key = labels[dim]
        free = [x for x in labels if x not in (key, *product.of_right)]
        row = free[-1] if free else None
        leading = [x for x in labels if x not in (key, row)]
        sizes = [product.left.shape[labels.index(x)] for x in leading]
        for place, label in enumerate(leading):  # weights that are shared are broadcast
            if sizes[place] == 1 and label in product.of_right:
                sizes[place] = product.right.shape[list(product.of_right).index(label)]
        rows = 1 if row is None else product.left.shape[labels.index(row)]
        shape, whole = sizes, list(weights.shape)
        if (
            weights.dim == len(whole) - 1
            and len(whole) - 2 > len(leading)
            and whole[-2] == rows
            and torch.Size(whole[:-2]).numel() == torch.Size(sizes).numel()
        ):
            shape = whole[:-2]  # the model joined batch and heads for the product alone
        elif len(sizes) == 1:
            width = product.right[0].numel() // max(1, product.left.shape[dim])
            heads = _heads(calling_module.get(), width)
            if heads > 1 and sizes[0] % heads == 0:
                shape = [sizes[0] // heads, heads]
        return cls(leading, sizes, row, key, shape, product)

    def rows(self, left: Tensor) -> Tensor:
        """The weights as (*leading, M, N)."""
        labels = list(self.product.of_left)
        order = [labels.index(x) for x in self._labels(self.row, self.key)]
        weights = left.permute(order)
        weights = weights if self.row is not None else weights.unsqueeze(-2)
        size = weights.shape[-2:]
        return weights.expand(*self.sizes, *size).reshape(*self.shape, *size)

    def left(self, rows: Tensor) -> Tensor:
        """Weights (*leading, M, N) as the factor of the product."""
        size = rows.shape[-2:]
        weights = rows.reshape(*self.sizes, *size)
        weights = weights if self.row is not None else weights.squeeze(-2)
        order = self._labels(self.row, self.key)
        return weights.permute([order.index(x) for x in self.product.of_left])

    def values(self) -> Tensor:
        """The values as (*leading, N, D)."""
        labels, right = list(self.product.of_right), self.product.right
        own = [x for x in self.leading if x in labels]
        order = [labels.index(x) for x in (*own, self.key, *self._features())]
        value = right.permute(order).flatten(len(own) + 1)
        if not self._features():
            value = value.unsqueeze(-1)
        for place, label in enumerate(self.leading):
            if label not in labels:
                value = value.unsqueeze(place)
        return value.expand(*self.sizes, *value.shape[-2:]).reshape(*self.shape, *value.shape[-2:])

    def output(self, result: Tensor) -> Tensor:
        """The output as (*leading, M, D)."""
        labels = list(self.product.of_output)
        order = [labels.index(x) for x in (*self._labels(self.row), *self._features())]
        output = result.permute(order)
        output = output if self.row is not None else output.unsqueeze(len(self.leading))
        if not self._features():
            output = output.unsqueeze(-1)
        output = output.flatten(len(self.leading) + 1)
        return output.reshape(*self.shape, *output.shape[-2:])

    def is_weighted_sum(self) -> bool:
        """Whether the output is nothing but weights · values, for each of the leading ones."""
        labels = {*self._labels(self.row), *self._features()}
        return labels == set(self.product.of_output) and len(labels) == len(self.product.of_output)

    def record(
        self, rows: Tensor, product: _Product, result: Tensor, dropped: Tensor | None
    ) -> CallRecord:
        """The record of the call.

        Args:
            rows: the weights, (*leading, M, N)
            dropped: the weights after dropout; None if there was none
        """
        whole = self.is_weighted_sum()
        output = self.output(result) if whole else None

        def combine(_: Any, weights: Tensor, some: slice) -> Tensor:
            if dropped is not None:
                factor = dropped[..., some, :] / rows[..., some, :]
                weights = weights * factor.nan_to_num(0.0)
            return weights @ self.values().to(weights.dtype)

        return CallRecord(
            product.right,
            output,
            tuple(rows.shape),
            "softmax",
            None,
            lambda _: AttentionMap.of(rows),
            combine if whole else None,
            tensors=(("weights", rows), ("value", product.right)),
            has_batch=bool(self.shape),
            result=(result, self.output),
            about={"normalizer": "softmax"},
        )

    def _features(self) -> list[Hashable]:
        return [x for x in self.product.of_right if x not in (self.key, *self.leading)]

    def _labels(self, *more: Hashable | None) -> list[Hashable]:
        return [*self.leading, *(x for x in more if x is not None)]


def _heads(module: nn.Module | None, width: int) -> int:
    """The heads of a module that joins them with the batch; 1 if its sizes do not say so."""
    if module is None:
        return 1
    sizes = {each for each in vars(module).values() if isinstance(each, int)}
    for part in module.children():
        sizes |= {getattr(part, "in_features", 0), getattr(part, "out_features", 0)}
    named = vars(module).items()
    heads = [size for name, size in named if isinstance(size, int) and HEADS.fullmatch(name)]
    return next((each for each in heads if each * width in sizes), 1)


def _edited(
    listening: tuple[Any, ...],
    layout: _Layout,
    product: _Product,
    rows: Tensor,
    *,
    drops: bool,
    result: Tensor,
) -> tuple[Tensor, Tensor]:
    """The output and the weights after the edits of the observers: softmax(log W) is W."""
    shown = rows > 0
    request = make_request(
        rows,
        rows.new_zeros(*rows.shape[:-2], rows.shape[-1], 1),
        rows.new_zeros(*rows.shape[:-2], rows.shape[-1], 1),
        score=lambda weights, _: weights.clamp(min=torch.finfo(weights.dtype).tiny).log(),
        mask=visible(shown),
    )
    edited = edit_request(listening, request)
    if edited is request:
        return result, rows
    if drops:
        raise ValueError(
            "an edit cannot repeat the dropout of attention that a model computes in its own code; "
            "call model.eval() first"
        )
    with unobserved():
        weights = map_of(edited).dense()
        return product.repeat(layout.left(weights), product.right), weights


# ---------------------------------------------------------------------- replaced functions


def _softmax(original: Callable) -> Callable:
    @wraps(original)
    def call(*args: Any, **options: Any) -> Any:
        result = original(*args, **options)
        state = _active()
        if state is not None:
            state.begin(result, options["dim"] if "dim" in options else (*args, None, None)[1])
        return result

    return call


def _multiplied(original: Callable) -> Callable:
    @wraps(original)
    def call(*args: Any, **options: Any) -> Any:
        result = original(*args, **options)
        if not _busy or len(args) != 2 or options:
            return result
        state = _active()
        if state is None:
            return result
        left, right = args
        if not isinstance(left, Tensor) or not isinstance(right, Tensor):
            return result
        labels = _matmul(left, right)
        if labels is None or result is NotImplemented:
            return result
        return state.product(_Product(left, right, *labels, original), result)

    return call


def _einsum(original: Callable) -> Callable:
    @wraps(original)
    def call(equation: Any, operands: Any, **options: Any) -> Any:
        result = original(equation, operands, **options)
        state = _active() if _busy else None
        if state is None or len(operands) != 2:
            return result
        left, right = operands
        labels = einsum_labels(equation, left.dim(), right.dim())
        if labels is None:
            return result
        of_left, of_right, of_output = labels

        def repeat(left: Tensor, right: Tensor) -> Tensor:
            return original(equation, (left, right), **options)

        return state.product(_Product(left, right, of_left, of_right, of_output, repeat), result)

    return call


def _elementwise(original: Callable) -> Callable:
    @wraps(original)
    def call(*args: Any, **options: Any) -> Any:
        result = original(*args, **options)
        if not _busy:
            return result
        state = _active()
        if state is not None:
            for each in args:
                weights = state.find(each)
                if weights is not None:
                    state.go_on(weights, each, result)
        return result

    return call


def _dropout(original: Callable) -> Callable:
    @wraps(original)
    def call(*args: Any, **options: Any) -> Any:
        state = _active() if _busy and args else None
        weights = None if state is None else state.find(args[0])
        result = original(*args, **options)
        if state is not None and weights is not None:
            state.go_on(weights, args[0], result, drops=True)
        return result

    return call


def _dropout_in_place(original: Callable) -> Callable:
    @wraps(original)
    def call(*args: Any, **options: Any) -> Any:
        state = _active() if _busy and args else None
        weights = None if state is None else state.find(args[0])
        if state is not None and weights is not None and weights.before is weights.tensor:
            state._add(weights._replace(before=weights.tensor.detach().clone()))
        return original(*args, **options)

    return call


METHODS = (
    *("mul", "__mul__", "__rmul__", "div", "__truediv__", "masked_fill", "where", "nan_to_num"),
    *("to", "type", "type_as", "float", "double", "half", "bfloat16"),
    *("contiguous", "clone", "reshape"),
)
"""What may stand between a softmax and its product."""

PATCHES: dict[Place, Wrap] = {
    (torch, "softmax"): _softmax,
    (torch.special, "softmax"): _softmax,
    (Tensor, "softmax"): _softmax,  # F.softmax and nn.Softmax call it
    (torch, "matmul"): _multiplied,
    (torch, "bmm"): _multiplied,
    (Tensor, "matmul"): _multiplied,
    (Tensor, "__matmul__"): _multiplied,
    (Tensor, "bmm"): _multiplied,
    (
        VARIABLE_FUNCTIONS,
        "einsum",
    ): _einsum,  # torch.einsum calls it, under every name that it was given
    (VARIABLE_FUNCTIONS, "dropout"): _dropout,
    (VARIABLE_FUNCTIONS, "dropout_"): _dropout_in_place,
    (torch, "dropout"): _dropout,
    (torch, "mul"): _elementwise,
    (torch, "div"): _elementwise,
    (torch, "where"): _elementwise,
    (torch, "masked_fill"): _elementwise,
    (torch, "nan_to_num"): _elementwise,
    **{(Tensor, name): _elementwise for name in METHODS},
}
"""Functions of torch, and what makes their replacements."""

_EARLY = {id(getattr(torch, name)): name for name in ("softmax", "matmul", "bmm")}
_WRAPS: dict[str, Wrap] = {"softmax": _softmax, "matmul": _multiplied, "bmm": _multiplied}


def patches(kinds: Iterable[type]) -> dict[Place, Wrap]:
    """What to replace: functions of torch, and names that the files of classes gave them."""
    files = {kind.__module__: sys.modules.get(kind.__module__) for kind in kinds}
    early = {
        (file, name): _WRAPS[_EARLY[id(value)]]
        for file in files.values()
        if file is not None
        for name, value in vars(file).items()
        if id(value) in _EARLY
    }
    return {**PATCHES, **early}
