"""Attention within tiles, against the formula written out, and the plans that make tiles."""

import math
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.paths import flash, formula, pages, products, tile
from regard.paths.tiles import Tile, attend_tiles, plan_tiles

ALL = slice(None)
B, H, G, M, N, D, E = 2, 6, 3, 11, 13, 5, 7
SCALE = 0.37
BAD = [math.nan, math.inf, -math.inf]


def random(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype)


def inputs(
    batch: int = B, heads: int = H, groups: int = G, queries: int = M, keys: int = N,
    width: int = D, out_width: int = E, dtype: torch.dtype = torch.float64,
) -> list[Tensor]:  # fmt: skip
    shapes = (
        (batch, heads, queries, width),
        (batch, groups, keys, width),
        (batch, groups, keys, out_width),
    )
    return [random(*s, dtype=dtype, seed=i).requires_grad_() for i, s in enumerate(shapes)]


def shown_by(tiles: list[Tile], shape: tuple[int, ...]) -> Tensor:
    """What tiles show, as one tensor to add to the scores (B, H, M, N)."""
    whole = torch.full(shape, -math.inf, dtype=torch.float64)
    for own in tiles:
        place = whole[own.batch, :, own.rows, own.keys]
        part = torch.zeros(place.shape[-2:], dtype=torch.float64)
        if own.mask is not None and own.mask.dtype == torch.bool:
            part = part.masked_fill(~own.mask, -math.inf)
        elif own.mask is not None:
            part = part + own.mask
        if own.causal:
            part = part.masked_fill(~torch.ones(place.shape[-2:]).tril().bool(), -math.inf)
        assert bool((place == -math.inf).all()), "two tiles share a cell"
        whole[own.batch, :, own.rows, own.keys] = part.expand(place.shape)
    return whole


def written_out(q: Tensor, k: Tensor, v: Tensor, added: Tensor, scale: float) -> Tensor:
    """softmax(scale · Q Kᵀ + added) V with zeros for queries that see nothing."""
    share = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
    scores = q @ k.transpose(-1, -2) * scale + added
    blind = (scores == -math.inf).all(-1, keepdim=True)
    weights = torch.where(blind, 0.0, scores).softmax(-1)
    return torch.where(blind, 0.0, weights) @ v


def assert_same(tiles: list[Tile], tensors: list[Tensor], scale: float = SCALE) -> Tensor:
    """Tiles give what the formula gives, in value and gradient, to 1e-9."""
    q, k, v = tensors
    added = shown_by(tiles, (*q.shape[:3], k.shape[2]))
    truth = written_out(q, k, v, added, scale)
    found = attend_tiles(q, k, v, tiles, scale)
    assert found.shape == truth.shape
    upstream = random(*truth.shape, seed=9)
    expected = torch.autograd.grad(truth, tensors, upstream)
    gradients = torch.autograd.grad(found, tensors, upstream)
    for one, other in zip((found, *gradients), (truth, *expected), strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)
    with torch.no_grad():
        torch.testing.assert_close(attend_tiles(q, k, v, tiles, scale), found, rtol=0, atol=0)
    return found


def bool_mask(*shape: int) -> Tensor:
    return random(*shape, seed=4) > -0.3


def blind_mask() -> Tensor:
    """A mask with a row that sees nothing and a column that nobody sees."""
    mask = bool_mask(1, 1, M, N)
    mask[..., 3, :] = False
    mask[..., 5] = False
    return mask


