"""Masks of sparse attention: global tokens, attention sinks and patterns of blocks."""

import pytest
import torch

import regard

PATTERN = torch.tensor([[1, 0, 0], [0, 1, 1], [1, 0, 1]]).bool()
MASKS = {
    "prefix": lambda: regard.causal() | regard.lengths(torch.tensor([2, 4])),
    "sinks": lambda: (
        regard.causal() & (regard.window(2, 0) | regard.global_tokens(2, queries=False))
    ),
    "global": lambda: regard.causal() & (regard.window(1, 0) | regard.global_tokens(3)),
    "blocks": lambda: regard.causal() & regard.block_sparse(PATTERN, 3),
}


@pytest.mark.parametrize("name", MASKS)
def test_a_cached_step_sees_what_the_full_pass_sees(name: str) -> None:
    mask = MASKS[name]()
    whole = mask.dense(9, 9, leading=1)
    for step in range(4, 9):
        assert torch.equal(
            mask.dense(1, step + 1, leading=1)[..., 0, :], whole[..., step, : step + 1]
        )


def test_a_prefix_is_seen_in_both_directions_and_the_rest_is_causal() -> None:
    mask = regard.causal() | regard.lengths(torch.tensor(2))
    assert mask.dense(4, 4).int().tolist() == [
        [1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]
    ]  # fmt: skip


def test_a_window_keeps_its_sinks() -> None:
    mask = MASKS["sinks"]()
    assert mask.dense(6, 6)[4:].int().tolist() == [[1, 1, 1, 1, 1, 0], [1, 1, 0, 1, 1, 1]]


def test_global_tokens_of_each_sequence_see_all_and_are_seen_by_all() -> None:
    marked = torch.tensor([[True, False], [False, True]])
    found = regard.global_tokens(marked).dense(3, 3, leading=2)
    assert found.shape == (2, 1, 3, 3)
    assert found[0, 0].int().tolist() == [[1, 1, 1], [1, 0, 0], [1, 0, 0]]
    assert found[1, 0].int().tolist() == [[0, 1, 0], [1, 1, 1], [0, 1, 0]]
    marked[:] = False  # the mask keeps a copy
    assert not regard.global_tokens(0).dense(2, 2).any()


def test_a_pattern_of_blocks_belongs_to_positions() -> None:
    mask = regard.block_sparse(PATTERN, 2)
    whole = PATTERN.repeat_interleave(2, 0).repeat_interleave(2, 1)
    assert torch.equal(mask.dense(6, 6), whole)
    assert torch.equal(mask.dense(5, 5), whole[:5, :5])
    assert torch.equal(mask.dense(2, 6), whole[4:])
    assert torch.equal(regard.block_sparse(PATTERN, 2, offset=0).dense(2, 6), whole[:2])
    by_head = regard.block_sparse(torch.stack([PATTERN, ~PATTERN]), 2).dense(6, 6)
    assert torch.equal(by_head, torch.stack([whole, ~whole]))


def test_wrong_arguments_are_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="a number of tokens, 0 or more, got -1"):
        regard.global_tokens(-1)
    with pytest.raises(TypeError, match=r"bool tensor \(length,\) or .*, got torch.int64 of shape"):
        regard.global_tokens(torch.tensor([0, 5]))
    with pytest.raises(
        TypeError, match=r"a bool tensor \(\.\.\., rows, columns\), got torch.float32"
    ):
        regard.block_sparse(torch.ones(2, 2), 3)
    with pytest.raises(
        ValueError, match="size of a block must be a number of keys, 1 or more, got 0"
    ):
        regard.block_sparse(PATTERN, 0)
    x = torch.randn(1, 7, 4)
    with pytest.raises(
        ValueError,
        match="a pattern for 6 queries and 6 keys, but the last query is at position 6 of 7",
    ):
        regard.attend(x, x, x, mask=regard.block_sparse(PATTERN, 2))
