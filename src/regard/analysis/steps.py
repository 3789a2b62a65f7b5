"""The numbers of an attention call, step by step, from the inputs of its layer to its output."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regard.core.normalize import softmax
from regard.core.score import ProjectedAdditive
from regard.trace import Call, Inputs

TOLERANCE = 1e-3  # largest difference of X·W_V from the values, relative to them

Missing = Literal["inputs", "projections", "earlier", "layer", "scores", "output", "selected"]


@dataclass(frozen=True)
class Steps:
    """The tensors of a call by name, (heads, length, width) each, or (1, ...) if heads share it.

    | name | what it is |
    |---|---|
    | input_query, input_key, input_value | X, what the layer projects |
    | projected_query, projected_key | X·W_Q and X·W_K, if these are changed before the score |
    | query, key, value | the vectors that are compared, and the values |
    | left, right, vector | those of the score, if it projects again: q·W, or W₁q, W₂k and w |
    | scores | with bias, −inf where a key is hidden |
    | sums | weights · values |
    | output | the concatenated sums times W_O, (1, M, D) |

    Args:
        tensors: by these names; a name is missing if the step is, or changes nothing
        form: the score is `scale` · left · right ("dot"), vector · tanh(left + right)
            ("additive"), or something else (None); left and right are query and key if missing
        scale: of a dot product
        has_bias: whether a bias was added to the scores
        is_softmax: whether the weights are the softmax of the scores
        missing: why steps are missing, by the first tensor of the step
    """

    tensors: dict[str, Tensor]
    form: Literal["dot", "additive"] | None
    scale: float
    has_bias: bool
    is_softmax: bool
    missing: dict[str, Missing]


@torch.no_grad()
def attention_steps(call: Call) -> Steps | None:
    """The steps of a call of one example; None if its queries, keys and values were not recorded.

    >>> import regard
    >>> from regard.layers import MultiHeadAttention
    >>> layer, x = MultiHeadAttention(6, heads=2), torch.randn(1, 5, 6)
    >>> with regard.capture(layer, inputs=True) as trace:
    ...     y = layer(x)
    >>> steps = attention_steps(trace.of(0).calls[0])
    >>> torch.allclose(steps.tensors["output"], y, atol=1e-6)
    True

    Args:
        call: (heads, M, N)
    """
    inputs = call.inputs
    if inputs is None or call.batch is not None:
        return None
    rows = call.provenance.get("rows", list(range(call.shape[-2])))
    columns = range(call.shape[-1])  # without padding, which comes last
    query, key = inputs.query[..., rows, :], inputs.key[..., columns, :]
    value = inputs.value[..., columns, :]
    groups = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    heads = call.provenance.get("heads", list(range(call.heads)))
    if groups.numel() != 1 and max(heads) >= groups.numel():
        return None
    tensors, missing = _before(inputs, query, key, value, rows)
    # a decoder that runs step by step projects the keys once; the original states are the values
    states = value if isinstance(inputs.score, ProjectedAdditive) else key
    tensors |= {"query": query, "key": states, "value": value}
    form, scale, own = _score(inputs, query, key)
    tensors = {name: _by_head(each, groups, heads) for name, each in (tensors | own).items()}
    weights = call.map.dense().to(tensors["value"])
    tensors["sums"] = weights @ tensors["value"]  # (heads, M, Dv)
    joined = tensors["sums"].transpose(0, 1).flatten(1)  # (M, heads · Dv)
    output = inputs.output
    if "heads" in call.provenance:
        missing["output"] = "selected"
    elif output is None or _width(output) != joined.shape[-1]:
        missing["output"] = "output"
    else:
        weight = output.weight
        assert isinstance(weight, Tensor)
        tensors["output"] = output(joined.to(weight))[None]
    if call.map._scores is None:
        missing["scores"] = "scores"
    else:
        tensors["scores"] = _masked_scores(inputs, call, rows)
    tensors = {name: each.detach().to("cpu", torch.float32) for name, each in tensors.items()}
    is_softmax = inputs.normalize is softmax or call.provenance.get("normalizer") == "softmax"
    return Steps(tensors, form, scale, inputs.bias is not None, is_softmax, missing)


def _before(
    inputs: Inputs, query: Tensor, key: Tensor, value: Tensor, rows: list[int]
) -> tuple[dict[str, Tensor], dict[str, Missing]]:
    """X, and X·W_Q and X·W_K where queries and keys are something else; or why not."""
    layer = inputs.layer
    if layer is None:
        return {}, {"input_query": "inputs" if inputs.has_projections else "projections"}
    lengths = (inputs.query.shape[-2], inputs.key.shape[-2], inputs.value.shape[-2])
    if tuple(x.shape[-2] for x in layer.inputs) != lengths:
        return {}, {"input_query": "earlier"}
    columns = range(key.shape[-2])
    places = (rows, columns, columns)
    x, y, z = (each[..., place, :] for each, place in zip(layer.inputs, places, strict=True))
    names = ("query", "key", "value")
    found = {"input_query": x, "input_key": y, "input_value": z}
    projected = layer._replace(inputs=(x, y, z)).project()
    if projected is None:
        return found, {}
    tensors = (query, key, value)
    split = [_split(made, tensor) for made, tensor in zip(projected, tensors, strict=True)]
    if any(each is None for each in split) or not _is_close(split[2], value):
        return {}, {"input_query": "layer"}
    for name, made, tensor in zip(names[:2], split, tensors, strict=False):
        if not _is_close(made, tensor):
            found[f"projected_{name}"] = made  # type: ignore[assignment]
    return found, {}


def _split(projected: Tensor, like: Tensor) -> Tensor | None:
    """(length, heads · width) as (..., length, width); None if that is not what it is."""
    width, heads = like.shape[-1], like.shape[:-2].numel()
    if not width or projected.shape[-1] % width:
        return None
    made = projected.reshape(-1, projected.shape[-1] // width, width).transpose(0, 1)
    if heads % len(made):
        return None
    return made.repeat_interleave(heads // len(made), 0).reshape(like.shape)


def _is_close(made: Tensor | None, tensor: Tensor) -> bool:
    largest = float(tensor.abs().max()) if tensor.numel() else 0.0
    return made is not None and torch.allclose(made, tensor, rtol=0, atol=TOLERANCE * largest)


def _score(
    inputs: Inputs, query: Tensor, key: Tensor
) -> tuple[Literal["dot", "additive"] | None, float, dict[str, Tensor]]:
    """The form of the score, its scale, and what it compares if that is not query and key."""
    score = inputs.score
    if hasattr(score, "as_additive"):
        left, right, vector = score.as_additive(query, key)
        return "additive", 1.0, {"left": left, "right": right, "vector": vector[None]}
    if not hasattr(score, "as_dot"):
        return None, 1.0, {}
    left, right, scale = score.as_dot(query, key)
    if left is query and right is key:
        return "dot", float(scale), {}
    return "dot", float(scale), {"left": left, "right": right}


def _by_head(tensor: Tensor, groups: torch.Size, heads: list[int]) -> Tensor:
    """(..., rows, columns) as (heads, rows, columns), or as (1, ...) if all heads share it."""
    leading, last = tensor.shape[:-2], tensor.shape[-2:]
    if leading.numel() <= 1:
        return tensor.reshape(1, *last)
    return tensor.expand(*groups, *last).reshape(-1, *last)[heads]


def _width(projection: torch.nn.Module) -> int:
    """How wide the inputs of a projection are; transformers' Conv1D stores W transposed."""
    weight = projection.weight
    assert isinstance(weight, Tensor)
    return weight.shape[1 if isinstance(projection, torch.nn.Linear) else 0]


def _masked_scores(inputs: Inputs, call: Call, rows: list[int]) -> Tensor:
    """Scores with −inf where the mask hides a key."""
    scores = call.map.scores.dense()
    if inputs.mask is None:
        return scores
    visible = inputs.mask.dense(inputs.query.shape[-2], inputs.key.shape[-2]).to(scores.device)
    visible = visible[..., rows, : call.shape[-1]]
    heads = visible.shape[:-2].numel()
    if heads > 1 and "heads" in call.provenance:
        visible = visible.reshape(heads, *call.shape[-2:])[call.provenance["heads"]]
        heads = len(visible)
    if heads not in (1, call.heads):
        return scores  # the mask is of a batch, and the index of this example is not known
    return scores.masked_fill(~visible.reshape(heads, *call.shape[-2:]), -torch.inf)
