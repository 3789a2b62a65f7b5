"""Multi-head attention with and without positions."""

import math

import pytest
import torch

import regard
from regard.layers import (
    ALiBi,
    MultiHeadAttention,
    Position,
    PositionalEncoding,
    Rotary,
)
from tests.layers.multi_head.longhand import POSITIONS, B, D, H, N, double


def test_without_positions_a_permuted_input_gives_a_permuted_output():
    layer = MultiHeadAttention(D, H, kv_heads=3).double()
    x, order = double(B, N, D), torch.randperm(N)
    torch.testing.assert_close(layer(x[:, order]), layer(x)[:, order])


@pytest.mark.parametrize("name", [name for name in POSITIONS if name != "none"])
def test_with_positions_order_matters(name):
    layer = MultiHeadAttention(D, H, kv_heads=3, position=POSITIONS[name]()).double()
    x = double(B, N, D)
    order = torch.arange(N).roll(1)
    difference = (layer(x[:, order]) - layer(x)[:, order]).abs().max()
    assert difference > 1e-5


@pytest.mark.parametrize("kv_heads", [6, 2])
def test_each_hook_of_a_position_acts_where_documented(kv_heads):
    x = double(B, N, D)

    def layer(position: Position) -> MultiHeadAttention:
        torch.manual_seed(0)
        return MultiHeadAttention(D, H, kv_heads=kv_heads, position=position).double()

    plain = layer(Position())
    sinusoidal = PositionalEncoding(D)
    torch.testing.assert_close(layer(sinusoidal)(x), plain(sinusoidal(x)))
    alibi = ALiBi(H)
    bias = alibi.bias(N, N, dtype=torch.float64).unsqueeze(0)
    torch.testing.assert_close(layer(alibi)(x), plain(x, bias=bias))
    rotary = Rotary(D // H)
    map = layer(rotary)(x, return_map=True).map
    q = plain.query_projection(x).unflatten(-1, (H, -1)).transpose(1, 2)
    k = plain.key_projection(x).unflatten(-1, (kv_heads, -1)).transpose(1, 2)
    k = k.repeat_interleave(H // kv_heads, dim=1)
    expected = rotary.rotate(q) @ rotary.rotate(k).mT / math.sqrt(D // H)
    torch.testing.assert_close(map.scores.dense(), expected)


def test_the_last_query_sits_on_the_last_key_unless_an_offset_is_given():
    layer = MultiHeadAttention(D, H, position=Rotary(D // H)).double()
    x = double(B, N, D)
    full = layer(x, mask=regard.causal())
    torch.testing.assert_close(layer(x[:, -3:], x, mask=regard.causal()), full[:, -3:])
    part = layer(x[:, 1:4], x, mask=regard.causal(offset=1), offset=1)
    torch.testing.assert_close(part, full[:, 1:4])
