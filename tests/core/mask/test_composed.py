"""Any composition of masks is the composition of their definitions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import regard
from regard.core.mask import Grid, Mask
from tests.core.mask.definitions import CPU, B, Cell, H, dense, random_bits, table


@st.composite
def atomic(draw: st.DrawFn, queries: int, keys: int) -> tuple[Mask, Cell]:
    """One mask without composition, and its definition."""
    kinds = ["causal", "window", "lengths", "segments", "visible", "global", "blocks"]
    kind = draw(st.sampled_from(kinds))
    offset = draw(st.none() | st.integers(-keys - 2, keys + 2))
    shift = keys - queries if offset is None else offset
    if kind == "causal":
        return regard.causal(offset=offset), lambda b, h, i, j: j <= i + shift
    if kind == "window":
        left, right = draw(st.integers(0, keys + 1)), draw(st.integers(0, keys + 1))
        mask = regard.window(left, right, offset=offset)
        return mask, lambda b, h, i, j: i + shift - left <= j <= i + shift + right
    if kind == "lengths":
        sizes = [draw(st.integers(0, keys)) for _ in range(B)]
        if draw(st.booleans()):
            return regard.lengths(torch.tensor(sizes)), lambda b, h, i, j: j < sizes[b]
        rows = [draw(st.integers(0, queries)) for _ in range(B)]
        mask = regard.lengths(torch.tensor(sizes), torch.tensor(rows))
        return mask, lambda b, h, i, j: j < sizes[b] and i < rows[b]
    if kind == "segments":
        batch = draw(st.sampled_from([1, B]))
        ids = [[draw(st.integers(0, 2)) for _ in range(queries)] for _ in range(batch)]
        other = [[draw(st.integers(0, 2)) for _ in range(keys)] for _ in range(batch)]
        pair = torch.tensor(ids, dtype=torch.long), torch.tensor(other, dtype=torch.long)
        mask = regard.segments(*(t[0] if batch == 1 else t for t in pair))
        return mask, lambda b, h, i, j: ids[b % batch][i] == other[b % batch][j]
    if kind == "global":
        marked = random_bits(draw, B, draw(st.integers(1, 9)))
        both, position = draw(st.booleans()), keys - queries

        def is_global(b: int, at: int) -> bool:
            return 0 <= at < marked.shape[1] and bool(marked[b, at])

        return regard.global_tokens(
            marked, queries=both
        ), lambda b, h, i, j: is_global(b, j) or (both and is_global(b, i + position))
    if kind == "blocks":
        size = draw(st.integers(1, 4))
        count = -(-max(keys, queries + shift, 1) // size) + draw(st.integers(0, 1))
        pattern = random_bits(draw, H, count, count)
        return regard.block_sparse(
            pattern, size, offset=offset
        ), lambda b, h, i, j: i + shift >= 0 and bool(pattern[h, (i + shift) // size, j // size])
    shapes = [(keys,), (1, keys), (queries, 1), (queries, keys), (B, 1, 1, keys)]
    shapes += [(H, queries, keys), (B, 1, queries, keys), (B, H, queries, keys)]
    bits = random_bits(draw, *draw(st.sampled_from(shapes)))
    everywhere = bits.expand(B, H, queries, keys)
    return regard.visible(bits), lambda b, h, i, j: bool(everywhere[b, h, i, j])


def composed(queries: int, keys: int) -> st.SearchStrategy[tuple[Mask, Cell]]:
    """Masks put together with & | ~ in any way."""

    def extend(inner: st.SearchStrategy) -> st.SearchStrategy:
        def both(a: tuple[Mask, Cell], b: tuple[Mask, Cell]) -> tuple[Mask, Cell]:
            return a[0] & b[0], lambda *at: a[1](*at) and b[1](*at)

        def either(a: tuple[Mask, Cell], b: tuple[Mask, Cell]) -> tuple[Mask, Cell]:
            return a[0] | b[0], lambda *at: a[1](*at) or b[1](*at)

        def neither(a: tuple[Mask, Cell]) -> tuple[Mask, Cell]:
            return ~a[0], lambda *at: not a[1](*at)

        return st.builds(both, inner, inner) | st.builds(either, inner, inner) | inner.map(neither)

    return st.recursive(atomic(queries, keys), extend, max_leaves=5)


sizes = st.sampled_from([(0, 3), (3, 0), (1, 1), (1, 5), (5, 1), (3, 5), (5, 3), (5, 5), (7, 5)])


@st.composite
def any_mask(draw: st.DrawFn) -> tuple[Mask, Tensor, int, int]:
    queries, keys = draw(sizes)
    mask, cell = draw(composed(queries, keys))
    return mask, table(cell, queries, keys), queries, keys


@settings(max_examples=100)
@given(any_mask())
def test_any_composition_is_the_composition_of_definitions(
    case: tuple[Mask, Tensor, int, int],
) -> None:
    mask, truth, queries, keys = case
    assert torch.equal(dense(mask, queries, keys), truth)


@settings(max_examples=100)
@given(any_mask(), st.data())
def test_a_block_is_that_block_of_the_whole(
    case: tuple[Mask, Tensor, int, int], data: st.DataObject
) -> None:
    mask, truth, queries, keys = case
    rows, columns = (
        slice(*sorted(data.draw(st.tuples(st.integers(0, length), st.integers(0, length)))))
        for length in (queries, keys)
    )
    block = mask.block(rows, columns, Grid(queries, keys, 2, CPU))
    assert torch.equal(
        torch.broadcast_to(block, truth[..., rows, columns].shape), truth[..., rows, columns]
    )


@settings(max_examples=150)
@given(any_mask())
def test_key_range_shuts_out_no_visible_key_and_full_means_full(
    case: tuple[Mask, Tensor, int, int],
) -> None:
    mask, truth, queries, keys = case
    low, high, full = mask.key_range(Grid(queries, keys, 2, CPU))
    low, high = low.expand(B, H, queries), high.expand(B, H, queries)
    full = torch.as_tensor(full).expand(B, H, queries)
    assert bool(((low >= 0) & (low <= high) & (high <= keys)).all())
    assert bool(((low < high) | (high == 0)).all())
    key = torch.arange(keys)
    inside = (key >= low.unsqueeze(-1)) & (key < high.unsqueeze(-1))
    assert not bool((truth & ~inside).any())
    assert not bool((inside & ~truth & full.unsqueeze(-1)).any())


@settings(max_examples=150)
@given(any_mask(), st.integers(1, 4))
def test_block_maps_hide_no_visible_key_and_every_means_every(
    case: tuple[Mask, Tensor, int, int], size: int
) -> None:
    mask, truth, queries, keys = case
    some, every = (
        torch.broadcast_to(part, (B, H, -(-queries // size), -(-keys // size)))
        .repeat_interleave(size, -2)[..., :queries, :]
        .repeat_interleave(size, -1)[..., :keys]
        for part in mask.block_map(Grid(queries, keys, 2, CPU), size)
    )
    assert not bool((truth & ~some).any())
    assert not bool((every & ~truth).any())


@settings(max_examples=100)
@given(sizes.flatmap(lambda size: st.tuples(st.just(size), atomic(*size))))
def test_key_range_of_a_mask_that_is_not_composed_is_exact(case: tuple) -> None:
    (queries, keys), (mask, cell) = case
    truth = table(cell, queries, keys)
    low, high, full = mask.key_range(Grid(queries, keys, 2, CPU))
    low, high = low.expand(B, H, queries), high.expand(B, H, queries)
    full = torch.as_tensor(full).expand(B, H, queries)
    for place in torch.cartesian_prod(*map(torch.arange, (B, H, queries))).tolist():
        visible = truth[tuple(place)].nonzero().flatten().tolist()
        at = tuple(place)
        assert (int(low[at]), int(high[at])) == (
            (visible[0], visible[-1] + 1) if visible else (0, 0)
        )
        assert bool(full[at]) == (len(visible) == int(high[at] - low[at]))


@settings(max_examples=100)
@given(any_mask(), st.sampled_from([1, 10, 1000]))
def test_seen_and_seeing_are_the_marginals(case: tuple[Mask, Tensor, int, int], block: int) -> None:
    mask, truth, queries, keys = case
    grid = Grid(queries, keys, 2, CPU)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.core.blocks.BLOCK_ELEMENTS", block)
        assert torch.equal(mask.seen(grid).expand(B, H, keys), truth.any(-2))
        assert torch.equal(mask.seeing(grid).expand(B, H, queries), truth.any(-1))


@settings(max_examples=60)
@given(any_mask())
def test_masks_that_ignore_queries_are_the_same_for_all(
    case: tuple[Mask, Tensor, int, int],
) -> None:
    mask, truth, queries, _ = case
    if mask.ignores_queries() and queries:
        assert torch.equal(truth, truth[..., :1, :].expand_as(truth))
