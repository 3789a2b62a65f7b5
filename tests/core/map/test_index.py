"""Any index of a lazy map gives what it gives on the dense one, and computes no more."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard.core import blocks
from tests.core.map.maps import B, Counting, D, H, M, N, a_map, inputs


@st.composite
def indices(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """An index of whole numbers, slices and at most one ellipsis."""

    def part(length: int) -> st.SearchStrategy:
        bound = st.none() | st.integers(-length - 2, length + 2)
        slices = st.builds(slice, bound, bound, st.none() | st.integers(1, 4))
        return st.integers(-length, length - 1) | slices

    front = draw(st.integers(0, len(shape)))
    parts = [draw(part(length)) for length in shape[:front]]
    if draw(st.booleans()):
        back = draw(st.integers(front, len(shape)))
        parts += [..., *(draw(part(length)) for length in shape[back:])]
    return parts[0] if len(parts) == 1 and draw(st.booleans()) else tuple(parts)


MAPS = {leading: a_map(*leading, mask=regard.window(3, 1)) for leading in ((), (2,), (2, 3))}


@settings(max_examples=100)
@given(st.sampled_from(sorted(MAPS)), st.data())
def test_any_index_gives_what_it_gives_on_the_dense_map(
    leading: tuple[int, ...], data: st.DataObject
) -> None:
    map = MAPS[leading]
    index = data.draw(indices(tuple(map.shape)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_ELEMENTS", data.draw(st.sampled_from([1, 12 * 6 * N, 10**6])))
        torch.testing.assert_close(map[index], map.dense()[index], atol=1e-12, rtol=1e-12)
        torch.testing.assert_close(map.scores[index], map.scores.dense()[index])


def test_the_dense_map_is_softmax_of_the_masked_scores() -> None:
    q, k, v = inputs(B, H)
    mask = regard.causal() & regard.lengths([N, 3])
    output, map = regard.attend(q, k, v, mask=mask, return_map=True)
    scores = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(D)
    seen = mask.dense(M, N, leading=2)
    truth = torch.softmax(scores.masked_fill(~seen, -math.inf), -1).nan_to_num(0.0)
    assert map.shape == (B, H, M, N)
    torch.testing.assert_close(map.dense(), truth)
    torch.testing.assert_close(map.scores.dense(), scores)
    torch.testing.assert_close(regard.weighted_sum(map.dense(), v), output)


@pytest.mark.parametrize("index", [torch.tensor([0, 1]), [0, 1], None, "0", 1.0, True, (0, [1])])
def test_other_kinds_of_index_are_refused_with_advice(index: Any) -> None:
    message = (
        r"indexed with whole numbers, slices and \.\.\., got .*; for anything else use \.dense\(\)"
    )
    with pytest.raises(TypeError, match=message):
        a_map(B)[index]


def test_an_index_out_of_range_is_an_index_error() -> None:
    map = a_map(B)
    for index in ((0, M), (0, -M - 1), (B, 0), (0, 0, N), (0, 0, 0, 0), (..., 0, ...)):
        with pytest.raises(IndexError):
            map[index]
    with pytest.raises(IndexError, match=r"query 5 of a map with 5 queries"):
        map[0, M]
    with pytest.raises(IndexError, match=r"too many indices for a map of shape \(2, 5, 7\)"):
        map[0, 0, 0, 0]
    for step in (0, -1):
        with pytest.raises(ValueError, match="step"):
            map[:, ::step]
        with pytest.raises(ValueError, match="step"):
            map[:, :, ::step]


def test_a_map_can_be_walked_like_a_tensor() -> None:
    map = a_map(B)
    assert torch.equal(torch.stack(list(map)), map.dense())  # type: ignore[call-overload]
    assert repr(map) == "AttentionMap(2, 5, 7)"


@pytest.mark.parametrize(
    ("index", "rows"),
    [
        ((..., 3, slice(None)), 1),
        ((..., slice(1, 4), slice(None)), 3),
        ((0, 1, -1), 1),
        ((..., slice(0, 5, 2), slice(0, 2)), 3),
        ((..., slice(4, 4), slice(None)), 0),
        (1, M),
        (..., M),
    ],
)
def test_only_the_selected_rows_are_computed(index: Any, rows: int) -> None:
    score = Counting()
    map = regard.attend(*inputs(B, H), score=score, return_map=True).map
    score.rows.clear()
    map[index]
    assert sum(score.rows) == rows
    score.rows.clear()
    map.scores[index]
    assert sum(score.rows) == rows


@pytest.mark.parametrize(
    "look",
    [
        lambda map: map.topk(2),
        lambda map: map.entropy(),
        lambda map: map.pooled(5),
        lambda map: map.pooled(1),
        lambda map: map.edges(top_k=1),
        lambda map: map.dense(),
    ],
)
def test_every_view_computes_each_row_once_and_a_block_at_a_time(look: Callable) -> None:
    score = Counting()
    map = regard.attend(*inputs(B, H), score=score, return_map=True).map
    score.rows.clear()
    look(map)
    assert sum(score.rows) == M
    assert max(score.rows) <= 2


def test_a_map_that_is_not_read_computes_no_score() -> None:
    score = Counting()
    regard.attend(*inputs(), score=score)
    alone = list(score.rows)
    score.rows.clear()
    regard.attend(*inputs(), score=score, return_map=True)
    assert score.rows == alone


def test_whole_numbers_of_numpy_are_whole_numbers() -> None:
    map = regard.attend(*(torch.randn(2, 7, 4) for _ in range(3)), return_map=True).map
    one, three = np.int64(1), np.int32(3)
    assert torch.equal(map[one, three], map[1, 3])
    assert torch.equal(map[..., one:three, :], map[..., 1:3, :])
    assert torch.equal(map.topk(one).values, map.topk(1).values)
    assert torch.equal(map.pooled(three), map.pooled(3))
    assert torch.equal(map.edges(top_k=one).weight, map.edges(top_k=1).weight)
    with pytest.raises(TypeError, match="whole numbers"):
        map[np.float64(1.0)]
