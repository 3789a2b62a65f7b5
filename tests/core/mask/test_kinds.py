"""Masks one kind at a time: positions, lengths, segments, boolean tensors."""

import sys

import pytest
import torch

import regard
from regard.core.mask import Grid, Mask
from tests.core.mask.definitions import CPU


def test_the_last_query_sits_on_the_last_key() -> None:
    assert regard.causal().dense(2, 5).int().tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert regard.causal().dense(5, 2).int().tolist() == [[0, 0], [0, 0], [0, 0], [1, 0], [1, 1]]
    assert regard.window(1, 0).dense(2, 5).int().tolist() == [[0, 0, 1, 1, 0], [0, 0, 0, 1, 1]]


def test_an_offset_is_the_position_of_the_first_query() -> None:
    assert regard.causal(offset=0).dense(2, 5).int().tolist() == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0]]
    assert regard.window(0, 1, offset=2).dense(2, 5).int().tolist() == [
        [0, 0, 1, 1, 0],
        [0, 0, 0, 1, 1],
    ]
    assert not regard.causal(offset=-7).dense(3, 5).any()


class EveryThird(Mask):
    """A mask with no more than `block`."""

    def block(self, rows: slice, keys: slice, grid: Grid) -> torch.Tensor:
        query, key = torch.arange(rows.start, rows.stop), torch.arange(keys.start, keys.stop)
        return (key - query.unsqueeze(-1)) % 3 == 0


@pytest.mark.parametrize("step", [1, 2, 100])
def test_a_mask_that_defines_only_its_blocks_has_a_key_range(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.core.mask.algebra.block_rows", lambda keys: step)
    low, high, full = EveryThird().key_range(Grid(5, 7, 0, CPU))
    assert low.tolist() == [0, 1, 2, 0, 1]
    assert high.tolist() == [7, 5, 6, 7, 5]
    assert isinstance(full, torch.Tensor)
    assert not full.any()
    for queries, keys in ((0, 7), (5, 0)):
        low, high, full = EveryThird().key_range(Grid(queries, keys, 0, CPU))
        assert low.tolist() == high.tolist() == [0] * queries
        assert full is True


def test_a_mask_that_defines_only_its_blocks_is_applied_and_composed() -> None:
    x = torch.randn(2, 11, 3)
    scores = x @ x.mT
    hidden = (torch.arange(11) - torch.arange(11).unsqueeze(-1)) % 3 != 0
    for mask, out in (
        (EveryThird(), hidden),
        (EveryThird() & regard.causal(), hidden | torch.ones(11, 11).triu(1).bool()),
    ):
        expected = torch.softmax(scores.masked_fill(out, -torch.inf), -1) @ x
        torch.testing.assert_close(regard.attend(x, x, x, score="dot", mask=mask), expected)


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
    with pytest.raises(ValueError, match=r"lengths\(\) has 7 keys but there are only 5"):
        regard.lengths(torch.tensor([7, 2])).dense(3, 5)
    with pytest.raises(ValueError, match=r"lengths\(\) has 4 queries but there are only 3"):
        regard.lengths(torch.tensor([5]), torch.tensor([4])).dense(3, 5)
    with pytest.raises(
        ValueError, match=r"has 1 leading dimensions but .* have 0; give them a batch"
    ):
        regard.lengths(torch.tensor([1, 2])).dense(3, 5, leading=0)


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
    low, high, full = mask.key_range(Grid(2, 3, 0, CPU))
    assert (low.tolist(), high.tolist()) == ([1, 0], [3, 1])
    assert torch.as_tensor(full).all()


def test_segments_take_whole_numbers_only() -> None:
    for wrong in (torch.tensor([0.5, 1.0]), torch.tensor([True, False]), [0, 1]):
        with pytest.raises(TypeError, match=r"segments\(\) takes a tensor of whole numbers, got"):
            regard.segments(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"ids of shape \(length,\) or \(batch, length\)"):
        regard.segments(torch.tensor(3))


def test_float_masks_are_an_error_with_advice() -> None:
    for wrong, kind in (
        (torch.zeros(3, 5), "torch.float32"),
        (torch.ones(3, 5).int(), "torch.int32"),
        ([True], "list"),
    ):
        advice = r"regard\.causal" if kind == "list" else "bias=.*mask != 0"
        with pytest.raises(
            TypeError, match=f"bool tensor with True = may attend, got {kind}.*{advice}"
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


def test_masks_have_a_readable_repr() -> None:
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
    low, high, _ = mask.key_range(grid)
    assert int((high - low).max()) == 129
    assert int(low[0, 999_999]) == 999_871
    assert regard.visible(torch.ones(length, dtype=torch.bool)).key_range(grid).high.shape == (1,)
    assert int((regard.causal() & regard.lengths([7])).seen(grid).sum()) == 7


def test_windows_and_offsets_of_any_size_do_not_overflow() -> None:
    M, N = 3, 5
    most = sys.maxsize
    assert torch.equal(regard.window(0, most).dense(M, N), regard.window(0, N).dense(M, N))
    assert torch.equal(regard.window(2**64, 0).dense(M, N), regard.causal().dense(M, N))
    assert regard.window(most, most).dense(M, N).all()
    assert regard.causal(offset=most).dense(M, N).all()
    assert not regard.causal(offset=-most - 1).dense(M, N).any()
    assert not regard.window(most, 0, offset=-N).dense(M, N).any()
