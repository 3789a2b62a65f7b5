"""Torch's attention functions, which notify observers while there are any.

`F.scaled_dot_product_attention` and what `nn.MultiheadAttention` and `nn.TransformerEncoderLayer`
call are replaced by functions that call them, unchanged, and then notify. Hooks would not do:
where a module has one, torch leaves its fast path, and the numbers change.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import lru_cache, wraps
from threading import Lock
from types import CellType, FunctionType
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from regard.attention.dispatch import map_of
from regard.attention.observer import (
    Observer,
    any_edits,
    calling,
    edit_request,
    notify,
    observers,
    reject_edit,
    unobserved,
)
from regard.attention.record import CallRecord
from regard.core.lower import DotScore
from regard.core.mask import Mask, causal, visible
from regard.core.normalize import softmax
from regard.core.request import Request, make_request
from regard.system.torch_internals import NATIVE_ENCODER_LAYER, NATIVE_MULTI_HEAD
from regard.trace.adapters import hugging_face, kernels, multi_head, own_code, recurrences

Place = tuple[Any, str]
Wrap = Callable[[Callable], Callable]

_lock = Lock()
_users: dict[Place, tuple[int, Callable | None]] = {}  # how many there are, and what was there
_owners: WeakValueDictionary[int, nn.MultiheadAttention] = WeakValueDictionary()  # by id(W_O)
_wrappers: dict[Place, tuple[Callable, Callable]] = {}  # originals and their replacements


def sdpa(
    output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> CallRecord:
    """The attention call of a `F.scaled_dot_product_attention`."""
    groups = query.shape[-3] // key.shape[-3] if enable_gqa else 1

    def request() -> Request:
        q, k, v, mask, bias = query, key, value, None, None
        if attn_mask is not None:
            whole = attn_mask if attn_mask.dim() > 1 else attn_mask[None]
            mask, bias = (whole, None) if whole.dtype == torch.bool else (None, whole)
        if groups > 1:  # (..., heads, M, D) to (..., key heads, group, M, D)
            q, k, v = q.unflatten(-3, (-1, groups)), k.unsqueeze(-3), v.unsqueeze(-3)
            mask, bias = (_grouped(each, key.shape[-3]) for each in (mask, bias))
        q = q[(None,) * (k.dim() - q.dim())]  # torch broadcasts
        seen: Mask | None = None if mask is None else visible(mask)
        if is_causal:
            seen = causal(offset=0) if seen is None else seen & causal(offset=0)
        factor = query.shape[-1] ** -0.5 if scale is None else scale
        score = DotScore(factor)
        return make_request(
            q, k, v, score=score, mask=seen, bias=bias, normalize=softmax, dropout=0.0
        )

    def combine(request: Request | None, weights: Tensor, rows: slice) -> Tensor:
        assert request is not None
        made = request.edited(weights @ request.value.to(weights.dtype), rows)
        return made.flatten(-4, -3) if groups > 1 else made

    shape = (*output.shape[:-2], query.shape[-2], key.shape[-2])
    tensors = [("query", query), ("key", key), ("value", value), ("attn_mask", attn_mask)]
    return CallRecord(
        value,
        output,
        shape,
        "scaled_dot_product_attention",
        request,
        map_of,
        None if dropout_p else combine,
        tensors=tuple((name, tensor) for name, tensor in tensors if tensor is not None),
    )


REPORTS: dict[Place, Callable[..., CallRecord]] = {
    (F, "scaled_dot_product_attention"): sdpa,
    (F, "multi_head_attention_forward"): multi_head.forward,
    NATIVE_MULTI_HEAD: multi_head.native,
    NATIVE_ENCODER_LAYER: multi_head.encoder_layer,
}
"""Functions of torch, and what makes an attention call of their output and arguments."""


@contextmanager
def reported(
    forwards: Mapping[Place, Wrap],
    multi_head: Iterable[nn.MultiheadAttention],
    kinds: Iterable[type] | None = None,
) -> Iterator[None]:
    """Let torch's and transformers' attention notify observers until the block ends.

    Args:
        forwards: the methods of modules to replace, with what makes their replacements
        multi_head: modules of torch, to which calls with their weights are attributed
        kinds: classes that may compute attention in their own code; None if there are none
    """
    _owners.update({id(module.out_proj.weight): module for module in multi_head})
    patches = {**_PATCHES, **hugging_face.patches(), **forwards}
    if kinds is not None:
        patches |= {**own_code.patches(kinds), **recurrences.patches(kinds)}
        for place, report in kernels.places(kinds).items():
            patches[place] = _both(_reporting(report), forwards.get(place))
    with _lock:
        for place, wrap in patches.items():
            _patch(place, wrap)
    try:
        with own_code.following():
            yield
    finally:
        with _lock:
            for place in patches:
                _restore(place)


def _patch(place: Place, wrap: Wrap) -> None:
    owner, name = place
    users, own = _users.get(place, (0, None))
    if not users:
        own = vars(owner).get(name)  # None if a class inherits it
        current = getattr(owner, name)
        original, wrapper = _wrappers.get(place, (None, None))
        if wrapper is None or original is not current:
            wrapper = wrap(current)
            if place in _PATCHES:
                _wrappers[place] = current, wrapper
        setattr(owner, name, wrapper)
    _users[place] = users + 1, own


def _restore(place: Place) -> None:
    owner, name = place
    users, own = _users.pop(place)
    if users > 1:
        _users[place] = users - 1, own
    elif own is None:
        delattr(owner, name)
    else:
        setattr(owner, name, own)


class EarlyBound(TorchFunctionMode):
    """Sees `F.scaled_dot_product_attention` under names that were bound to it before.

    `from torch.nn.functional import scaled_dot_product_attention` keeps the original. A mode costs
    microseconds for each call of torch and turns its fast paths off: see `binds_early`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sdpa = _reporting(sdpa)(_SDPA)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = self.sdpa if func is _SDPA else func
        return call(*args, **kwargs or {})


