"""One query through a layer: the strips are its numbers, and missing steps have reasons."""

import pytest
import torch

import regard
from regard.layers import MultiHeadAttention
from regard.trace import Trace
from regard.visual.figure import workflow

WORDS = ["▁the", "▁cat", "▁고양이"]


def recorded(inputs: bool) -> tuple[MultiHeadAttention, torch.Tensor, Trace]:
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(6, heads=2), torch.randn(1, 3, 6)
    with torch.no_grad(), regard.capture(layer, inputs=inputs) as trace:
        layer(x)
    return layer, x, trace.label(source=WORDS).of(0)


def test_the_strips_are_the_input_the_queries_the_sums_and_the_output() -> None:
    layer, x, trace = recorded(inputs=True)
    strips = [
        torch.as_tensor(axes.images[0].get_array())[0]
        for axes in workflow(trace, "고양이").axes
        if axes.images
    ]
    q, k, v = (
        torch.stack((x[0] @ part.weight.T + part.bias).chunk(2, dim=-1)).detach()
        for part in (layer.query_projection, layer.key_projection, layer.value_projection)
    )
    sums = (q[:, 2:] @ k.mT / 3**0.5).softmax(-1) @ v  # (heads, 1, 3)
    expected = [x[0, 2], q[:, 2].flatten(), sums[0, 0], sums[1, 0], sums.flatten(), layer(x)[0, 2]]
    assert len(strips) == len(expected)
    for strip, vector in zip(strips, expected, strict=True):
        assert torch.allclose(strip, vector.detach(), atol=1e-6)


@pytest.mark.parametrize(("language", "reason"), [("en", "was not recorded"), ("ko", "기록되지")])
def test_a_missing_step_is_explained(language: str, reason: str) -> None:
    drawn = workflow(recorded(inputs=False)[2], 0, language=language)
    assert any(reason in text.get_text() for axes in drawn.axes for text in axes.texts)


def test_what_is_not_there_is_refused() -> None:
    trace = recorded(inputs=True)[2]
    with pytest.raises(ValueError, match="no query 'dog'; there are the, cat, 고양이"):
        workflow(trace, "dog")
    with pytest.raises(ValueError, match="below 3, got 3"):
        workflow(trace, 3)
    several = Trace.of_maps({"a": torch.eye(2), "b": torch.eye(2)}, queries="ab")
    with pytest.raises(ValueError, match="one call, got a, b"):
        workflow(several, 0)
