"""Multi-head attention with other normalizers: heads, groups of heads and decoding."""

import pytest
import torch
from torch import nn

import regard
from regard.layers import MultiHeadAttention

B, L, D, H = 2, 7, 12, 4


def layer(kv_heads: int, **options: object) -> MultiHeadAttention:
    torch.manual_seed(0)
    normalize = regard.Normalizer(**options)  # type: ignore[arg-type]
    return MultiHeadAttention(D, H, kv_heads=kv_heads, normalize=normalize).double()


def per_head() -> dict[str, nn.Parameter]:
    return {
        "sink": nn.Parameter(torch.tensor([-1.0, 0.0, 1.0, 2.0])),
        "temperature": nn.Parameter(torch.tensor([0.5, 1.0, 1.5, 2.0])),
    }


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_each_head_has_its_own_sink_and_temperature(kv_heads: int) -> None:
    attention = layer(kv_heads, **per_head())
    assert {"normalize.sink", "normalize.temperature"} <= set(attention.state_dict())
    x = torch.randn(B, L, D, dtype=torch.float64)
    output, map = attention(x, mask=regard.causal(), return_map=True)
    q = attention.query_projection(x).unflatten(-1, (H, -1)).transpose(1, 2)
    k, v = (
        p(x).unflatten(-1, (kv_heads, -1)).transpose(1, 2).repeat_interleave(H // kv_heads, 1)
        for p in (attention.key_projection, attention.value_projection)
    )
    named = dict(attention.normalize.named_parameters())
    sink, temperature = named["sink"].view(H, 1, 1), named["temperature"].view(H, 1, 1)
    scores = q @ k.mT / 3**0.5 / temperature
    powers = scores.exp() * regard.causal().dense(L, L)
    weights = powers / (powers.sum(-1, keepdim=True) + sink.exp())
    torch.testing.assert_close(map.dense(), weights)
    truth = attention.output_projection((weights @ v).transpose(1, 2).flatten(-2))
    torch.testing.assert_close(output, truth)
    leaves = list(attention.parameters())
    for a, b in zip(
        torch.autograd.grad(output.square().sum(), leaves),
        torch.autograd.grad(truth.square().sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize(
    "options", [per_head(), {"top_k": 3}, {"normalize": "sigmoid"}, {"normalize": "sink"}], ids=str
)
def test_steps_of_decoding_equal_the_full_pass(kv_heads: int, options: dict) -> None:
    attention = layer(kv_heads, **options)
    x = torch.randn(B, L, D, dtype=torch.float64)
    full = attention(x, mask=regard.causal(), return_map=True)
    state, found = attention.start(B), []
    for t in range(L):
        (y, map), state = attention.step(x[:, t : t + 1], state, return_map=True)
        torch.testing.assert_close(map.dense(), full.map[..., t : t + 1, : t + 1])
        found.append(y)
    torch.testing.assert_close(torch.cat(found, 1), full.output)
    prompt, _ = attention.step(x[:, :2], attention.start(B))
    torch.testing.assert_close(prompt, full.output[:, :2])


def test_padding_changes_nothing_for_a_sink() -> None:
    attention = layer(2, **per_head())
    x = torch.randn(B, L, D, dtype=torch.float64)
    x[1, 3:] = torch.nan
    padded = attention(x, mask=regard.lengths([L, 3]))
    torch.testing.assert_close(padded[1, :3], attention(x[1:, :3])[0])
    empty = attention(x, mask=regard.lengths([L, 0]))
    bias = attention.output_projection.bias
    torch.testing.assert_close(empty[1], bias.expand(L, D))


def test_top_k_above_the_number_of_keys_is_an_error() -> None:
    attention = layer(4, top_k=8)
    with pytest.raises(ValueError, match="top_k=8 is more than there are keys, 7"):
        attention(torch.zeros(B, L, D, dtype=torch.float64))