_SDPA = F.scaled_dot_product_attention


@lru_cache(maxsize=4096)
def binds_early(kind: type) -> bool:
    """Whether the code of a class may call the original function by a name of its own.

    Looks at the names in its file, in the files of functions imported there, and in closures.
    """
    file = vars(sys.modules.get(kind.__module__, object))
    methods = [each for each in vars(kind).values() if isinstance(each, FunctionType)]
    functions = [each for each in file.values() if isinstance(each, FunctionType)]
    places = {id(each.__globals__): each.__globals__ for each in (*methods, *functions)}
    if any(_SDPA in _functions(names.values()) for names in (file, *places.values())):
        return True
    return any(_SDPA in _functions([*(each.__defaults__ or ()), *_cells(each)]) for each in methods)


def _functions(values: Iterable[Any]) -> list[Any]:
    """Those that are of the type of torch's function: comparing others may be expensive."""
    return [value for value in values if isinstance(value, type(_SDPA))]


def _cells(function: FunctionType) -> list[Any]:
    cells = function.__closure__ or ()
    return [cell.cell_contents for cell in cells if cell != CellType()]


def _both(inner: Wrap, outer: Wrap | None) -> Wrap:
    return inner if outer is None else lambda original: outer(inner(original))


def _reporting(report: Callable[..., CallRecord | None]) -> Wrap:
    """Make a function notify observers of its calls."""

    def wrap(original: Callable) -> Callable:
        @wraps(original)
        def call(*args: Any, **options: Any) -> Any:
            listening = observers()
            if not listening:
                return original(*args, **options)
            with unobserved():
                output = original(*args, **options)
            made = report(output, *args, **options)
            if made is None:
                return output
            owner = _owner(made)
            with nullcontext() if owner is None else calling(owner):
                if any_edits(listening):
                    output, made = _edited(listening, output, made)
                notify(listening, made)
            return output

        return call

    return wrap


_PATCHES: dict[Place, Wrap] = {
    place: _reporting(report) for place, report in REPORTS.items() if hasattr(*place)
}


def _owner(call: CallRecord) -> nn.Module | None:
    """The module of torch that holds the weights of a call, if it is known."""
    for name, weight in call.tensors:
        if name == "out_proj":
            owner = _owners.get(id(weight))
            return owner if owner is not None and owner.out_proj.weight is weight else None
    return None


def _edited(
    listening: tuple[Observer, ...], output: Any, call: CallRecord
) -> tuple[Any, CallRecord]:
    """The output and the call after the edits of the observers."""
    request = call.request
    if request is None:
        reject_edit(listening, f"{call.path} takes no mask")
        return output, call
    edited = edit_request(listening, request)
    if edited is request:
        return output, call
    if call.combine is None:
        raise ValueError(
            f"an edit cannot repeat the dropout of torch's {call.path}; call model.eval() first"
        )
    weights = call.make_map(edited).dense()  # (batch, heads, M, N)
    context = call.combine(edited, weights, edited.rows)
    call = replace(call, output=context, source=edited, result=None)
    if isinstance(output, Tensor):
        return context, call
    attended, averaged = output  # of multi_head_attention_forward, length first
    if averaged is not None:
        whole = averaged.numel() == weights.numel()
        averaged = (weights if whole else weights.mean(1)).reshape(averaged.shape)
    return (context.transpose(0, 1).reshape(attended.shape), averaged), call


def _grouped(mask: Tensor | None, key_heads: int) -> Tensor | None:
    """A mask over heads as one over (key heads, group)."""
    if mask is None or mask.dim() < 3:
        return mask
    if mask.shape[-3] == 1:
        return mask.unsqueeze(-3)
    return mask.unflatten(-3, (key_heads, -1))
