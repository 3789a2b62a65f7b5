"""Local attention against its equations, under masks, with gradients."""

import pytest
import torch

import regard
from tests.layers.local.kinds import (
    DIM,
    KEY,
    KINDS,
    SIZES,
    VALUE,
    B,
    double,
    in_chunks,
    longhand,
    monotonic,
    negative_distance,
)


@pytest.mark.parametrize(("M", "N", "D"), SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_output_and_the_map_are_those_of_the_equations(kind, M, N, D):
    layer = KINDS[kind](max(D, 1) if kind == "predictive" else D, key_dim=KEY)
    query, key = double(B, M, DIM), double(B, N, KEY, seed=1)
    value = double(B, N, VALUE, seed=2)
    lengths = torch.tensor([N, N // 2, 0])
    visible = (torch.arange(N) < lengths[:, None])[:, None].expand(B, M, N)
    weights = longhand(layer, query, key, visible, lengths[:, None].expand(B, M))
    output, map = layer(query, key, value, mask=regard.lengths(lengths), return_map=True)
    torch.testing.assert_close(output, weights @ value)
    torch.testing.assert_close(map.dense(), weights)
    torch.testing.assert_close(map[..., -1, :], weights[..., -1, :])


@pytest.mark.parametrize("kind", KINDS)
def test_any_mask_narrows_the_window(kind):
    M, N = 23, 29
    layer = KINDS[kind](4, key_dim=KEY)
    query, key = double(B, M, DIM), double(B, N, KEY, seed=1)
    dense = torch.rand(B, M, N, generator=torch.Generator().manual_seed(0)) > 0.5
    masks = {
        "none": None,
        "dense": dense,
        "for all sequences": dense[0],
        "causal": regard.causal(offset=0),
        "causal and padded": regard.causal(offset=0) & regard.lengths([N, 11, 3]),
        "not a window": ~regard.window(1, 1, offset=0),
        "both lengths": regard.lengths([N, 11, 3], [M, 20, 0]),
    }
    for name, mask in masks.items():
        every = torch.ones(B, M, N, dtype=torch.bool)
        if isinstance(mask, regard.Mask):
            every = every & mask.dense(M, N, leading=1)
        elif mask is not None:
            every = every & mask
        reach = torch.arange(1, N + 1) * every
        ends = reach.amax(-1)  # one behind the last key that a query sees
        weights = longhand(layer, query, key, every, ends)
        output, map = layer(query, key, mask=mask, return_map=True)
        torch.testing.assert_close(output, weights @ key, msg=name)
        torch.testing.assert_close(map.dense(), weights, msg=name)


@pytest.mark.parametrize("offset", [-3, 2, 11, 60])
@pytest.mark.parametrize("make", [monotonic, in_chunks])
def test_an_offset_moves_the_monotonic_window(make, offset):
    layer = make(2)
    query, key = double(B, 7, DIM), double(B, 13, DIM, seed=1)
    every = torch.ones(B, 7, 13, dtype=torch.bool)
    weights = longhand(layer, query, key, every, torch.zeros(B, 7), offset)
    torch.testing.assert_close(layer(query, key, offset=offset), weights @ key)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "score",
    [None, "callable", "additive", "location"],
)
def test_gradients_are_those_of_the_equations(kind, score):
    M, N = 17, 19
    makers = {
        "callable": lambda: negative_distance,
        "additive": lambda: regard.Additive(DIM, KEY, 3),
        "location": lambda: regard.Location(DIM, N),  # it scores positions, not keys
    }
    layer = KINDS[kind](3, key_dim=KEY, score=makers[score]() if score else None)
    query = double(B, M, DIM).requires_grad_()
    key = double(B, N, KEY, seed=1).requires_grad_()
    value = double(B, N, VALUE, seed=2).requires_grad_()
    lengths = torch.tensor([N, 11, 0])
    visible = (torch.arange(N) < lengths[:, None])[:, None].expand(B, M, N)
    weights = longhand(layer, query, key, visible, lengths[:, None].expand(B, M))
    inputs = [query, value, *layer.parameters()] + ([] if score == "location" else [key])
    wanted = torch.autograd.grad((weights @ value).square().sum(), inputs)
    output = layer(query, key, value, mask=regard.lengths(lengths))
    found = torch.autograd.grad(output.square().sum(), inputs)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_flow_through_the_map(kind):
    layer = KINDS[kind](2)
    map = layer(double(B, 7, DIM), return_map=True).map
    gradients = torch.autograd.grad(map[..., 3:5, :].square().sum(), list(layer.parameters()))
    assert all(gradient.abs().max() > 0 for gradient in gradients)


def test_the_map_keeps_the_parameters_that_made_the_output():
    layer = monotonic(2)
    x = double(B, 7, DIM)
    output, map = layer(x, return_map=True)
    with torch.no_grad():
        layer.score.weight.zero_()
    torch.testing.assert_close(map.dense() @ x, output)