TILINGS: dict[str, list[Tile]] = {
    "one without a mask": [Tile(ALL, ALL, ALL)],
    "one with bounds": [Tile(slice(0, B), slice(0, M), slice(0, N))],
    "one with a mask of keys": [Tile(ALL, ALL, ALL, bool_mask(N))],
    "one with a mask of rows and keys": [Tile(ALL, ALL, ALL, bool_mask(M, N))],
    "one with a mask of heads": [Tile(ALL, ALL, ALL, bool_mask(H, M, N))],
    "one with a mask of the batch": [Tile(ALL, ALL, ALL, bool_mask(B, 1, 1, N))],
    "one with an expanded mask": [Tile(ALL, ALL, ALL, bool_mask(M, N).expand(B, H, M, N))],
    "one with a blind row": [Tile(ALL, ALL, ALL, blind_mask())],
    "one with a bias": [Tile(ALL, ALL, ALL, random(1, H, M, N))],
    "one with a bias in another precision": [Tile(ALL, ALL, ALL, random(M, N).bfloat16().float())],
    "one with a bias that hides": [
        Tile(ALL, ALL, ALL, random(M, N).masked_fill(~blind_mask(), -math.inf))
    ],
    "a causal square": [Tile(ALL, ALL, slice(1, 1 + M), causal=True)],
    "a causal square with a mask": [Tile(ALL, ALL, slice(1, 1 + M), bool_mask(M, M), True)],
    "some rows": [Tile(ALL, slice(2, 5), ALL)],
    "rows apart": [Tile(ALL, slice(1, 4), slice(0, 7)), Tile(ALL, slice(6, M), slice(5, N))],
    "keys apart": [Tile(ALL, slice(0, 5), slice(0, 2)), Tile(ALL, slice(5, M), slice(9, N))],
    "entries apart": [Tile(slice(0, 1), ALL, slice(0, 3)), Tile(slice(1, 2), ALL, slice(0, 8))],
    "one entry": [Tile(slice(1, 2), slice(0, 7), slice(2, 11), bool_mask(1, H, 7, 9))],
    "empty tiles among others": [
        Tile(ALL, slice(3, 3), ALL),
        Tile(ALL, slice(0, 4), ALL),
        Tile(ALL, slice(4, 8), slice(7, 7)),
    ],
    "a rectangle and a triangle": [
        Tile(ALL, ALL, slice(0, 2)), Tile(ALL, ALL, slice(2, N), causal=True, continues=True),
    ],
    "three that continue": [
        Tile(ALL, slice(0, 6), slice(0, 2)),
        Tile(ALL, slice(0, 6), slice(5, 7), continues=True),
        Tile(ALL, slice(0, 6), slice(7, N), causal=True, continues=True),
        Tile(ALL, slice(6, M), slice(0, 4)),
    ],
    "none": [],
}  # fmt: skip


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


# ------------------------------------------------------------------ memory and devices


def rearranged(tensor: Tensor, how: str) -> Tensor:
    """The same numbers, elsewhere in memory."""
    tensor = tensor.detach()
    if how == "heads side by side":
        return tensor.transpose(1, 2).contiguous().transpose(1, 2)
    if how == "columns":
        return tensor.transpose(2, 3).contiguous().transpose(2, 3)
    if how == "every other":
        return tensor.repeat_interleave(2, -1)[..., ::2]
    if how == "expanded entries":
        return tensor[:1].expand_as(tensor)
    if how == "expanded heads":
        return tensor[:, :1].expand_as(tensor)
    assert how == "expanded rows"
    return tensor[:, :, :1].expand_as(tensor)


@pytest.mark.parametrize("name", ["one without a mask", "rows apart", "a rectangle and a triangle"])
@pytest.mark.parametrize(
    "how",
    ["heads side by side", "columns", "every other", "expanded entries", "expanded heads",
     "expanded rows"],
)  # fmt: skip
def test_any_layout_in_memory_gives_the_same(how: str, name: str):
    tensors = [rearranged(t, how).requires_grad_() for t in inputs()]
    assert_same(TILINGS[name], tensors)


def test_layouts_that_the_kernels_read_are_not_copied():
    from regard.paths.tiled import _rows

    for how in ("heads side by side", "expanded entries", "expanded heads"):
        tensor = rearranged(random(B, H, M, D), how)
        assert _rows(tensor) is tensor
    one = random(B, H, 1, D).transpose(1, 2).contiguous().transpose(1, 2)
    assert _rows(one) is one


def test_an_expanded_mask_is_not_written_out():
    mask = torch.ones(M, N, dtype=torch.bool).expand(B, H, M, N)
    assert flash.additive(mask, torch.float32).shape == (1, 1, M, N)


@pytest.mark.parametrize("name", TILINGS)
def test_without_a_gradient_the_result_is_the_same(name: str):
    q, k, v = (t.detach() for t in inputs(groups=H, width=E))
    truth = written_out(q, k, v, shown_by(TILINGS[name], (B, H, M, N)), SCALE)
    found = attend_tiles(q, k, v, TILINGS[name], SCALE)
    torch.testing.assert_close(found, truth, rtol=0, atol=1e-9)


