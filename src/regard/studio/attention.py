"""The numbers of a model, attended to with any score, mask and normalizer."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

import regard
from regard.attention.observer import observed
from regard.core.mask import Mask
from regard.core.normalize import NORMALIZERS
from regard.core.score import Additive, Cosine, Dot, ScaledDot, Score
from regard.studio.look import page_data, parse_text
from regard.studio.messages import ModelAttention, PageData
from regard.studio.runs import Runs
from regard.trace import Trace
from regard.web import RequestError

MASKS: dict[str, Mask | None] = {
    "none": None,
    "causal": regard.causal(),
    "window": regard.window(1, 1),
}


@dataclass
class Way:
    """How queries attend: the score, times a scale, the mask and the normalizer."""

    score: Score
    mask: Mask | None
    normalize: Callable[..., Tensor]
    scale: float


def attend_in_model(runs: Runs, given: ModelAttention) -> PageData:
    """Return every step for the queries, keys and values of one head of a model."""
    predictor = runs.predictor(given.run)
    trace = predictor.trace(parse_text(predictor, given.text))
    call = next((each for each in trace.calls if each.name == given.layer), None)
    if call is None:
        raise RequestError(422, f"{given.run} has no attention named {given.layer!r}", "layer")
    if call.inputs is None:
        raise RequestError(422, f"the numbers of {given.layer} were not recorded", "layer")
    if given.head >= call.heads:
        raise RequestError(422, f"head should be from 0 to {call.heads - 1}", "head")
    inputs, (rows, columns) = call.inputs, call.shape[-2:]
    query, key = _head(inputs.query, given.head, rows), _head(inputs.key, given.head, columns)
    value = _head(inputs.value, given.head, columns)
    score, mask, normalize = inputs.score, inputs.mask, inputs.normalize
    if given.score != "own":
        if query.shape[1] != key.shape[1]:
            widths = f"queries have {query.shape[1]} numbers and keys {key.shape[1]}"
            raise RequestError(422, f"{widths}: only the model's own score compares them", "score")
        score = _score_of_width(given.score, query.shape[1])
    if given.mask != "own":
        mask = MASKS[given.mask]
    elif mask is not None:
        dense = mask.dense(inputs.query.shape[-2], inputs.key.shape[-2])[..., :rows, :columns]
        dense = dense.reshape(-1, rows, columns)
        mask = regard.visible(dense[given.head if len(dense) == call.heads else 0])
    if given.normalizer != "own" or normalize is None:
        name = "softmax" if given.normalizer == "own" else given.normalizer
        normalize = NORMALIZERS[name]
    way = Way(score, mask, normalize, given.scale)
    layer = _Layer(way)
    with torch.no_grad(), regard.capture(layer) as recorded:
        layer(query[None, None], key[None, None], value[None, None])
    (head,) = recorded.of(0).calls
    named = replace(head, name=call.name, queries=call.queries, keys=call.keys)
    page = page_data(Trace([named], trace.tokens))
    assert page is not None
    return page


class _Layer(torch.nn.Module):
    def __init__(self, way: Way) -> None:
        super().__init__()
        self.way = way

    @observed
    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        score, normalize = self.way.score, self.way.normalize
        if self.way.scale != 1:
            score = _Scaled(score, self.way.scale)
        found = regard.attend(
            query, key, value, score=score, mask=self.way.mask, normalize=normalize
        )
        assert isinstance(found, Tensor)
        return found


class _Scaled(torch.nn.Module):
    """A score times a number."""

    def __init__(self, score: Any, scale: float) -> None:
        super().__init__()
        self.score, self.scale = score, scale
        if hasattr(score, "as_dot"):
            self.as_dot = self._as_dot

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return self.scale * self.score(query, key)

    def _as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        left, right, scale = self.score.as_dot(query, key)
        return left, right, scale * self.scale


def _head(tensor: Tensor, head: int, length: int) -> Tensor:
    """One head of what was recorded, (length, width); all heads may share it."""
    heads = tensor.reshape(-1, *tensor.shape[-2:])
    return heads[head % len(heads), :length]


def _score_of_width(name: str, width: int) -> Score:
    """Return the score of a name for vectors of a width; "additive" is tanh(q + k), summed."""
    if name != "additive":
        return {"dot": Dot(), "scaled_dot": ScaledDot(), "cosine": Cosine(1.0)}[name]
    score = Additive(width, width, width)
    with torch.no_grad():
        for parameter in score.parameters():
            square = parameter.ndim == 2 and parameter.shape[0] == parameter.shape[1]
            parameter.copy_(torch.eye(width) if square else torch.ones_like(parameter))
    return score
