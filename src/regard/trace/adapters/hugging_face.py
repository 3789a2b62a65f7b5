"""Hugging Face transformers models on `attend`: `attn_implementation="regard"`."""

import inspect
import math
import sys
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Attended, attend
from regard.attention.observer import (
    any_edits,
    calling,
    notify,
    observers,
    reject_edit,
    unobserved,
)
from regard.attention.record import CallRecord
from regard.core.elementwise import SoftCap
from regard.core.lower import DotScore
from regard.core.map import AttentionMap
from regard.core.mask import Mask, causal, visible
from regard.core.normalize import Normalizer
from regard.core.request import Request
from regard.layers.role import DECODER_SELF, ENCODER_DECODER, AttentionRole
from regard.system.torch_internals import tree_map_only
from regard.trace.adapters import own_code

CROSS = "cross_attentions"
"""What transformers calls the attention from target to source, among a model's outputs."""

EDITABLE = ("attention", "sdpa_attention_forward")
"""Attention functions whose calls observers can edit."""

TABLE = "_ATTENTION_CLASSES"
"""How models call a table of attention classes by implementation."""

UNSUPPORTED = ("cache",)
"""Arguments that change what is attended to and that `attend` has no counterpart of."""


def register_transformers() -> None:
    """Register `attn_implementation="regard"` with Hugging Face transformers.

        regard.trace.register_transformers()
        model = AutoModel.from_pretrained(name, attn_implementation="regard")

    The model then runs on `attend`, at its speed, and `regard.capture(model)` has the weights of
    every head; `output_attentions=True` returns them as well. A model that computes attention in
    its own code keeps doing so, with the masks of "eager"; one that selects its attention class
    from a table of its own is refused with a ValueError.

    Raises:
        ImportError: if transformers is not installed
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
    except ImportError:
        raise ImportError(
            "Hugging Face models need transformers 5: pip install transformers"
        ) from None
    AttentionInterface.register("regard", attention)
    AttentionMaskInterface.register("regard", attention_mask)
    original = PreTrainedModel.get_correct_attn_implementation
    if not hasattr(original, "__wrapped__"):
        setattr(PreTrainedModel, original.__name__, _refusing(original))


def attention_mask(
    batch_size: int, q_length: int, kv_length: int, *args: Any, config: Any = None, **options: Any
) -> Tensor | None:
    """Build the mask of a model: boolean if it only goes to `attention`, else the float of "eager".

    A boolean mask that a model adds to scores, or appends a bias to, would hide nothing. No mask
    means that all is visible: where transformers leaves a causal mask out, it is a `CausalMask`.
    """
    from transformers.masking_utils import eager_mask, sdpa_mask

    sizes = (batch_size, q_length, kv_length)
    if config is None or not _uses_interface(type(config)):
        return eager_mask(*sizes, *args, config=config, **options)
    if torch.compiler.is_compiling():
        options["allow_is_causal_skip"] = False
    mask = sdpa_mask(*sizes, *args, config=config, **options)
    if mask is None and q_length > 1 and options.get("allow_is_causal_skip", True):
        return CausalMask((batch_size, 1, q_length, kv_length), options.get("device", "cpu"))
    return mask


class CausalMask(Tensor):
    """A causal mask (batch, 1, M, N) that takes memory only if a model computes with it.

    >>> mask = CausalMask((1, 1, 2, 3), "cpu")
    >>> mask.shape, mask[0, 0]
    (torch.Size([1, 1, 2, 3]), tensor([[ True, False, False],
            [ True,  True, False]]))
    """

    @staticmethod
    def __new__(cls, shape: tuple[int, ...], device: Any) -> "CausalMask":
        make = Tensor._make_wrapper_subclass
        return make(cls, shape, dtype=torch.bool, device=device)

    def __init__(self, shape: tuple[int, ...], device: Any) -> None:
        self.stored: Tensor | None = None

    @property
    def is_symbolic(self) -> bool:
        """Whether nothing has been computed with it, so that it is still a causal mask."""
        return self.stored is None

    def dense(self) -> Tensor:
        """The boolean tensor."""
        if self.stored is None:
            ones = torch.ones(self.shape, dtype=torch.bool, device=self.device)
            self.stored = ones.tril()
        return self.stored

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, args: Any = (), options: Any = None
    ) -> Any:
        args, options = tree_map_only(CausalMask, CausalMask.dense, (args, options or {}))
        return function(*args, **options)


def _uses_interface(config: type) -> bool:
    """Whether all models of a configuration class give their masks to the attention interface.

    One that does not support SDPA may compute with its mask.
    """
    from transformers import PreTrainedModel

    models, found = [PreTrainedModel], []
    while models:
        model = models.pop()
        models += model.__subclasses__()
        if model.config_class is config:
            found.append(model)
    return bool(found) and all(
        model._supports_sdpa and hasattr(sys.modules[model.__module__], "ALL_ATTENTION_FUNCTIONS")
        for model in found
    )


def _refusing(original: Callable) -> Callable:
    """The check of an implementation's name, which refuses models that cannot run on `attend`."""

    @wraps(original)
    def check(self: Any, requested: str | None, *args: Any, **options: Any) -> str:
        tables = [name for name in vars(sys.modules[type(self).__module__]) if name.endswith(TABLE)]
        if requested == "regard" and tables:
            raise ValueError(
                f"{type(self).__name__} selects its attention from {tables[0]}, not through "
                "transformers' attention interface, so it cannot run on "
                "attn_implementation='regard'; use 'eager' or 'sdpa'"
            )
        return original(self, requested, *args, **options)

    return check


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    indices: Tensor | None = None,
    block_indices: Tensor | None = None,
    output_attentions: bool = False,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Compute the attention of a transformers module with `attend`.

    As in a model's eager attention, the mask alone says what is hidden: `is_causal` is for kernels
    that get no mask.

    Args:
        query: (batch, heads, M, width)
        key, value: (batch, key heads, N, width)
        attention_mask: bool with True = may attend, or float to be added, (batch, 1, M, N)
        position_bias: added to the scores, (1 or batch, heads, M, N)
        softcap: limit of the scores, see `SoftCap`
        s_aux: logits of the sinks, (heads,), see `Normalizer`
        indices: of the keys that each query selects, (batch, M, selected)
        block_indices: of the blocks of keys, -1 for none, (batch, groups of heads, M, selected)

    Returns: context (batch, M, heads, width), and the weights if `output_attentions`
    """
    unsupported = [name for name in UNSUPPORTED if options.get(name) is not None]
    if unsupported:
        raise ValueError(
            f"{type(module).__name__} uses {unsupported[0]}, which attn_implementation='regard' "
            "does not support; use 'eager'"
        )
    groups = query.shape[1] // key.shape[1]
    if indices is not None:
        chosen = _selected(indices.unsqueeze(1), key.shape[2], 1)
        attention_mask = _both(attention_mask, chosen)
    if block_indices is not None:
        indexer: Any = module.indexer
        size = indexer.block_size
        chosen = _selected(block_indices, key.shape[2], size)
        repeats = query.shape[1] // chosen.shape[1]
        attention_mask = _both(attention_mask, chosen.repeat_interleave(repeats, 1))
    mask: Mask | None = None
    bias, path = position_bias, "auto"
    if isinstance(attention_mask, CausalMask) and attention_mask.is_symbolic:
        mask = causal(offset=0)
    elif attention_mask is None:
        pass
    elif attention_mask.is_floating_point():
        bias = attention_mask if bias is None else bias + attention_mask
        if torch.is_grad_enabled() and _hides_whole_rows(attention_mask):
            path = "reference"  # the only one that has eager's gradient of such a query
    else:
        mask = visible(_grouped(attention_mask[...], groups))
    if groups > 1:  # (batch, key heads, group, M, width)
        query, key, value = query.unflatten(1, (-1, groups)), key.unsqueeze(2), value.unsqueeze(2)
        bias = None if bias is None else _grouped(bias, groups)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    usual = math.isclose(scale, query.shape[-1] ** -0.5)
    plain = "scaled_dot" if usual else DotScore(scale)
    sinks = s_aux if s_aux is None or groups == 1 else s_aux.unflatten(0, (-1, groups))
    attended = attend(
        query,
        key,
        value,
        score=plain if softcap is None else SoftCap(softcap, plain),
        mask=mask,
        bias=bias,
        normalize="softmax" if sinks is None else Normalizer(sink=sinks),
        dropout=dropout,
        path=path,
        return_map=output_attentions,
    )
    weights: Tensor | None = None
    if isinstance(attended, Attended):
        context, weights = attended.output, attended.map.dense()
    else:
        context = attended
    if groups > 1:
        context = context.flatten(1, 2)
        weights = None if weights is None else weights.flatten(1, 2)
    return context.transpose(1, 2).contiguous(), weights


def _selected(indices: Tensor, keys: int, size: int) -> Tensor:
    """Whether each key is in a selected block of `size` keys, bool (..., M, keys); -1 is no block.

    >>> _selected(torch.tensor([[0, -1], [2, 0]]), keys=5, size=2)
    tensor([[ True,  True, False, False, False],
            [ True,  True, False, False,  True]])
    """
    count = -(-keys // size)
    places = indices.long().where(indices >= 0, count)
    blocks = indices.new_zeros((*indices.shape[:-1], count + 1), dtype=torch.bool)
    blocks = blocks.scatter(-1, places, True)[..., :count]
    return blocks.repeat_interleave(size, -1)[..., :keys]


def _both(mask: Tensor | None, chosen: Tensor) -> Tensor:
    """A mask that also hides what was not chosen."""
    if mask is None:
        return chosen
    if mask.is_floating_point():
        return mask.masked_fill(~chosen, torch.finfo(mask.dtype).min)
    return mask & chosen


def _hides_whole_rows(bias: Tensor) -> bool:
    """Whether the smallest number of its dtype hides every key from some query.

    The scores of such a query vanish beside it: eager attention weighs all its keys alike, and a
    fused kernel, which keeps the logarithm of the sum alone, has another gradient.
    """
    if torch.compiler.is_compiling() or not bias.numel():
        return False
    return bool((bias.amax(-1) <= torch.finfo(bias.dtype).min).any())


def _grouped(tensor: Tensor, groups: int) -> Tensor:
    """(batch, heads, M, N) as (batch, key heads, group, M, N)."""
    if groups == 1:
        return tensor
    if tensor.shape[1] == 1:
        return tensor.unsqueeze(2)
    return tensor.unflatten(1, (-1, groups))


# ---------------------------------------------------------------------- observing


def patches() -> dict[tuple[Any, str], Callable[[Callable], Callable]]:
    """What to replace in transformers, if it is imported, so that observers see its attention."""
    utils = sys.modules.get("transformers.modeling_utils")
    return {} if utils is None else {(utils.AttentionInterface, "get_interface"): _observing}


def _observing(get_interface: Callable) -> Callable:
    """Give out attention functions that notify observers and name the module that calls them."""

    @wraps(get_interface)
    def get(self: Any, implementation: str, default: Callable) -> Callable:
        function = get_interface(self, implementation, default)
        return partial(_observed, function, function is default) if observers() else function

    return get


def _observed(
    function: Callable, eager: bool, module: nn.Module, *args: Any, **options: Any
) -> tuple[Tensor, Tensor | None]:
    with calling(module):
        listening = observers()
        if eager and any_edits(listening):
            function, eager = attention, False  # the same numbers, and it can be edited
        elif any_edits(listening) and function.__name__ not in EDITABLE:
            reject_edit(listening, f"{function.__name__} takes no mask; use 'eager' or 'sdpa'")
        if not eager:
            return function(module, *args, **options)
        before = own_code.count()
        output, weights = function(module, *args, **options)
        if own_code.count() == before:  # no softmax of it became the weights of values
            arguments = inspect.signature(function).bind(module, *args, **options).arguments
            if {"query", "key", "value"} <= arguments.keys():
                notify(listening, _eager_call(function, arguments, output))
    return output, weights


def _eager_call(function: Callable, arguments: dict[str, Any], output: Tensor) -> CallRecord:
    """The attention call of a model's `eager_attention_forward`, whose weights it repeats."""
    query, key, value = (arguments[name] for name in ("query", "key", "value"))
    options = {**arguments, **arguments.get("kwargs", {}), "dropout": 0.0}
    options.pop("kwargs", None)
    made: list[Tensor] = []

    def map(_: Request | None) -> AttentionMap:
        def rows(some: slice) -> Tensor:
            if not made:
                with torch.no_grad(), unobserved():
                    made.append(function(**options)[1])
            return made[0][..., some, :]

        return AttentionMap(rows, None, (*query.shape[:-1], key.shape[-2]))

    def combine(_: Request | None, weights: Tensor, __: slice) -> Tensor:
        return weights @ value.repeat_interleave(query.shape[1] // value.shape[1], 1)

    module = arguments["module"]
    drops = module.training and arguments.get("dropout", 0.0) > 0
    tensors = {name: arguments.get(name) for name in ("query", "key", "value", "attention_mask")}
    return CallRecord(
        value,
        output.transpose(1, 2),
        (*query.shape[:-1], key.shape[-2]),
        "eager",
        None,
        map,
        None if drops else combine,
        tensors=tuple((name, each) for name, each in tensors.items() if each is not None),
        result=(output, lambda gradient: gradient.transpose(1, 2)),
    )


def transformers_roles(modules: Mapping[str, nn.Module]) -> dict[int, AttentionRole]:
    """The roles of attention modules in encoder–decoders, as transformers declares them."""
    crossing = [
        recorder
        for model in modules.values()
        for recorder in _listed((getattr(model, "_can_record_outputs", None) or {}).get(CROSS))
    ]
    cross: dict[int, AttentionRole] = {}
    for name, module in modules.items():
        for recorder in crossing:
            kind = getattr(recorder, "target_class", recorder)
            part = (getattr(recorder, "layer_name", None) or "").strip(".")
            if isinstance(kind, type) and isinstance(module, kind) and f".{part}" in f".{name}.":
                cross |= {id(each): ENCODER_DECODER for each in module.modules()}
    own: dict[int, AttentionRole] = {}
    for model in modules.values():
        config = getattr(model, "config", None)
        if getattr(config, "is_encoder_decoder", False) and hasattr(model, "get_decoder"):
            decoder: nn.Module = model.get_decoder()  # type: ignore[operator]
            inside = [id(each) for each in decoder.modules()]
            if decoder is not model or not cross.keys().isdisjoint(inside):  # no encoder's own
                own |= dict.fromkeys(inside, DECODER_SELF)
    return own | cross


def _listed(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]
