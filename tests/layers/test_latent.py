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


def turned(x: Tensor, position: int) -> Tensor:
    """RoPE of a single pair of features: a rotation by the position in radians."""
    angle = torch.tensor(float(position), dtype=x.dtype)
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([x[0] * cos - x[1] * sin, x[0] * sin + x[1] * cos])


def longhand(layer: LatentAttention, x: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """Equations 9 to 19, position by position; visible (B, N, N)."""
    outputs, maps = torch.zeros_like(x), torch.zeros(B, HEADS, N, N, dtype=x.dtype)
    up_key = layer.key_projection.weight.view(HEADS, WIDTH, LATENT)
    up_value = layer.value_projection.weight.view(HEADS, WIDTH, LATENT)
    for b in range(B):
        down = layer.down_projection(x[b])
        c = layer.latent_norm(down[:, :LATENT])
        shared = [turned(down[s, LATENT:], s) for s in range(N)]
        queries = layer.query_projection(x[b]).view(N, HEADS, WIDTH + ROTARY)
        for t in range(N):
            heads = []
            for i in range(HEADS):
                query = torch.cat([queries[t, i, :WIDTH], turned(queries[t, i, WIDTH:], t)])
                keys = torch.stack([torch.cat([up_key[i] @ c[s], shared[s]]) for s in range(N)])
                scores = keys @ query / (WIDTH + ROTARY) ** 0.5
                weights = scores.masked_fill(~visible[b, t], -torch.inf).softmax(-1)
                weights = weights.nan_to_num(0.0)
                maps[b, i, t] = weights
                heads.append(weights @ (c @ up_value[i].T))
            outputs[b, t] = layer.output_projection(torch.cat(heads))
    return outputs, maps


@pytest.mark.parametrize("case", ["causal", "padded"])
def test_the_pass_is_that_of_the_equations(layer, case):
    x = torch.randn(B, N, DIM, dtype=torch.float64)
    lengths = torch.tensor([N, 0])
    mask = regard.causal() if case == "causal" else regard.lengths(lengths)
    visible = (
        mask.dense(N, N).expand(B, N, N)
        if case == "causal"
        else (torch.arange(N) < lengths[:, None, None]).expand(B, N, N)
    )
    expected, maps = longhand(layer, x, visible)
    output, map = layer(x, mask=mask, return_map=True)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(map.dense(), maps)


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


def test_gradients_of_the_pass(layer):
    x = torch.randn(B, N, DIM, dtype=torch.float64, requires_grad=True)
    visible = regard.causal().dense(N, N).expand(B, N, N)
    slope = torch.randn(B, N, DIM, dtype=torch.float64)
    wanted = torch.autograd.grad(
        (longhand_differentiable(layer, x, visible) * slope).sum(), [x, *layer.parameters()]
    )
    found = torch.autograd.grad(
        (layer(x, mask=regard.causal()) * slope).sum(), [x, *layer.parameters()]
    )
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def longhand_differentiable(layer: LatentAttention, x: Tensor, visible: Tensor) -> Tensor:
    """The same equations for all positions at once, by autograd alone."""
    down = layer.down_projection(x)
    c = layer.latent_norm(down[..., :LATENT])
    angle = torch.arange(N, dtype=x.dtype)
    rotation = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], -1)
    rotation = rotation.view(N, 2, 2)
    shared = torch.einsum("nij,bnj->bni", rotation, down[..., LATENT:])
    queries = layer.query_projection(x).view(B, N, HEADS, WIDTH + ROTARY)
    turned_queries = torch.einsum("nij,bnhj->bnhi", rotation, queries[..., WIDTH:])
    keys = layer.key_projection(c).view(B, N, HEADS, WIDTH)
    values = layer.value_projection(c).view(B, N, HEADS, WIDTH)
    scores = torch.einsum("bthd,bshd->bhts", queries[..., :WIDTH], keys)
    scores = scores + torch.einsum("bthd,bsd->bhts", turned_queries, shared)
    scores = scores / (WIDTH + ROTARY) ** 0.5
    weights = scores.masked_fill(~visible.unsqueeze(1), -torch.inf).softmax(-1)
    return layer.output_projection(torch.einsum("bhts,bshd->bthd", weights, values).flatten(2))


def test_bad_widths_raises_a_helpful_error():
    with pytest.raises(ValueError, match="rotary an even number from 2 on, got 5 and 3"):
        LatentAttention(DIM, HEADS, latent=LATENT, rotary=3)
    with pytest.raises(ValueError, match="dim must be a multiple of heads, got dim=12 and heads=5"):
        LatentAttention(DIM, 5, latent=LATENT, rotary=2)
