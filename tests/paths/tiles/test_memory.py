"""Attention within tiles in any memory layout, in reused buffers, on threads and other devices."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from regard.paths import flash, formula, tile_plan
from regard.paths.tile_attention import attend_tiles
from regard.paths.tile_plan import Tile, plan_tiles
from tests.paths.tiles.tilings import (
    ALL,
    BAD,
    SCALE,
    TILINGS,
    B,
    D,
    E,
    H,
    M,
    N,
    assert_same,
    bool_mask,
    inputs,
    random,
    shown_by,
    written_out,
)


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
    from regard.paths.tile_attention import _rows

    for how in ("heads side by side", "expanded entries", "expanded heads"):
        tensor = rearranged(random(B, H, M, D), how)
        assert _rows(tensor) is tensor
    one = random(B, H, 1, D).transpose(1, 2).contiguous().transpose(1, 2)
    assert _rows(one) is one


def test_an_expanded_mask_is_not_written_out():
    mask = torch.ones(M, N, dtype=torch.bool).expand(B, H, M, N)
    assert flash.as_bias(mask, torch.float32).shape == (1, 1, M, N)


@pytest.mark.parametrize("name", TILINGS)
def test_without_a_gradient_the_result_is_the_same(name: str):
    q, k, v = (t.detach() for t in inputs(groups=H, width=E))
    truth = written_out(q, k, v, shown_by(TILINGS[name], (B, H, M, N)), SCALE)
    found = attend_tiles(q, k, v, TILINGS[name], SCALE)
    torch.testing.assert_close(found, truth, rtol=0, atol=1e-9)


def test_a_remainder_of_keys_is_filled_with_hidden_ones():
    narrow = Tile(ALL, ALL, slice(3, 40))
    wide = tile_plan.pad_keys(narrow, 60)
    assert wide.keys == slice(3, 51)
    assert wide.mask is not None
    assert torch.equal(wide.mask == 0, torch.arange(48) < 37)
    assert tile_plan.pad_keys(narrow, 45) is narrow  # there are no more keys
    assert tile_plan.pad_keys(narrow._replace(causal=True), 60).causal
    assert tile_plan.pad_keys(narrow._replace(keys=slice(0, 32)), 60).mask is None
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


@pytest.mark.parametrize("name", TILINGS)
def test_other_devices_compute_the_same_through_the_public_function(name: str):
    q, k, v = tensors = inputs(width=E)
    found = formula.sdpa_fallback(q, k, v, flash_tiles(TILINGS[name]), SCALE)
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


def window_results(_: int = 0) -> list[Tensor]:
    """Output and gradients of a window over 150 positions, which has several tiles."""
    row = torch.arange(150).unsqueeze(0)
    low, high = (row - 20).clamp(0), (row + 21).clamp(max=150)
    tiles = plan_tiles(low, high, row >= 0, lambda *_: row, 150, 150)
    tensors = inputs(queries=150, keys=150, dtype=torch.float32)
    output = attend_tiles(*tensors, tiles, SCALE)
    return [output, *torch.autograd.grad(output.sum(), tensors)]


def test_one_thread_gives_the_same():
    expected = window_results()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1 if threads > 1 else 2)
        found = window_results()
    finally:
        torch.set_num_threads(threads)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


def test_eight_threads_at_once_give_the_same():
    expected = window_results()
    with ThreadPoolExecutor(8) as pool:
        for results in pool.map(window_results, range(24)):
            for one, other in zip(results, expected, strict=True):
                torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
