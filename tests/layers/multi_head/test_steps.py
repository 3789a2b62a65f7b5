"""Multi-head attention step by step is the pass over the whole sequence."""

import pytest
import torch
from torch import nn

import regard
from regard.layers import (
    MultiHeadAttention,
    Rotary,
)
from tests.layers.multi_head.longhand import POSITIONS, B, D, H, M, N, double, steps


@pytest.mark.parametrize("kv_heads", [6, 2])
@pytest.mark.parametrize("name", POSITIONS)
def test_steps_equal_the_causal_pass(name, kv_heads):
    length = 37  # past the first room of the cache, twice
    layer = MultiHeadAttention(
        D, H, kv_heads=kv_heads, position=POSITIONS[name](), qk_norm=nn.RMSNorm
    ).double()
    x = double(B, length, D)
    with torch.no_grad():
        full = layer(x, mask=regard.causal())
        outputs, _ = steps(layer, x, layer.start(B))
        torch.testing.assert_close(torch.cat(outputs, 1), full)
        prompt, state = layer.step(x[:, :11], layer.start(B))  # several positions at once
        outputs, _ = steps(layer, x[:, 11:], state)
    torch.testing.assert_close(torch.cat([prompt, *outputs], 1), full)


@pytest.mark.parametrize("score", ["cosine", regard.Additive(2, 2, 5)])
def test_steps_equal_the_causal_pass_with_other_scores(score):
    layer = MultiHeadAttention(D, H, score=score).double()
    x = double(B, N, D)
    outputs, _ = steps(layer, x, layer.start(B))
    torch.testing.assert_close(torch.cat(outputs, 1), layer(x, mask=regard.causal()))


@pytest.mark.parametrize("kv_heads", [6, 2])
@pytest.mark.parametrize("name", POSITIONS)
def test_steps_over_a_memory_equal_the_full_pass(name, kv_heads):
    layer = MultiHeadAttention(D, H, kv_heads=kv_heads, position=POSITIONS[name]()).double()
    x, memory = double(B, M, D), double(B, N, D, seed=1)
    mask = regard.lengths([N, 4, 0])
    outputs, _ = steps(layer, x, layer.start(B, memory, mask))
    torch.testing.assert_close(torch.cat(outputs, 1), layer(x, memory, mask=mask, offset=0))


def test_gradients_flow_through_steps_as_through_the_full_pass():
    layer = MultiHeadAttention(D, H, kv_heads=3).double()
    x, memory = double(B, N, D).requires_grad_(), double(B, M, D, seed=1).requires_grad_()
    parameters = [x, memory, *layer.parameters()]
    outputs, _ = steps(layer, x, layer.start(B))
    crossed, _ = steps(layer, x, layer.start(B, memory))
    found = torch.cat(outputs, 1).square().sum() + torch.cat(crossed, 1).square().sum()
    wanted = layer(x, mask=regard.causal()).square().sum() + layer(x, memory).square().sum()
    torch.testing.assert_close(
        torch.autograd.grad(found, parameters), torch.autograd.grad(wanted, parameters)
    )


@pytest.mark.parametrize("grad", [True, False])
def test_reordered_beams_go_on_as_if_they_had_always_been_there(grad):
    layer = MultiHeadAttention(D, H, kv_heads=2, position=Rotary(2)).double()
    sentences, beams, length = 2, 3, 9
    memory, mask = double(sentences, N, D, seed=1), regard.lengths([N, 3])
    generator = torch.Generator().manual_seed(3)
    with torch.set_grad_enabled(grad):
        past, crossed = layer.start(sentences * beams), layer.start(sentences * beams, memory, mask)
        history = torch.zeros(sentences * beams, 0, D, dtype=torch.float64)
        for t in range(length):
            x = double(sentences * beams, 1, D, seed=10 + t)
            y, past = layer.step(x, past)
            z, crossed = layer.step(x, crossed)
            history = torch.cat([history, x], dim=1)
            wanted = layer(history, mask=regard.causal())
            torch.testing.assert_close(y, wanted[:, -1:])
            wide = memory.repeat_interleave(beams, 0)
            lengths = regard.lengths([N] * beams + [3] * beams)
            wanted = layer(history, wide, mask=lengths, offset=0)
            torch.testing.assert_close(z, wanted[:, -1:])
            own = torch.randint(beams, (sentences, beams), generator=generator)
            index = (own + beams * torch.arange(sentences)[:, None]).flatten()
            past, crossed, history = past.reorder(index), crossed.reorder(index), history[index]


def test_a_memory_is_projected_once_and_held_once_for_all_beams():
    layer = MultiHeadAttention(D, H)
    state = layer.start(15, torch.randn(3, N, D))
    assert state.tensors[0].shape == (3, H, N, 2)
    moved = state.reorder(torch.tensor([4, 3, 2, 1, 0, 5, 5, 5, 6, 9, 10, 14, 14, 14, 13]))
    assert moved.tensors[0] is state.tensors[0]


def test_a_state_may_be_stepped_twice():
    layer = MultiHeadAttention(D, H).double()
    x = double(B, 6, D)
    with torch.no_grad():
        _, shared = steps(layer, x[:, :4], layer.start(B))
        once, _ = layer.step(x[:, 4:5], shared)
        layer.step(x[:, 5:6], shared)
        again, _ = layer.step(x[:, 4:5], shared)
    assert torch.equal(once, again)


def test_a_step_gives_the_row_of_the_map():
    layer = MultiHeadAttention(D, H, kv_heads=3).double()
    x, memory = double(4, M, D), double(2, N, D, seed=1)
    mask = regard.lengths([N, 3])
    with torch.no_grad():
        full = layer(x, mask=regard.causal(), return_map=True).map.dense()
        maps, _ = steps(layer, x, layer.start(4), return_map=True)
        for t, (_, map) in enumerate(maps):  # read after later steps
            torch.testing.assert_close(map.dense(), full[:, :, t : t + 1, : t + 1])
        wide, lengths = memory.repeat_interleave(2, 0), regard.lengths([N, N, 3, 3])
        full = layer(x, wide, mask=lengths, return_map=True).map.dense()
        maps, _ = steps(layer, x, layer.start(4, memory, mask), return_map=True)
        for t, (_, map) in enumerate(maps):
            torch.testing.assert_close(map.dense(), full[:, :, t : t + 1])


def test_every_kind_of_memory_mask_means_the_same():
    layer = MultiHeadAttention(D, H, kv_heads=2).double()
    x, memory = double(B, 1, D), double(B, N, D, seed=1)
    real = torch.arange(N) < torch.tensor([[N], [4], [2]])
    expected = layer(x, memory, mask=real.unsqueeze(1))
    kinds = [real, real.unsqueeze(1), real[:, None, None].expand(B, H, 1, N)]
    for mask in [*kinds, regard.lengths([N, 4, 2]), regard.from_torch_mha(None, ~real)]:
        output, _ = layer.step(x, layer.start(B, memory, mask))
        torch.testing.assert_close(output, expected)
