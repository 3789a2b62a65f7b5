"""Attention within tiles is the formula, in value and in derivatives of every order."""

import pytest
import torch
from torch import Tensor

from regard.paths.tile_attention import attend_tiles
from regard.paths.tile_plan import Tile
from tests.paths.tiles.tilings import (
    ALL,
    SCALE,
    TILINGS,
    B,
    D,
    E,
    H,
    M,
    N,
    assert_same,
    inputs,
    random,
    shown_by,
    written_out,
)


@pytest.mark.parametrize("name", TILINGS)
@pytest.mark.parametrize(("width", "out_width"), [(D, D), (D, E), (E, D)])
def test_tiles_give_the_formula_in_value_and_gradient(name: str, width: int, out_width: int):
    assert_same(TILINGS[name], inputs(width=width, out_width=out_width))


@pytest.mark.parametrize("name", TILINGS)
def test_second_derivatives_are_those_of_the_formula(name: str):
    tensors = inputs(width=2, out_width=3)
    tiles = TILINGS[name]
    added = shown_by(tiles, (B, H, M, N))
    upstream = random(B, H, M, 3, seed=9).requires_grad_()
    leaves = [*tensors, upstream]

    def second(output: Tensor) -> list[Tensor]:
        first = torch.autograd.grad(output, tensors, upstream, create_graph=True)
        total = sum((t * random(*t.shape, seed=11)).sum() for t in first)
        return list(torch.autograd.grad(total, leaves, materialize_grads=True))

    expected = second(written_out(*tensors, added, SCALE))
    for one, other in zip(second(attend_tiles(*tensors, tiles, SCALE)), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def test_gradgradcheck_and_a_third_derivative():
    tiles = [
        Tile(ALL, slice(0, 2), slice(0, 3), torch.tensor([[True, False, True], [False] * 3])),
        Tile(ALL, slice(2, 4), slice(1, 2)),
        Tile(ALL, slice(2, 4), slice(2, 4), causal=True, continues=True),
    ]
    tensors = inputs(1, 2, 1, 4, 4, 1, 1)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend_tiles(q, k, v, tiles, SCALE)

    assert torch.autograd.gradcheck(attend, tensors)
    assert torch.autograd.gradgradcheck(attend, tensors, fast_mode=True)

    def gradient(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        output = attend(q, k, v).square().sum()
        return torch.autograd.grad(output, q, create_graph=True)[0]

    assert torch.autograd.gradgradcheck(gradient, tensors, fast_mode=True)


def test_self_attention_of_one_tensor_has_all_three_gradients():
    x = random(1, 2, 3, 2).requires_grad_()
    tiles = [Tile(ALL, ALL, ALL, causal=True)]
    assert torch.autograd.gradgradcheck(lambda x: attend_tiles(x, x, x, tiles, SCALE), x)


@pytest.mark.parametrize("which", range(3))
def test_only_one_input_needs_a_gradient(which: int):
    tensors = inputs()
    tiles = TILINGS["rows apart"]
    whole = torch.autograd.grad(attend_tiles(*tensors, tiles, SCALE).sum(), tensors)
    others = [t if i == which else t.detach() for i, t in enumerate(tensors)]
    output = attend_tiles(*others, tiles, SCALE)
    (one,) = torch.autograd.grad(output.sum(), others[which], create_graph=True)
    torch.testing.assert_close(one, whole[which], rtol=0, atol=0)
    assert one.requires_grad
