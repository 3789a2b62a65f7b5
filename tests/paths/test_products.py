"""Small maps by matrix products give what the formula gives, and leave the rest to the kernels."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import regard
from regard.paths import flash, products
from regard.paths.tile_attention import attend_tiles
from regard.paths.tile_plan import ALL, WHOLE, Tile
from tests.paths.tiles.tilings import (
    BAD,
    SCALE,
    B,
    E,
    H,
    M,
    N,
    assert_same,
    blind_mask,
    bool_mask,
    inputs,
    shown_by,
    written_out,
)

MASKS = {
    "rows and keys": lambda: bool_mask(M, N),
    "keys": lambda: bool_mask(N),
    "of each sequence": lambda: bool_mask(2, 1, 1, N),
    "of each head": lambda: bool_mask(2, H, M, N),
    "a row sees nothing": blind_mask,
    "added": lambda: torch.where(bool_mask(H, M, N), 0.7, -math.inf),
}


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "SMALL", (0, 1 << 30))


@pytest.mark.parametrize("name", MASKS)
def test_products_give_the_formula_in_value_and_gradient(name: str):
    assert_same([Tile(ALL, ALL, ALL, MASKS[name]())], inputs(groups=H))


def test_products_without_a_mask_give_the_formula():
    assert_same(list(WHOLE), inputs(groups=H))


@pytest.mark.parametrize("bad", BAD)
def test_hidden_numbers_reach_neither_output_nor_gradients(bad: float):
    mask = blind_mask()

    def results(number: float) -> list[Tensor]:
        q, k, v = tensors = inputs(groups=H)
        with torch.no_grad():
            q[:, :, 3] = k[:, :, 5] = v[:, :, 5] = number
        output = attend_tiles(q, k, v, [Tile(ALL, ALL, ALL, mask)], SCALE)
        return [output, *torch.autograd.grad(output.square().sum(), tensors)]

    for found, expected in zip(results(bad), results(1.0), strict=True):
        torch.testing.assert_close(found, expected)


def test_numbers_that_overflow_in_hidden_scores_reach_no_gradient():
    q, k, v = tensors = inputs(groups=H, dtype=torch.float32)
    mask = torch.ones(M, N, dtype=torch.bool)
    mask[:, 5] = False
    with torch.no_grad():
        k[:, :, 5] = 3e38
    output = attend_tiles(q, k, v, [Tile(ALL, ALL, ALL, mask)], SCALE)
    gradients = torch.autograd.grad(output.square().sum(), tensors)
    assert all(bool(t.isfinite().all()) for t in (output, *gradients))


@pytest.mark.parametrize("mask", [None, "rows and keys"])
def test_second_derivatives(mask: str | None):
    tiles = WHOLE if mask is None else [Tile(ALL, ALL, ALL, MASKS[mask]())]
    tensors = inputs(heads=2, groups=2, width=2, out_width=2)

    def attend(*t: Tensor) -> Tensor:
        return attend_tiles(*t, tiles, SCALE)

    assert torch.autograd.gradcheck(attend, tensors, fast_mode=True)
    assert torch.autograd.gradgradcheck(attend, tensors, fast_mode=True)


def test_autocast_changes_neither_output_nor_gradients():
    leaves = inputs(groups=H, dtype=torch.float32)
    tiles = [Tile(ALL, ALL, ALL, bool_mask(M, N))]
    plain = attend_tiles(*leaves, tiles, SCALE)
    expected = torch.autograd.grad(plain.sum(), leaves, retain_graph=True)
    with torch.autocast("cpu", torch.bfloat16):
        cast = attend_tiles(*leaves, tiles, SCALE)
        results = [torch.autograd.grad(o.sum(), leaves) for o in (plain, cast)]
    torch.testing.assert_close(cast, plain)
    for gradients in results:
        for one, other in zip(gradients, expected, strict=True):
            torch.testing.assert_close(one, other)


@given(
    sizes=st.tuples(*[st.integers(1, 13)] * 4),
    width=st.integers(1, 9),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    shown=st.floats(0.0, 1.0),
    seed=st.integers(0, 99),
)
def test_products_give_the_reference(
    sizes: tuple[int, int, int, int], width: int, dtype: torch.dtype, shown: float, seed: int
):
    batch, heads, queries, keys = sizes
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype, requires_grad=True)

    leaves = [random(batch, heads, n, width) for n in (queries, keys, keys)]
    mask = torch.rand(batch, 1, queries, keys, generator=generator) < shown
    found, expected = [], []
    for path, results in (("fused", found), ("reference", expected)):
        output = regard.attend(*leaves, mask=mask, path=path)
        results += [output, *torch.autograd.grad(output.square().sum(), leaves)]
    tolerance = 1e-9 if dtype == torch.float64 else 2e-5
    for one, other in zip(found, expected, strict=True):
        largest = max(1.0, float(other.detach().abs().max()))
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance * largest)


def test_kernels_compute_what_products_cannot(monkeypatch: pytest.MonkeyPatch):
    calls = []
    forward, backward = flash.kernels() or pytest.skip("torch has no flash kernels for the CPU")

    def counted(query: Tensor, *args: object, **more: object) -> object:
        calls.append(query.shape)
        return forward(query, *args, **more)

    monkeypatch.setattr(flash, "kernels", lambda: (counted, backward))
    q, k, v = (torch.randn(2, 4, 16, 8) for _ in range(3))
    regard.attend(q, k, v, path="fused")
    assert not calls  # these are products
    apart = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v)]
    regard.attend(*apart, path="fused")
    regard.attend(q, k, v, mask=regard.causal(), path="fused")
    regard.attend(q.bfloat16(), k.bfloat16(), v.bfloat16(), path="fused")
    monkeypatch.setattr(products, "SMALL", (0, 2 * 4 * 16 * 16 - 1))
    regard.attend(q, k, v, path="fused")
    assert len(calls) == 4


def test_small_tiles_of_single_entries_are_plain_products():
    q, k, v = (t.detach() for t in inputs(groups=H, width=E))
    tiles = [Tile(slice(0, 1), ALL, slice(0, 3)), Tile(slice(1, 2), slice(2, 9), slice(4, 12))]
    assert products.suits_each(q, k, v, tiles)
    for other in (
        [Tile(ALL, slice(0, 2), ALL), *tiles[1:]],  # two entries
        [tiles[0]._replace(mask=bool_mask(M, 3)), tiles[1]],
        [tiles[0]._replace(causal=True), tiles[1]],
    ):
        assert not products.suits_each(q, k, v, other)
    truth = written_out(q, k, v, shown_by(tiles, (B, H, M, N)), SCALE)
    torch.testing.assert_close(attend_tiles(q, k, v, tiles, SCALE), truth, rtol=0, atol=1e-9)
