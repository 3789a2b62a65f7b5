"""Latent attention against the equations of DeepSeek-V2, its cache, and bad widths."""

import pytest
import torch
from torch import Tensor

import regard
from regard.layers.latent import LatentAttention

B, N, DIM, HEADS, LATENT, WIDTH, ROTARY = 2, 7, 12, 3, 5, 4, 2


@pytest.fixture(params=[None, 6], ids=["direct queries", "latent queries"])
def layer(request) -> LatentAttention:
    torch.manual_seed(0)
    return LatentAttention(
        DIM, HEADS, latent=LATENT, head_dim=WIDTH, rotary=ROTARY, query_latent=request.param
    ).double()


def longhand(layer: LatentAttention, x: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """Equations 9 to 19, written out; visible (B, N, N). RoPE turns a pair by the position."""
    down = layer.down_projection(x)
    c = layer.latent_norm(down[..., :LATENT])
    angle = torch.arange(N, dtype=x.dtype)
    rotation = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], -1)
    rotation = rotation.view(N, 2, 2)
    shared = torch.einsum("nij,bnj->bni", rotation, down[..., LATENT:])
    queries = layer.query_projection(x).view(B, N, HEADS, WIDTH + ROTARY)
    turned = torch.einsum("nij,bnhj->bnhi", rotation, queries[..., WIDTH:])
    keys = layer.key_projection(c).view(B, N, HEADS, WIDTH)
    values = layer.value_projection(c).view(B, N, HEADS, WIDTH)
    scores = torch.einsum("bthd,bshd->bhts", queries[..., :WIDTH], keys)
    scores = scores + torch.einsum("bthd,bsd->bhts", turned, shared)
    scores = scores / (WIDTH + ROTARY) ** 0.5
    hidden = ~visible.unsqueeze(1)
    weights = scores.masked_fill(hidden, -1e300).softmax(-1).masked_fill(hidden, 0.0)
    heads = torch.einsum("bhts,bshd->bthd", weights, values)
    return layer.output_projection(heads.flatten(2)), weights


@pytest.mark.parametrize("case", ["causal", "padded"])
def test_outputs_maps_and_gradients_are_those_of_the_equations(layer, case):
    x = torch.randn(B, N, DIM, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([N, 0])
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


def test_steps_equal_the_pass_and_cache_latents_alone(layer):
    x = torch.randn(B, N, DIM, dtype=torch.float64)
    expected = layer(x, mask=regard.causal())
    state, outputs = layer.start(B), []
    for part in x.split([1, 3, 1, 2], dim=1):
        output, state = layer.step(part, state)
        outputs.append(output)
    torch.testing.assert_close(torch.cat(outputs, 1), expected)
    assert [tuple(t.shape) for t in state.tensors] == [(B, N, LATENT + ROTARY)]
    swapped, _ = layer.step(x[[1, 0], :1], state.reorder(torch.tensor([1, 0])))
    straight, _ = layer.step(x[:, :1], state)
    torch.testing.assert_close(swapped, straight[[1, 0]])


def test_bad_widths_raises_a_helpful_error():
    with pytest.raises(ValueError, match="rotary an even number from 2 on, got 5 and 3"):
        LatentAttention(DIM, HEADS, latent=LATENT, rotary=3)
    with pytest.raises(ValueError, match="dim must be a multiple of heads, got dim=12 and heads=5"):
        LatentAttention(DIM, 5, latent=LATENT, rotary=2)
