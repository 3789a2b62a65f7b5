"""The numbers behind a map, step by step: states, projections, scores, values, W_O."""

from typing import Any

import torch
from torch import Tensor

from regard.trace import Call
from regard.visual.page.encode import Chunks, signed

LARGEST = 3_000_000  # numbers of one call; above that a page shows weights only


def numbers(call: Call, chunks: Chunks) -> dict[str, Any] | None:
    """Pack what a call was made of, for the step-by-step view; None if it was not recorded.

    A score that is wᵀ tanh(q + k) or a dot product says so, and its projections are kept too.

    Args:
        call: one example's, (heads, M, N)
        chunks: where the numbers go
    """
    if call.inputs is None:
        return None
    query, key, value = (_headed(part) for part in call.inputs[:3])
    tensors = {"query": query, "key": key, "value": value}
    form, scale = None, 1.0
    score = call.inputs.score
    if hasattr(score, "as_additive"):
        form = "additive"
        left, right, vector = score.as_additive(call.inputs.query, call.inputs.key)
        tensors |= {"projectedQuery": left, "projectedKey": right, "vector": vector}
    elif hasattr(score, "as_dot"):
        form = "dot"
        left, right, scale = score.as_dot(call.inputs.query, call.inputs.key)
        tensors |= {"projectedQuery": left, "projectedKey": right}
    tensors = {name: _headed(tensor) for name, tensor in tensors.items()}
    cells = call.shape.numel()
    if any(not _fits(tensor, call) for tensor in tensors.values()):
        return None
    if cells + sum(tensor.numel() for tensor in tensors.values()) > LARGEST:
        return None
    if call.map._scores is not None:
        tensors["scores"] = _seen(call, call.map.scores.dense())
    normalizer = call.provenance.get("normalizer")
    return {
        "form": form,
        "scale": float(scale),
        "normalizer": normalizer if isinstance(normalizer, str) else None,
        "tensors": {name: _packed(tensor, chunks) for name, tensor in tensors.items()},
    }


def _headed(tensor: Tensor) -> Tensor:
    """As (heads or 1, rows, columns)."""
    while tensor.dim() < 3:
        tensor = tensor.unsqueeze(0)
    return tensor.detach().to("cpu", torch.float32)


def _fits(tensor: Tensor, call: Call) -> bool:
    """Whether a tensor is of one example: a head's or all heads'."""
    return tensor.dim() == 3 and tensor.shape[0] in (1, call.heads)


def _seen(call: Call, scores: Tensor) -> Tensor:
    """Scores with −inf where the mask hides a key."""
    assert call.inputs is not None
    if call.inputs.mask is None:
        return _headed(scores)
    visible = call.inputs.mask.dense(*call.shape[-2:])
    while visible.dim() > 3 and visible.shape[0] == 1:
        visible = visible[0]
    if visible.dim() > 3 or (visible.dim() == 3 and visible.shape[0] not in (1, call.heads)):
        return _headed(scores)  # of a whole batch: which example this is, nobody knows here
    return _headed(scores.masked_fill(~visible, -torch.inf))


def _packed(tensor: Tensor, chunks: Chunks) -> dict[str, Any]:
    scale, cells = signed(tensor.numpy())
    return {"shape": list(tensor.shape), "bundle": chunks.add(scale=scale, cells=cells)}
