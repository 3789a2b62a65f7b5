"""Every mask against its definition, cell by cell, alone and in random compositions."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import regard
from regard.core.mask import Grid, Mask

CPU = torch.device("cpu")
B = H = 3  # as many heads as sequences, so that a swapped axis shows

Cell = Callable[[int, int, int, int], bool]
"""Whether, in sequence b and head h, query i sees key j."""


def table(cell: Cell, queries: int, keys: int) -> Tensor:
    """The definition, cell by cell: bool (B, H, M, N)."""
    cells = [
        cell(b, h, i, j)
        for b in range(B)
        for h in range(H)
        for i in range(queries)
        for j in range(keys)
    ]
    return torch.tensor(cells, dtype=torch.bool).view(B, H, queries, keys)


def dense(mask: Mask, queries: int, keys: int) -> Tensor:
    return mask.dense(queries, keys, leading=2).expand(B, H, queries, keys)


def random_bits(draw: st.DrawFn, *shape: int) -> Tensor:
    seed = draw(st.integers(0, 2**31))
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) > 0.4


# ------------------------------------------------------------------ any mask at all


@st.composite
def atomic(draw: st.DrawFn, queries: int, keys: int) -> tuple[Mask, Cell]:
    """One mask without composition, and its definition."""
    kind = draw(st.sampled_from(["causal", "window", "lengths", "segments", "visible"]))
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
def test_reach_shuts_out_no_visible_key_and_full_means_full(
    case: tuple[Mask, Tensor, int, int],
) -> None:
    mask, truth, queries, keys = case
    low, high, full = mask.reach(Grid(queries, keys, 2, CPU))
    low, high = low.expand(B, H, queries), high.expand(B, H, queries)
    full = torch.as_tensor(full).expand(B, H, queries)
    assert bool(((low >= 0) & (low <= high) & (high <= keys)).all())
    assert bool(((low < high) | (high == 0)).all())
    key = torch.arange(keys)
    inside = (key >= low.unsqueeze(-1)) & (key < high.unsqueeze(-1))
    assert not bool((truth & ~inside).any())
    assert not bool((inside & ~truth & full.unsqueeze(-1)).any())


@settings(max_examples=100)
@given(sizes.flatmap(lambda size: st.tuples(st.just(size), atomic(*size))))
def test_reach_of_a_mask_that_is_not_composed_is_exact(case: tuple) -> None:
    (queries, keys), (mask, cell) = case
    truth = table(cell, queries, keys)
    low, high, full = mask.reach(Grid(queries, keys, 2, CPU))
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
def test_a_mask_that_says_it_ignores_queries_does(case: tuple[Mask, Tensor, int, int]) -> None:
    mask, truth, queries, _ = case
    if mask.ignores_queries() and queries:
        assert torch.equal(truth, truth[..., :1, :].expand_as(truth))


# ------------------------------------------------------------------ positions


def test_the_last_query_sits_on_the_last_key() -> None:
    assert regard.causal().dense(2, 5).int().tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert regard.causal().dense(5, 2).int().tolist() == [[0, 0], [0, 0], [0, 0], [1, 0], [1, 1]]
    assert regard.window(1, 0).dense(2, 5).int().tolist() == [[0, 0, 1, 1, 0], [0, 0, 0, 1, 1]]


def test_an_offset_says_where_the_first_query_stands() -> None:
    assert regard.causal(offset=0).dense(2, 5).int().tolist() == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0]]
    assert regard.window(0, 1, offset=2).dense(2, 5).int().tolist() == [
        [0, 0, 1, 1, 0],
        [0, 0, 0, 1, 1],
    ]
    assert not regard.causal(offset=-7).dense(3, 5).any()


def test_decoding_step_by_step_sees_what_the_full_pass_sees() -> None:
    whole = (regard.causal() & regard.window(2, 0)).dense(7, 7)
    for step in range(7):
        one = (regard.causal() & regard.window(2, 0)).dense(1, step + 1)
        assert torch.equal(one[0], whole[step, : step + 1])


@pytest.mark.parametrize(("left", "right"), [(-1, 0), (0, -3), (1.5, 0), (True, 0), ("2", 0)])
def test_a_window_of_no_number_of_keys_is_refused(left: object, right: object) -> None:
    with pytest.raises(
        ValueError, match=r"window (left|right) must be a number of keys, 0 or more, got"
    ):
        regard.window(left, right)  # type: ignore[arg-type]


def test_an_offset_must_be_a_whole_number() -> None:
    with pytest.raises(TypeError, match=r"offset must be a whole number or None, got 0\.5"):
        regard.causal(offset=0.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="offset must be a whole number"):
        regard.window(1, 1, offset=True)


# ------------------------------------------------------------------ lengths


def test_lengths_line_up_with_the_first_leading_dimension() -> None:
    found = regard.lengths(torch.tensor([0, 2, 5])).dense(2, 5, leading=2)
    assert found.shape == (3, 1, 2, 5)
    assert found[:, 0, 0].sum(-1).tolist() == [0, 2, 5]
    per_head = regard.lengths(torch.tensor([[0, 1], [2, 3]])).dense(2, 5, leading=3)
    assert per_head.shape == (2, 2, 1, 2, 5)
    assert per_head[:, :, 0, 1].sum(-1).tolist() == [[0, 1], [2, 3]]


def test_lengths_may_be_a_list_or_one_number_for_all() -> None:
    assert torch.equal(
        regard.lengths([1, 3]).dense(2, 3), regard.lengths(torch.tensor([1, 3])).dense(2, 3)
    )
    assert regard.lengths(torch.tensor(2)).dense(2, 3).int().tolist() == [[1, 1, 0], [1, 1, 0]]
    assert regard.lengths([2], queries=[1]).dense(2, 3).int().tolist() == [[[1, 1, 0], [0, 0, 0]]]


def test_wrong_lengths_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"lengths\(\) counts from 0, got -2; an empty sequence is 0"
    ):
        regard.lengths(torch.tensor([3, -2]))
    with pytest.raises(ValueError, match="got -1"):
        regard.lengths([1], queries=[-1])
    for wrong in (torch.tensor([1.0, 2.0]), torch.tensor([True, False]), [1.5]):
        with pytest.raises(
            TypeError, match=r"lengths\(\) takes whole numbers, got torch\.(float|bool)"
        ):
            regard.lengths(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"lengths\(\) says 7 keys but there are only 5"):
        regard.lengths(torch.tensor([7, 2])).dense(3, 5)
    with pytest.raises(ValueError, match=r"lengths\(\) says 4 queries but there are only 3"):
        regard.lengths(torch.tensor([5]), torch.tensor([4])).dense(3, 5)
    with pytest.raises(
        ValueError, match=r"has 1 leading dimensions but .* have 0; give them a batch"
    ):
        regard.lengths(torch.tensor([1, 2])).dense(3, 5, leading=0)


# ------------------------------------------------------------------ segments


def test_segments_of_one_sequence_are_for_self_attention() -> None:
    ids = torch.tensor([[0, 0, 1], [4, 9, 4]])
    found = regard.segments(ids).dense(3, 3)
    assert found.int().tolist() == [
        [[1, 1, 0], [1, 1, 0], [0, 0, 1]],
        [[1, 0, 1], [0, 1, 0], [1, 0, 1]],
    ]
    message = (
        r"ids for 3 queries and 3 keys, but there are 2 queries and 3 keys; for two sequences "
        r"give segments\(query_ids, key_ids\)"
    )
    with pytest.raises(ValueError, match=message):
        regard.segments(ids).dense(2, 3)


def test_segments_of_two_sequences_compare_ids() -> None:
    found = regard.segments(torch.tensor([5, 6]), torch.tensor([6, 5, 7, 5])).dense(2, 4)
    assert found.int().tolist() == [[0, 1, 0, 1], [1, 0, 0, 0]]
    shared = regard.segments(torch.tensor([[5, 6], [7, 7]]), torch.tensor([6, 5, 7])).dense(2, 3)
    assert shared.int().tolist() == [[[0, 1, 0], [1, 0, 0]], [[0, 0, 1], [0, 0, 1]]]
    with pytest.raises(
        ValueError, match=r"ids for 2 queries and 4 keys, but there are 2 queries and 3 keys$"
    ):
        regard.segments(torch.tensor([5, 6]), torch.tensor([6, 5, 7, 5])).dense(2, 3)


def test_segments_of_different_integer_types_know_their_reach() -> None:
    mask = regard.segments(
        torch.tensor([2, 1], dtype=torch.int32), torch.tensor([1, 2, 2], dtype=torch.int8)
    )
    low, high, full = mask.reach(Grid(2, 3, 0, CPU))
    assert (low.tolist(), high.tolist()) == ([1, 0], [3, 1])
    assert torch.as_tensor(full).all()


def test_segments_take_whole_numbers_only() -> None:
    for wrong in (torch.tensor([0.5, 1.0]), torch.tensor([True, False]), [0, 1]):
        with pytest.raises(TypeError, match=r"segments\(\) takes a tensor of whole numbers, got"):
            regard.segments(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"ids of shape \(length,\) or \(batch, length\)"):
        regard.segments(torch.tensor(3))


# ------------------------------------------------------------------ boolean tensors


def test_numbers_are_no_mask_and_the_error_says_what_to_do() -> None:
    for wrong, kind in (
        (torch.zeros(3, 5), "torch.float32"),
        (torch.ones(3, 5).int(), "torch.int32"),
        ([True], "list"),
    ):
        with pytest.raises(
            TypeError, match=f"bool tensor with True = may attend, got {kind}.*bias=.*mask != 0"
        ):
            regard.visible(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=f"got {kind}"):
            regard.causal() & wrong  # type: ignore[operator]


def test_a_tensor_of_the_wrong_shape_is_refused_with_both_shapes() -> None:
    message = (
        r"mask of shape \(5, 3\) does not fit 3 queries and 5 keys; it should be \(..., 3, 5\)"
    )
    with pytest.raises(ValueError, match=message):
        regard.visible(torch.ones(5, 3, dtype=torch.bool)).dense(3, 5)
    with pytest.raises(ValueError, match=message):
        (regard.causal() | ~regard.visible(torch.ones(5, 3, dtype=torch.bool))).dense(3, 5)
    with pytest.raises(ValueError, match=r"\(4,\) does not fit 3 queries and 5 keys"):
        regard.visible(torch.ones(4, dtype=torch.bool)).dense(3, 5)


def test_tensors_compose_from_either_side() -> None:
    bits = torch.rand(3, 5, generator=torch.Generator().manual_seed(0)) > 0.5
    causal = regard.causal().dense(3, 5)
    assert torch.equal((regard.causal() & bits).dense(3, 5), causal & bits)
    assert torch.equal((bits & regard.causal()).dense(3, 5), causal & bits)
    assert torch.equal((regard.causal() | bits).dense(3, 5), causal | bits)
    assert torch.equal((bits | regard.causal()).dense(3, 5), causal | bits)


def test_a_mask_has_no_truth_value() -> None:
    with pytest.raises(
        TypeError, match=r"no truth value; combine masks with & \| ~, not and, or, not"
    ):
        bool(regard.causal())
    with pytest.raises(TypeError):
        regard.causal() and regard.window(1, 1)


def test_a_mask_says_what_it_is() -> None:
    mask = regard.causal() & ~regard.window(2, 3, offset=1) | regard.lengths([1, 2])
    assert repr(mask) == "((causal() & ~window(2, 3, offset=1)) | lengths(keys(2,)))"
    assert repr(regard.segments(torch.zeros(2, 5).long())) == "segments(2, 5)"
    assert repr(regard.visible(torch.ones(3, 5).bool())) == "visible(3, 5)"


def test_dense_is_a_tensor_of_its_own() -> None:
    bits = torch.ones(3, 5, dtype=torch.bool)
    regard.visible(bits).dense(3, 5).fill_(False)
    assert bits.all()
    rows = regard.lengths([2, 3]).dense(3, 5)
    rows[0, 0] = False
    assert rows.sum(-1).tolist() == [[0, 2, 2], [3, 3, 3]]


# ------------------------------------------------------------------ torch's inverted masks


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", ["none", "square", "per head"])
def test_masks_of_torch_multihead_attention_mean_the_same_here(kind: str, padded: bool) -> None:
    torch.manual_seed(0)
    heads, batch, queries, keys, dim = 3, 3, 5, 7, 6
    layer = nn.MultiheadAttention(dim, heads, batch_first=True)
    query, key = torch.randn(batch, queries, dim), torch.randn(batch, keys, dim)
    attn_mask = padding = None
    if kind == "square":
        attn_mask = torch.rand(queries, keys) > 0.6
    elif kind == "per head":
        attn_mask = torch.rand(batch * heads, queries, keys) > 0.6
    if attn_mask is not None:
        attn_mask[..., 0] = False  # torch gives NaN to a query that sees nothing
    if padded:
        padding = torch.arange(keys) >= torch.tensor([[7], [2], [4]])
    truth, weights = layer(
        query, key, key, attn_mask=attn_mask, key_padding_mask=padding, average_attn_weights=False
    )

    def split(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return (x @ weight.T + bias).unflatten(-1, (heads, -1)).transpose(1, 2)

    projections = zip(
        (query, key, key), layer.in_proj_weight.chunk(3), layer.in_proj_bias.chunk(3), strict=True
    )
    q, k, v = (split(*parts) for parts in projections)
    mask = regard.from_torch_mha(attn_mask, padding, heads=heads)
    output, map = regard.attend(q, k, v, mask=mask, return_map=True)
    torch.testing.assert_close(layer.out_proj(output.transpose(1, 2).flatten(2)), truth)
    torch.testing.assert_close(map.dense(), weights)


def test_torch_masks_that_cannot_be_converted_are_refused() -> None:
    assert regard.from_torch_mha() is None
    with pytest.raises(TypeError, match=r"got torch\.float32.*bias="):
        regard.from_torch_mha(torch.zeros(3, 5))
    with pytest.raises(TypeError, match=r"got torch\.float32"):
        regard.from_torch_mha(key_padding_mask=torch.zeros(2, 5))
    bits = torch.zeros(6, 3, 5, dtype=torch.bool)
    for heads in (None, 4):
        with pytest.raises(
            ValueError, match=r"attn_mask \(6, 3, 5\) is \(batch · heads, M, N\): give heads="
        ):
            regard.from_torch_mha(bits, heads=heads)
    padding = regard.from_torch_mha(key_padding_mask=torch.zeros(2, 7, dtype=torch.bool))
    assert padding is not None
    with pytest.raises(ValueError, match=r"key_padding_mask of shape \(2, 7\) does not fit 5 keys"):
        padding.dense(3, 5)


# ------------------------------------------------------------------ long sequences


def test_a_long_mask_is_never_written_out() -> None:
    length = 1_000_003  # a square of bools would take a terabyte
    grid = Grid(length, length, 1, CPU)
    ids = torch.arange(length) // 1000
    mask = (
        regard.causal()
        & regard.window(128, 0)
        & regard.lengths([length, 5000])
        & regard.segments(ids)
    )
    mask.check(grid)
    block = mask.block(slice(5000, 5003), slice(4990, 5010), grid)
    assert block.shape == (2, 3, 20)
    assert block.int().sum(-1).tolist() == [[1, 2, 3], [0, 0, 0]]
    low, high, _ = mask.reach(grid)
    assert int((high - low).max()) == 129
    assert int(low[0, 999_999]) == 999_871
    assert regard.visible(torch.ones(length, dtype=torch.bool)).reach(grid).high.shape == (1,)
    assert int((regard.causal() & regard.lengths([7])).seen(grid).sum()) == 7
