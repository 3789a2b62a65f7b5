"""The tensors behind a map, for the step-by-step view: states, projections, scores, values, W_O."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.core.score import ProjectedAdditive
from regard.trace import Call, Inputs
from regard.visual.page.encode import Chunks, signed

LARGEST = 3_000_000  # elements of one call; above that a page shows weights only


def numbers(call: Call, chunks: Chunks) -> dict[str, Any] | None:
    """Pack the inputs of a call; None if they were not recorded or are too large for a page.

    Additive scores and dot products are packed with their projections.

    Args:
        call: one example's, (heads, M, N)
        chunks: receives the packed tensors
    """
    inputs = call.inputs
    if inputs is None:
        return None
    rows, columns = call.shape[-2:]  # without padding, which comes last
    query, key = inputs.query[..., :rows, :], inputs.key[..., :columns, :]
    value = inputs.value[..., :columns, :]
    # a decoder that runs step by step projects the keys once; the original states are the values
    states = value if isinstance(inputs.score, ProjectedAdditive) else key
    tensors = {"query": query, "key": states, "value": value}
    form, scale = None, 1.0
    if hasattr(inputs.score, "as_additive"):
        form = "additive"
        left, right, vector = inputs.score.as_additive(query, key)
        tensors |= {"projectedQuery": left, "projectedKey": right, "vector": vector[None]}
    elif hasattr(inputs.score, "as_dot"):
        form = "dot"
        left, right, scale = inputs.score.as_dot(query, key)
        tensors |= {"projectedQuery": left, "projectedKey": right}
    groups = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    if groups.numel() not in (1, call.heads):
        return None
    tensors = {name: _by_head(tensor, groups) for name, tensor in tensors.items()}
    if call.shape.numel() + sum(tensor.numel() for tensor in tensors.values()) > LARGEST:
        return None
    if inputs.output is not None:
        tensors["output"] = _projected(call, tensors["value"], inputs.output)
    if call.map._scores is not None:
        tensors["scores"] = _masked_scores(inputs, call)
    normalizer = call.provenance.get("normalizer")
    return {
        "form": form,
        "scale": float(scale),
        "normalizer": normalizer if isinstance(normalizer, str) else None,
        "tensors": {name: _packed(tensor, chunks) for name, tensor in tensors.items()},
    }


@torch.no_grad()
def _projected(call: Call, value: Tensor, output: nn.Linear) -> Tensor:
    """The concatenated sums of the heads times W_O, (1, M, D): smaller than W_O itself."""
    weights = call.map.dense().to("cpu", torch.float32)  # (heads, M, N)
    joined = (weights @ value).transpose(0, 1).flatten(1)  # (M, heads · Dv)
    bias = None if output.bias is None else output.bias.cpu().float()
    return F.linear(joined, output.weight.cpu().float(), bias)[None]


def _by_head(tensor: Tensor, groups: torch.Size) -> Tensor:
    """(..., rows, columns) as (heads, rows, columns), or as (1, ...) if all heads share it."""
    leading, last = tensor.shape[:-2], tensor.shape[-2:]
    if leading.numel() > 1:
        tensor = tensor.expand(*groups, *last)
    return tensor.detach().reshape(-1, *last).to("cpu", torch.float32)


def _masked_scores(inputs: Inputs, call: Call) -> Tensor:
    """Scores with −inf where the mask hides a key."""
    scores = call.map.scores.dense().detach().to("cpu", torch.float32)
    if inputs.mask is None:
        return scores
    visible = inputs.mask.dense(inputs.query.shape[-2], inputs.key.shape[-2]).to("cpu")
    visible = visible[..., : call.shape[-2], : call.shape[-1]]
    leading = visible.shape[:-2].numel()
    if leading not in (1, call.heads):
        return scores  # the mask is of a batch, and the index of this example is not known
    return scores.masked_fill(~visible.reshape(leading, *call.shape[-2:]), -torch.inf)


def _packed(tensor: Tensor, chunks: Chunks) -> dict[str, Any]:
    scale, cells = signed(tensor.numpy())
    return {"shape": list(tensor.shape), "bundle": chunks.add(scale=scale, cells=cells)}
