"""Models of Hugging Face `transformers`, run on `attend`."""

import math
from typing import Any

from torch import Tensor, nn

from regard.attention import Attended, attend
from regard.core.mask import Mask, causal, visible
from regard.core.score import dot, precise

REFUSED = ("softcap", "s_aux")
"""What some models do to the scores and `attend` does not: soft caps, and learned sinks."""


class Scaled:
    """scale · (q · k), for models that do not divide by √d."""

    def __init__(self, scale: float | None) -> None:
        self.scale = 1.0 if scale is None else scale

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        return dot(query.to(precise(query.dtype)) * self.scale, key)

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        """The form that fast paths take."""
        return query, key, self.scale


def register() -> None:
    """Make `attn_implementation="regard"` known to transformers.

        regard.trace.adapters.hugging_face.register()
        model = AutoModel.from_pretrained(name, attn_implementation="regard")

    The model then runs on `attend`, at its speed, and `regard.capture(model)` has the weights of
    every head; `output_attentions=True` gives them as well.

    Raises:
        ImportError: if transformers is not installed
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask
    except ImportError:
        raise ImportError(
            "Hugging Face models need transformers 5: pip install transformers"
        ) from None
    AttentionInterface.register("regard", attention)
    AttentionMaskInterface.register("regard", sdpa_mask)  # boolean, True = may attend


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    output_attentions: bool = False,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """What transformers calls for the attention of a module.

    Args:
        query: (batch, heads, M, width)
        key, value: (batch, key heads, N, width)
        attention_mask: bool with True = may attend, or float to be added, (batch, 1, M, N)
        position_bias: added to the scores, (1 or batch, heads, M, N)

    Returns: context (batch, M, heads, width), and the weights if asked for
    """
    for name in REFUSED:
        if options.get(name) is not None:
            raise ValueError(
                f"{type(module).__name__} uses {name}, which attn_implementation='regard' does not "
                "have; use 'eager'"
            )
    mask: Mask | None = None
    bias = position_bias
    if attention_mask is not None:
        if attention_mask.is_floating_point():
            bias = attention_mask if bias is None else bias + attention_mask
        else:
            mask = visible(_by_groups(attention_mask, query, key))
    elif query.shape[2] > 1 and _is_causal(module, is_causal):
        mask = causal(offset=0)
    usual = scaling is None or math.isclose(scaling, query.shape[-1] ** -0.5)
    grouped = key.shape[1] != query.shape[1]
    if grouped:  # (batch, key heads, group, M, width)
        query = query.unflatten(1, (key.shape[1], -1))
        bias = None if bias is None else _by_groups(bias, query.flatten(1, 2), key)
        key, value = key.unsqueeze(2), value.unsqueeze(2)
    attended = attend(
        query,
        key,
        value,
        score="scaled_dot" if usual else Scaled(scaling),
        mask=mask,
        bias=bias,
        dropout=dropout,
        return_map=output_attentions,
    )
    weights: Tensor | None = None
    if isinstance(attended, Attended):
        context, weights = attended.output, attended.map.dense()
    else:
        context = attended
    if grouped:
        context = context.flatten(1, 2)
        weights = None if weights is None else weights.flatten(1, 2)
    return context.transpose(1, 2).contiguous(), weights


def _is_causal(module: nn.Module, asked: bool | None) -> bool:
    return bool(getattr(module, "is_causal", True) if asked is None else asked)


def _by_groups(tensor: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """A mask or bias over heads as one over (key heads, group), where keys are shared."""
    if key.shape[1] == query.shape[1]:
        return tensor
    if tensor.shape[1] == 1:
        return tensor.unsqueeze(2)
    return tensor.unflatten(1, (key.shape[1], -1))