def test_small_tiles_of_single_entries_are_plain_products():
    q, k, v = (t.detach() for t in inputs(groups=H, width=E))
    tiles = [Tile(slice(0, 1), ALL, slice(0, 3)), Tile(slice(1, 2), slice(2, 9), slice(4, 12))]
    assert products.suits(q, k, v, tiles)
    for other in (
        [Tile(ALL, slice(0, 2), ALL), *tiles[1:]],  # two entries
        [tiles[0]._replace(mask=bool_mask(M, 3)), tiles[1]],
        [tiles[0]._replace(causal=True), tiles[1]],
    ):
        assert not products.suits(q, k, v, other)
    truth = written_out(q, k, v, shown_by(tiles, (B, H, M, N)), SCALE)
    torch.testing.assert_close(attend_tiles(q, k, v, tiles, SCALE), truth, rtol=0, atol=1e-9)


def test_a_remainder_of_keys_is_filled_with_hidden_ones():
    narrow = Tile(ALL, ALL, slice(3, 40))
    wide = tile.widened(narrow, 60)
    assert wide.keys == slice(3, 51)
    assert wide.mask is not None
    assert torch.equal(wide.mask == 0, torch.arange(48) < 37)
    assert tile.widened(narrow, 45) is narrow  # there are no more keys
    assert tile.widened(narrow._replace(causal=True), 60).causal
    assert tile.widened(narrow._replace(keys=slice(0, 32)), 60).mask is None
    assert_same([narrow], inputs(keys=60))
    more = Tile(ALL, ALL, slice(45, 56), causal=True, continues=True)
    assert_same([narrow, more], inputs(keys=60))


@pytest.mark.parametrize("bad", BAD)
def test_keys_that_fill_a_remainder_may_be_nan(bad: float):
    q, k, v = tensors = inputs(keys=60)
    with torch.no_grad():
        k[:, :, 40:] = v[:, :, 40:] = bad
    tiles = [Tile(ALL, ALL, slice(3, 40))]
    output = attend_tiles(q, k, v, tiles, SCALE)
    gradients = torch.autograd.grad(output.sum(), tensors)
    assert all(bool(torch.isfinite(t).all()) for t in (output, *gradients))
    with torch.no_grad():
        k[:, :, 40:] = v[:, :, 40:] = 0.0
    torch.testing.assert_close(attend_tiles(q, k, v, tiles, SCALE), output, rtol=0, atol=0)


def test_large_blocks_are_used_again_when_nothing_holds_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pages, "LARGE", 1)
    monkeypatch.setattr(pages, "_free", {})
    one = pages.room((5, 7), torch.float32, zero=False)
    place = one.data_ptr()
    view = one[2:]
    del one
    assert pages.room((5, 7), torch.float32, zero=False).data_ptr() != place  # the view holds it
    view.fill_(3)
    del view
    places = [pages.room((5, 7), torch.float32, zero=True) for _ in range(2)]
    assert place in [t.data_ptr() for t in places]
    assert not any(t.any() for t in places)


def test_few_free_blocks_are_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pages, "LARGE", 1)
    monkeypatch.setattr(pages, "KEPT", 1000)
    monkeypatch.setattr(pages, "_free", {})
    for size in (100, 200, 300, 1001):
        pages.room((size,), torch.uint8, zero=False)
    assert sorted(pages._free) == [100, 200, 300]
    pages.room((500,), torch.uint8, zero=False)
    assert sorted(pages._free) == [500]


@pytest.mark.parametrize("name", ["some rows", "rows apart", "entries apart"])
def test_memory_used_again_holds_the_same(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pages, "LARGE", 1)
    assert_same(TILINGS[name], inputs())


