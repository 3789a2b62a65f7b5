"""The numbers of an attention call, step by step, from the inputs of its layer to its output."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from regard.core.normalize import NORMALIZERS
from regard.core.score import (
    ActivatedGeneral,
    Additive,
    BiasedGeneral,
    Concat,
    Cosine,
    Dot,
    General,
    Location,
    PlainCosine,
    ProjectedAdditive,
    ScaledDot,
)
from regard.trace import Call, Inputs

TOLERANCE = 1e-3  # largest difference of X·W_V from the values, relative to them

Missing = Literal["inputs", "earlier", "layer", "scores", "selected"]
Form = Literal["dot", "activated", "additive"]
SCORES = {
    Dot: "dot",
    ScaledDot: "scaled_dot",
    General: "general",
    BiasedGeneral: "biased_general",
    ActivatedGeneral: "activated_general",
    Additive: "additive",
    ProjectedAdditive: "additive",
    Concat: "concat",
    Cosine: "cosine",
    PlainCosine: "cosine",
    Location: "location",
}


@dataclass(frozen=True)
class Steps:
    """The tensors of a call by name, (heads, length, width) each, or (1, ...) if heads share it.

    | name | what it is |
    |---|---|
    | input_query, input_key, input_value | X, what the layer projects |
    | query_weight, key_weight, value_weight | W_Q, W_K and W_V, (heads, inputs, width) |
    | query_bias, key_bias, value_bias | added to X·W_Q, X·W_K and X·W_V, (heads, 1, width) |
    | projected_query, projected_key | X·W_Q and X·W_K, if these are changed before the score |
    | query, key, value | the vectors that are compared, and the values |
    | left, right, vector | those of the score, if it projects again: qᵀW and k, or W₁q, W₂k and w |
    | scores | with bias, −inf where a key is hidden |
    | sums | weights · values |
    | output_weight, output_bias | W_O, (1, heads · width, D), and what is added, (1, 1, D) |
    | output | the concatenated sums times W_O, (1, M, D) |

    Args:
        tensors: by these names; a name is missing if the layer has no such step, if it was not
            recorded, or if it changes nothing
        score: the name of the score; None if it is a function of its own
        form: the score is `scale` · left · right ("dot"), the tanh of that and a bias
            ("activated"), vector · tanh(left + right) ("additive"), or something else (None); left
            and right are query and key if missing
        scale: of a dot product; that of a learned W is in `left`
        offset: the bias of an activated score
        has_bias: whether a bias was added to the scores
        has_mask: whether a mask hides keys
        normalizer: the name of the normalizer; None if it is a function of its own
        has_projections: whether the layer is known to have W_Q, W_K and W_V
        missing: why steps that the layer has are missing, by the first tensor of the step
    """

    tensors: dict[str, Tensor]
    score: str | None
    form: Form | None
    scale: float
    offset: float
    has_bias: bool
    has_mask: bool
    normalizer: str | None
    has_projections: bool
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
    score = _score(inputs, query, key)
    tensors = {
        name: _by_head(each, groups, heads) for name, each in (tensors | score.tensors).items()
    }
    weights = call.map.dense().to(tensors["value"])
    tensors["sums"] = weights @ tensors["value"]  # (heads, M, Dv)
    joined = tensors["sums"].transpose(0, 1).flatten(1)  # (M, heads · Dv)
    output = inputs.output
    if output is not None and "heads" in call.provenance:
        missing["output"] = "selected"
    elif output is not None and _width(output) == joined.shape[-1]:
        weight = output.weight
        assert isinstance(weight, Tensor)
        tensors["output"] = output(joined.to(weight))[None]
        tensors |= _matrix(output, "output", 1, joined[None], tensors["output"])
    if call.map._scores is None:
        missing["scores"] = "scores"
    else:
        tensors["scores"] = _masked_scores(inputs, call, rows)
    tensors = {name: each.detach().to("cpu", torch.float32) for name, each in tensors.items()}
    return Steps(
        tensors,
        SCORES.get(type(inputs.score)),
        score.form,
        score.scale,
        score.offset,
        has_bias=inputs.bias is not None,
        has_mask=inputs.mask is not None,
        normalizer=_normalizer(inputs, call),
        has_projections=inputs.has_projections or inputs.layer is not None,
        missing=missing,
    )


def _before(
    inputs: Inputs, query: Tensor, key: Tensor, value: Tensor, rows: list[int]
) -> tuple[dict[str, Tensor], dict[str, Missing]]:
    """X, W_Q, W_K and W_V, and X·W_Q and X·W_K where queries and keys are not that; or why not."""
    layer = inputs.layer
    if layer is None:
        return {}, {"input_query": "inputs"} if inputs.has_projections else {}
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
    if len(layer.projections) == len(names):
        for name, module, tensor, own, made in zip(
            names, layer.projections, tensors, (x, y, z), projected, strict=True
        ):
            heads = made.shape[-1] // tensor.shape[-1]
            parts = _matrix(module, name, heads, own, made)
            repeat = tensor.shape[:-2].numel() // heads
            found |= {
                part: each.repeat_interleave(repeat, 0).reshape(*tensor.shape[:-2], *each.shape[1:])
                for part, each in parts.items()
            }
    return found, {}


def _matrix(
    module: torch.nn.Module, name: str, heads: int, x: Tensor, made: Tensor
) -> dict[str, Tensor]:
    """W (heads, inputs, width) and the bias of a projection, if that is what made `made` of x."""
    weight, bias = module.weight, getattr(module, "bias", None)
    if not isinstance(weight, Tensor) or weight.dim() != 2:
        return {}
    matrix = weight.T if isinstance(module, torch.nn.Linear) else weight
    if matrix.shape != (x.shape[-1], made.shape[-1]) or not matrix.is_floating_point():
        return {}
    product = x.to(matrix) @ matrix + (0 if bias is None else bias)
    if not _is_close(product, made.to(product)):  # an adapter changes it
        return {}
    found = {f"{name}_weight": matrix.unflatten(1, (heads, -1)).transpose(0, 1)}
    if isinstance(bias, Tensor):
        found[f"{name}_bias"] = bias.unflatten(0, (heads, -1))[:, None]
    return found


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


class _ScoreForm(NamedTuple):
    form: Form | None
    tensors: dict[str, Tensor]  # what it compares if that is not query and key
    scale: float = 1.0
    offset: float = 0.0


def _score(inputs: Inputs, query: Tensor, key: Tensor) -> _ScoreForm:
    score = inputs.score
    if isinstance(score, ActivatedGeneral) and score.activation is torch.tanh:
        left = query * score.scale @ score.weight.T
        return _ScoreForm("activated", {"left": left, "right": key}, offset=float(score.bias))
    if hasattr(score, "as_additive"):
        left, right, vector = score.as_additive(query, key)
        return _ScoreForm("additive", {"left": left, "right": right, "vector": vector[None]})
    if not hasattr(score, "as_dot"):
        return _ScoreForm(None, {})
    left, right, scale = score.as_dot(query, key)
    if isinstance(score, General):
        return _ScoreForm("dot", {"left": left * scale, "right": right})
    if left is query and right is key:
        return _ScoreForm("dot", {}, float(scale))
    return _ScoreForm("dot", {"left": left, "right": right}, float(scale))


def _normalizer(inputs: Inputs, call: Call) -> str | None:
    names = (name for name, each in NORMALIZERS.items() if each is inputs.normalize)
    name = next(names, call.provenance.get("normalizer"))
    return name if name in NORMALIZERS else None


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
