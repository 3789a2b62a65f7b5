"""Differential attention against the equations of the paper, its map, steps and bad widths."""

import math

import pytest
import torch
from torch import Tensor

import regard
from regard.layers.differential import DifferentialAttention

B, N, DIM, HEADS = 2, 7, 12, 3
D = DIM // (2 * HEADS)


@pytest.fixture
def layer() -> DifferentialAttention:
    torch.manual_seed(0)
    return DifferentialAttention(DIM, HEADS, layer=3).double()


def longhand(layer: DifferentialAttention, x: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """Equations 1 to 3, head by head; visible (B, N, N)."""
    initial = 0.8 - 0.6 * math.exp(-0.3 * 2)
    q, k = layer.lambda_query, layer.lambda_key
    balance = (q[0] @ k[0]).exp() - (q[1] @ k[1]).exp() + initial
    queries, keys = layer.query_projection(x), layer.key_projection(x)
    values = layer.value_projection(x)
    heads, maps = [], []
    for i in range(HEADS):
        both = []
        for j in range(2):
            part = slice((2 * i + j) * D, (2 * i + j + 1) * D)
            scores = queries[..., part] @ keys[..., part].transpose(1, 2) / math.sqrt(D)
            weights = scores.masked_fill(~visible, -1e300).softmax(-1) * visible
            both.append(weights)
        map = both[0] - balance * both[1]
        context = map @ values[..., 2 * i * D : 2 * (i + 1) * D]
        rms = (context.square().mean(-1, keepdim=True) + torch.finfo(x.dtype).eps).rsqrt()
        heads.append((1 - initial) * context * rms * layer.norm.weight)
        maps.append(map)
    return layer.output_projection(torch.cat(heads, -1)), torch.stack(maps, 1)


@pytest.mark.parametrize("case", ["causal", "padded"])
def test_outputs_maps_and_gradients_are_those_of_the_equations(layer, case):
    x = torch.randn(B, N, DIM, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([N, 3])
    mask = regard.causal() if case == "causal" else regard.lengths(lengths)
    visible = (torch.arange(N) < lengths[:, None, None]).expand(B, N, N)
    if case == "causal":
        visible = torch.ones(N, N, dtype=torch.bool).tril().expand(B, N, N)
    expected, maps = longhand(layer, x, visible)
    output, map = layer(x, mask=mask, return_map=True)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(map.dense(), maps)
    slope = torch.randn_like(output)
    leaves = [x, *layer.parameters()]
    wanted = torch.autograd.grad((expected * slope).sum(), leaves)
    for one, other in zip(torch.autograd.grad((output * slope).sum(), leaves), wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_an_empty_sequence_gives_zeros(layer):
    x = torch.randn(B, N, DIM, dtype=torch.float64)
    output = layer(x, mask=regard.lengths(torch.tensor([N, 0])))
    assert not output[1].any()
    assert output[0].any()


def test_steps_equal_the_pass(layer):
    x = torch.randn(B, N, DIM, dtype=torch.float64)
    expected = layer(x, mask=regard.causal())
    state, outputs = layer.start(B), []
    for part in x.split([1, 3, 1, 2], dim=1):
        output, state = layer.step(part, state)
        outputs.append(output)
    torch.testing.assert_close(torch.cat(outputs, 1), expected)


def test_bad_widths_raises_a_helpful_error():
    with pytest.raises(ValueError, match="multiple of 2 · heads, got dim 12 and 5 heads"):
        DifferentialAttention(12, heads=5)