@pytest.mark.parametrize("name", TILINGS)
def test_other_devices_compute_the_same_through_the_public_function(name: str):
    q, k, v = tensors = inputs(width=E)
    found = formula.elsewhere(q, k, v, flash_tiles(TILINGS[name]), SCALE)
    truth = written_out(q, k, v, shown_by(TILINGS[name], (B, H, M, N)), SCALE)
    torch.testing.assert_close(found, truth, rtol=0, atol=1e-9)
    if found.requires_grad:
        upstream = random(*truth.shape)
        expected = torch.autograd.grad(truth, tensors, upstream)
        for one, other in zip(torch.autograd.grad(found, tensors, upstream), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def flash_tiles(tiles: list[Tile]) -> list[Tile]:
    """Without empty ones, which attend_tiles drops."""
    return [t for t in tiles if t.rows != slice(3, 3) and t.keys != slice(7, 7)]


def test_it_compiles_without_a_break():
    tiles = [Tile(ALL, ALL, ALL, bool_mask(M, N))]
    tensors = inputs(width=E)
    attend = torch.compile(attend_tiles, backend="aot_eager", fullgraph=True)
    found = torch.autograd.grad(attend(*tensors, tiles, SCALE).sum(), tensors)
    expected = torch.autograd.grad(attend_tiles(*tensors, tiles, SCALE).sum(), tensors)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


# ------------------------------------------------------------------ nothing to see


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
def test_what_nobody_sees_may_be_nan_or_inf(bad: float, where: str, kind: str, count: int):
    """Row 3 sees nothing and key 5 is seen by nobody: neither may spoil anything."""
    mask: Tensor = blind_mask()
    if kind == "float":
        mask = torch.zeros(M, N, dtype=torch.float64).masked_fill(~mask, -math.inf)
    tiles = [Tile(ALL, ALL, ALL, mask)]
    if count == 2:
        cuts = [(slice(0, 4), mask[..., :4, :]), (slice(4, M), mask[..., 4:, :])]
        tiles = [Tile(ALL, rows, ALL, part) for rows, part in cuts]
    clean = [t.detach().abs() for t in inputs()]  # q · inf is inf, not NaN
    spoilt = [t.clone() for t in clean]
    part = {"query": spoilt[0][:, :, 3], "key": spoilt[1][:, :, 5], "value": spoilt[2][:, :, 5]}
    part[where][..., 1] = bad

    def results(tensors: list[Tensor]) -> list[Tensor]:
        leaves = [t.requires_grad_() for t in tensors]
        output = attend_tiles(*leaves, tiles, SCALE)
        first = torch.autograd.grad(output, leaves, random(*output.shape), create_graph=True)
        total = sum((t * random(*t.shape, seed=11)).sum() for t in first)
        return [output, *first, *torch.autograd.grad(total, leaves)]

    with torch.no_grad():
        assert bool(torch.isfinite(attend_tiles(*spoilt, tiles, SCALE)).all())
    for one, other in zip(results(spoilt), results(clean), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def test_a_visible_nan_shows():
    q, k, v = inputs()
    with torch.no_grad():
        v[0, 0, 2, 1] = math.nan
    mask = torch.ones(M, N, dtype=torch.bool)
    output = attend_tiles(q, k, v, [Tile(ALL, ALL, ALL, mask)], SCALE)
    assert bool(output[0, 0, :, 1].isnan().all())
    assert not output[1].isnan().any()


# ------------------------------------------------------------------ numbers


@pytest.mark.parametrize("scale", [-0.4, 0.0, 1.0, 3.0])
@pytest.mark.parametrize("name", ["a causal square", "rows apart", "one with a blind row"])
def test_any_scale_is_right(scale: float, name: str):
    assert_same(TILINGS[name], inputs(), scale)


def test_a_short_triangle_is_cut_in_blocks_and_stays_the_same(monkeypatch: pytest.MonkeyPatch):
    length, used = 259, []
    monkeypatch.setattr(tile, "triangle", lambda n, cut=tile.triangle: used.append(n) or cut(n))
    tiles = [Tile(ALL, ALL, ALL, causal=True)]
    assert_same(tiles, inputs(2, 8, 8, length, length, 3, 3))
    assert used == [length] * 3  # forward, backward and forward again
    assert len(tile.triangle(length)) == 5


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


# ------------------------------------------------------------------ threads


def long_window() -> list[Tile]:
    row = torch.arange(150).unsqueeze(0)
    reach = (row - 20).clamp(0), (row + 21).clamp(max=150), row >= 0
    return plan_tiles(*reach, no_mask, 150, 150)


def no_mask(*_: slice) -> Tensor:
    raise AssertionError("every interval is full, so no mask should be asked for")


def test_one_thread_gives_the_same():
    tensors = inputs(queries=150, keys=150, dtype=torch.float32)
    tiles = long_window()

    def work() -> list[Tensor]:
        output = attend_tiles(*tensors, tiles, SCALE)
        return [output, *torch.autograd.grad(output.sum(), tensors)]

    expected = work()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        found = work()
    finally:
        torch.set_num_threads(threads)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


def test_eight_threads_at_once_give_the_same():
    tiles = long_window()
    found: dict[int, list[Tensor]] = {}

    def work(name: int) -> None:
        tensors = inputs(queries=150, keys=150, dtype=torch.float32)
        for _ in range(3):
            output = attend_tiles(*tensors, tiles, SCALE)
            found[name] = [output, *torch.autograd.grad(output.sum(), tensors)]

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    for results in found.values():
        for one, other in zip(results, found[0], strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


# ------------------------------------------------------------------ plans


def visible(low: Tensor, high: Tensor, keys: int) -> Tensor:
    key = torch.arange(keys)
    return (low.unsqueeze(-1) <= key) & (key < high.unsqueeze(-1))  # (B or 1, M, N)


def assert_plan(
    low: Tensor, high: Tensor, keys: int, *, block: int | None = None, also: Tensor | None = None
) -> list[Tile]:
    """The tiles show what the intervals show (and `also` allows), no more and no less."""
    low, high = torch.broadcast_tensors(low, high)
    mask = visible(low, high, keys)
    full = torch.ones_like(low, dtype=torch.bool)
    if also is not None:
        full = (also | ~mask).all(-1).expand_as(low)
        mask = mask & also

    def tile_mask(batch: slice, rows: slice, part: slice) -> Tensor:
        assert also is not None, "every interval is full, so no mask should be asked for"
        block = mask[:, None, rows, part]
        return block if len(block) == 1 else block[batch]

    tiles = plan_tiles(low, high, full, tile_mask, low.shape[1], keys, block)
    shown = shown_by(tiles, (2 if len(low) == 1 else len(low), 1, low.shape[1], keys))
    assert torch.equal(shown[:, 0] == 0, mask.expand(len(shown), -1, -1))
    return tiles


def area(tiles: list[Tile], batch: int, queries: int, keys: int) -> int:
    sizes = range(batch), range(queries), range(keys)
    return sum(math.prod(len(s[p]) for s, p in zip(sizes, t[:3], strict=True)) for t in tiles)


def test_a_padded_batch_is_a_tile_for_each_length():
    high = torch.tensor([[48], [48], [37], [0], [83]]).expand(5, 50)
    tiles = assert_plan(torch.zeros_like(high), high, 83)
    assert tiles == [
        Tile(slice(0, 2), slice(0, 50), slice(0, 48)),
        Tile(slice(2, 3), slice(0, 50), slice(0, 37)),
        Tile(slice(4, 5), slice(0, 50), slice(0, 83)),
    ]


def test_padded_queries_are_not_computed():
    lengths = torch.tensor([[32], [16], [0]])
    high = torch.where(torch.arange(50) < lengths, lengths, 0)
    tiles = assert_plan(torch.zeros_like(high), high, 50)
    assert area(tiles, 3, 50, 50) == 32 * 32 + 16 * 16
    assert all(t.mask is None for t in tiles)


def test_a_window_is_blocks_that_share_a_mask():
    length, reach = 1000, 40
    row = torch.arange(length).unsqueeze(0)
    low, high = (row - reach).clamp(0), (row + reach + 1).clamp(max=length)
    tiles = assert_plan(low, high, length)
    assert area(tiles, 1, length, length) < 0.2 * length**2
    assert len({id(t.mask) for t in tiles}) < 6 < len(tiles)
    blocks = assert_plan(low, high, length, block=128)
    assert max(len(range(length)[t.rows]) for t in blocks) == 128


def test_packed_segments_are_a_tile_each_without_a_mask():
    ends = torch.tensor([48, 80, 150])
    number = torch.bucketize(torch.arange(150), ends, right=True)
    low = torch.cat([torch.tensor([0]), ends])[number].unsqueeze(0)
    tiles = assert_plan(low, ends[number].unsqueeze(0), 150)
    assert [(t.rows, t.keys, t.mask) for t in tiles] == [
        (slice(0, 48), slice(0, 48), None),
        (slice(48, 80), slice(48, 80), None),
        (slice(80, 150), slice(80, 150), None),
    ]


def test_many_tiny_segments_share_blocks():
    number = torch.arange(300) // 3
    tiles = assert_plan(3 * number.unsqueeze(0), 3 * number.unsqueeze(0) + 3, 300)
    assert len(tiles) < 7


def test_a_causal_mask_is_a_triangle_and_a_rectangle():
    row = torch.arange(100).unsqueeze(0)
    (one,) = assert_plan(0 * row, row + 1, 100)
    assert one.causal
    rectangle, triangle = assert_plan(0 * row, row + 201, 300)
    assert (rectangle.keys, triangle.keys) == (slice(0, 200), slice(200, 300))
    assert triangle.causal
    assert triangle.continues
    blocks = assert_plan(0 * row, row + 31, 130)
    assert not any(t.causal or t.continues for t in blocks)


def test_a_causal_padded_batch_is_triangles_and_what_is_under_them():
    lengths = torch.tensor([[40], [70], [100]])
    row = torch.arange(100).unsqueeze(0)
    tiles = assert_plan(torch.zeros(3, 100).long(), torch.minimum(row + 1, lengths), 100)
    assert [(t.batch, t.rows, t.causal) for t in tiles] == [
        (slice(0, 1), slice(0, 40), True), (slice(0, 1), slice(40, 100), False),
        (slice(1, 2), slice(0, 70), True), (slice(1, 2), slice(70, 100), False),
        (slice(2, 3), slice(0, 100), True),
    ]  # fmt: skip


def test_a_large_rectangle_that_is_not_full_is_cut_so_that_its_mask_is_small():
    queries, keys = 700, 3001
    also = torch.rand(1, queries, keys, generator=torch.Generator().manual_seed(0)) > 0.5
    also[..., [0, -1]] = True
    tiles = assert_plan(torch.zeros(1, queries).long(), torch.tensor([[keys]]), keys, also=also)
    assert len(tiles) == 3
    assert all(t.mask is not None and t.mask.numel() <= 1.1 * 2**20 for t in tiles)


@st.composite
def reaches(draw: st.DrawFn) -> tuple[Tensor, Tensor, int, Tensor | None, int | None]:
    """Intervals that jump, stay, slide and vanish, for one or three entries."""
    queries, keys = draw(st.integers(1, 150)), draw(st.integers(1, 90))
    entries = draw(st.sampled_from([1, 3]))
    row = torch.arange(queries)
    ends = []
    for _ in range(2 * entries):
        cuts = sorted(draw(st.lists(st.integers(0, queries), max_size=4)))
        piece = torch.bucketize(row, torch.tensor(cuts, dtype=torch.long), right=True)
        size = len(cuts) + 1
        start = torch.tensor(
            draw(st.lists(st.integers(-5, keys + 5), min_size=size, max_size=size))
        )
        slope = torch.tensor(draw(st.lists(st.integers(-2, 2), min_size=size, max_size=size)))
        ends.append((start[piece] + slope[piece] * row).clamp(0, keys))
    low, high = torch.stack(ends[:entries]), torch.stack(ends[entries:])
    high = torch.maximum(low, high)
    also = None
    if draw(st.booleans()):
        generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
        also = torch.rand(entries, queries, keys, generator=generator) > 0.2
    return low, high, keys, also, draw(st.sampled_from([None, 5, 32]))


@settings(max_examples=60, deadline=None)
@given(reaches())
def test_any_plan_shows_exactly_what_is_visible(
    reach: tuple[Tensor, Tensor, int, Tensor | None, int | None],
):
    low, high, keys, also, block = reach
    tiles = assert_plan(low, high, keys, block=block, also=also)
    batch = 2 if len(low) == 1 else len(low)
    assert_same(tiles, inputs(batch, 2, 1, low.shape[1], keys, 2, 2))
