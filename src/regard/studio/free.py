"""Attention of queries, keys and values that were written by hand."""

from dataclasses import replace

import torch
from torch import Tensor

import regard
from regard.attention.observer import observed
from regard.core.mask import Mask
from regard.core.score import Additive, Cosine, Score
from regard.studio.look import page_data
from regard.studio.messages import FreeAttention, FreeResult
from regard.trace import Trace
from regard.web import RequestError

MASKS: dict[str, Mask | None] = {
    "none": None,
    "causal": regard.causal(),
    "window": regard.window(1, 1),
}


def attend(given: FreeAttention) -> FreeResult:
    """Return every step of `regard.attend`, as a recorded call."""
    query, key = _matrix(given.query, "query"), _matrix(given.key, "key")
    value = _matrix(given.value, "value")
    if query.shape[1] != key.shape[1]:
        raise RequestError(
            422,
            f"queries have {query.shape[1]} numbers and keys {key.shape[1]}: make them equal",
            "key",
        )
    if len(key) != len(value):
        raise RequestError(
            422, f"there are {len(key)} keys and {len(value)} values: each key has a value", "value"
        )
    layer = _Layer(_score(given.score, query.shape[1]), given)
    with torch.no_grad(), regard.capture(layer) as trace:
        output = layer(given.scale * query[None, None], key[None, None], value[None, None])
    (call,) = trace.of(0).calls
    names = {"query": [f"q{i + 1}" for i in range(len(query))]}
    names["key"] = [f"k{i + 1}" for i in range(len(key))]
    page = page_data(Trace([replace(call, name="attend", queries="query", keys="key")], names))
    assert page is not None
    return FreeResult(page=page, output=output[0, 0].tolist())


class _Layer(torch.nn.Module):
    def __init__(self, score: Score | str, given: FreeAttention) -> None:
        super().__init__()
        self.score, self.given = score, given

    @observed
    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        mask = MASKS[self.given.mask]
        normalize = self.given.normalizer
        found = regard.attend(query, key, value, score=self.score, mask=mask, normalize=normalize)
        assert isinstance(found, Tensor)
        return found


def _score(name: str, width: int) -> Score | str:
    if name == "cosine":
        return Cosine(1.0)
    if name != "additive":
        return name
    score = Additive(width, width, width)
    with torch.no_grad():  # tanh(q + k), summed
        for parameter in score.parameters():
            square = parameter.ndim == 2 and parameter.shape[0] == parameter.shape[1]
            parameter.copy_(torch.eye(width) if square else torch.ones_like(parameter))
    return score


def _matrix(rows: list[list[float]], field: str) -> Tensor:
    if len({len(row) for row in rows}) != 1:
        raise RequestError(422, f"the rows of {field} should have the same length", field)
    return torch.tensor(rows)
