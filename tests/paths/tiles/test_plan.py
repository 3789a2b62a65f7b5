"""Planning tiles from the intervals of visible keys."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.paths.tile_plan import Tile, plan_tiles
from tests.paths.tiles.tilings import assert_same, inputs, shown_by


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
        assert also is not None, "every interval is full, so no mask is needed"
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
