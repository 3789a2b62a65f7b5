"""Attention within tiles of size zero, with hidden NaN, and with numbers near the limits."""

import math

import pytest
import torch
from torch import Tensor

from regard.paths import tile_plan
from regard.paths.tile_attention import attend_tiles
from regard.paths.tile_plan import Tile
from tests.paths.tiles.tilings import (
    ALL,
    BAD,
    SCALE,
    TILINGS,
    B,
    E,
    G,
    H,
    M,
    N,
    assert_same,
    blind_mask,
    inputs,
    random,
    shown_by,
    written_out,
)


@pytest.mark.parametrize(
    "sizes", [{"queries": 0}, {"keys": 0}, {"batch": 0}, {"heads": 0, "groups": 0}]
)
def test_sizes_of_zero_give_zeros_and_a_gradient(sizes: dict[str, int]):
    q, k, v = tensors = inputs(**sizes)
    tile = Tile(ALL, slice(0, q.shape[2]), slice(0, k.shape[2]))
    output = attend_tiles(q, k, v, [tile], SCALE)
    assert output.shape == (*q.shape[:3], E)
    assert not output.any()
    gradients = torch.autograd.grad(output.sum(), tensors)
    assert all(not g.any() for g in gradients)


@pytest.mark.parametrize(("width", "out_width"), [(0, 3), (3, 0), (0, 0)])
def test_widths_of_zero_average_or_vanish(width: int, out_width: int):
    q, k, v = inputs(width=width, out_width=out_width)
    output = attend_tiles(q, k, v, [Tile(ALL, ALL, ALL)], SCALE)
    assert output.shape == (B, H, M, out_width)
    if width == 0:
        mean = v.mean(2, keepdim=True).repeat_interleave(H // G, 1).expand_as(output)
        torch.testing.assert_close(output, mean)


def test_a_blind_query_gets_zeros_and_no_gradient():
    mask = blind_mask()
    tensors = inputs()
    for tiles in ([Tile(ALL, ALL, ALL, mask)], [Tile(ALL, slice(2, 7), ALL, mask[..., 2:7, :])]):
        output = attend_tiles(*tensors, tiles, SCALE)
        assert not output[:, :, 3].any()
        dq, dk, dv = torch.autograd.grad(output.sum(), tensors)
        assert not dq[:, :, 3].any()
        assert dq[:, :, 4].all()
        assert not dk[:, :, 5].any()
        assert not dv[:, :, 5].any()
        assert bool(torch.isfinite(dk).all())


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("where", ["key", "value", "query"])
@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("count", [1, 2])
def test_hidden_keys_values_and_blind_queries_may_be_nan_or_inf(
    bad: float, where: str, kind: str, count: int
):
    """Query 3 sees nothing and key 5 is hidden: neither may reach an output or a gradient."""
    mask: Tensor = blind_mask()
    if kind == "float":
        mask = torch.zeros(M, N, dtype=torch.float64).masked_fill(~mask, -math.inf)
    tiles = [Tile(ALL, ALL, ALL, mask)]
    if count == 2:
        cuts = [(slice(0, 4), mask[..., :4, :]), (slice(4, M), mask[..., 4:, :])]
        tiles = [Tile(ALL, rows, ALL, part) for rows, part in cuts]
    clean = [t.detach().abs() for t in inputs()]  # q · inf is inf, not NaN
    dirty = [t.clone() for t in clean]
    part = {"query": dirty[0][:, :, 3], "key": dirty[1][:, :, 5], "value": dirty[2][:, :, 5]}
    part[where][..., 1] = bad

    def results(tensors: list[Tensor]) -> list[Tensor]:
        leaves = [t.requires_grad_() for t in tensors]
        output = attend_tiles(*leaves, tiles, SCALE)
        first = torch.autograd.grad(output, leaves, random(*output.shape), create_graph=True)
        total = sum((t * random(*t.shape, seed=11)).sum() for t in first)
        return [output, *first, *torch.autograd.grad(total, leaves)]

    with torch.no_grad():
        assert bool(torch.isfinite(attend_tiles(*dirty, tiles, SCALE)).all())
    for one, other in zip(results(dirty), results(clean), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def test_a_visible_nan_reaches_the_output():
    q, k, v = inputs()
    with torch.no_grad():
        v[0, 0, 2, 1] = math.nan
    mask = torch.ones(M, N, dtype=torch.bool)
    output = attend_tiles(q, k, v, [Tile(ALL, ALL, ALL, mask)], SCALE)
    assert bool(output[0, 0, :, 1].isnan().all())
    assert not output[1].isnan().any()


@pytest.mark.parametrize("scale", [-0.4, 0.0, 1.0, 3.0])
@pytest.mark.parametrize("name", ["a causal square", "rows apart", "one with a blind row"])
def test_any_scale_is_right(scale: float, name: str):
    assert_same(TILINGS[name], inputs(), scale)


def test_a_short_triangle_is_cut_in_blocks_and_stays_the_same(monkeypatch: pytest.MonkeyPatch):
    length, used = 259, []
    monkeypatch.setattr(
        tile_plan, "triangle", lambda n, cut=tile_plan.triangle: used.append(n) or cut(n)
    )
    tiles = [Tile(ALL, ALL, ALL, causal=True)]
    assert_same(tiles, inputs(2, 8, 8, length, length, 3, 3))
    assert used == [length] * 3  # forward, backward and forward again
    assert len(tile_plan.triangle(length)) == 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "name", ["one without a mask", "one with a blind row", "rows apart", "three that continue"]
)
def test_other_precisions_are_near_float64(dtype: torch.dtype, name: str):
    tensors = inputs(dtype=dtype)
    exact = [t.detach().double().requires_grad_() for t in tensors]
    upstream = random(B, H, M, E, dtype=dtype)
    output = attend_tiles(*tensors, TILINGS[name], SCALE)
    assert output.dtype == dtype
    found = output, *torch.autograd.grad(output, tensors, upstream)
    truth = written_out(*exact, shown_by(TILINGS[name], (B, H, M, N)), SCALE)
    expected = truth, *torch.autograd.grad(truth, exact, upstream.double())
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        error = (one.double() - other).abs().max() / other.abs().max()
        assert error <= max(1e-5, 4 * torch.finfo(dtype).eps)


def test_many_tiles_add_up_in_float32_when_inputs_are_half():
    rows = 257
    tensors = inputs(1, 1, 1, rows, 2, 2, 2, dtype=torch.bfloat16)
    tiles = [Tile(ALL, slice(i, i + 1), ALL) for i in range(rows)]
    output = attend_tiles(*tensors, tiles, SCALE)
    _, _, dv = torch.autograd.grad(output.sum(), tensors)
    assert dv.double().sum() / (2 * rows) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("size", [1e4, -1e4])
def test_scores_of_ten_thousand_choose_one_key(size: float):
    q, k, v = (t.detach().float() for t in inputs(width=E))
    q = q / q.norm(dim=-1, keepdim=True)
    k = k / k.norm(dim=-1, keepdim=True)
    tiles = [Tile(ALL, slice(0, 6), ALL), Tile(ALL, slice(6, M), ALL, blind_mask()[..., 6:, :])]
    output = attend_tiles(q, k, v, tiles, size)
    truth = written_out(*(t.double() for t in (q, k, v)), shown_by(tiles, (B, H, M, N)), size)
    tolerance = 4 * torch.finfo(torch.float32).eps * abs(size)
    torch.testing.assert_close(output.double(), truth, rtol=0, atol=tolerance)


def test_equal_keys_share_their_weight_and_denormals_do_no_harm():
    q, k, v = (t.detach().float() for t in inputs(width=E))
    mean = v.mean(2, keepdim=True).repeat_interleave(H // G, 1).expand(B, H, M, E)
    tiles = [Tile(ALL, ALL, ALL)]
    output = attend_tiles(q, k[:, :, :1].expand_as(k), v, tiles, SCALE)
    torch.testing.assert_close(output, mean)
    tiny = torch.full_like(k, 1e-42)
    torch.testing.assert_close(attend_tiles(q, tiny, v, tiles, SCALE), mean)
    assert bool(torch.isfinite(attend_tiles(q * 1e-42, k, v * 1e-42, tiles, SCALE)).all())


def test_one_query_and_a_hundred_thousand_keys():
    tensors = inputs(1, 2, 1, 1, 100_000, 3, 3)
    assert_same([Tile(ALL, ALL, slice(7, 99_991))], tensors)
