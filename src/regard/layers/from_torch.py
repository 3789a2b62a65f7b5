"""Torch's own layers in the terms of ours: arguments to build with, weights to load."""

from typing import Any

from torch import Tensor, nn


def multi_head_from_torch(
    layer: nn.MultiheadAttention,
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The arguments and the state_dict of a `MultiHeadAttention` with the same weights."""
    if layer.bias_k is not None or layer.add_zero_attn:
        raise ValueError(
            "add_bias_kv and add_zero_attn add keys that are not in the input, which "
            "MultiHeadAttention does not do; build the nn.MultiheadAttention without them"
        )
    arguments = {
        "dim": layer.embed_dim,
        "heads": layer.num_heads,
        "key_dim": layer.kdim,
        "value_dim": layer.vdim,
        "dropout": layer.dropout,
        "bias": layer.in_proj_bias is not None,
    }
    names = ("query_projection", "key_projection", "value_projection")
    parts: tuple[Tensor, ...]
    if layer.in_proj_weight is None:
        parts = (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight)
    else:
        parts = layer.in_proj_weight.chunk(3)
    weights = {f"{name}.weight": part for name, part in zip(names, parts, strict=True)}
    if layer.in_proj_bias is not None:
        parts = layer.in_proj_bias.chunk(3)
        weights |= {f"{name}.bias": part for name, part in zip(names, parts, strict=True)}
    weights |= {f"output_projection.{n}": t for n, t in layer.out_proj.state_dict().items()}
    return arguments, weights
