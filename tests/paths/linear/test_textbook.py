"""Efficient attention against the textbook: values, gradients, map, errors."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.paths import linear as linear_path
from regard.paths.linear import linear, linear_context, linear_rows
from tests.paths.linear.textbook import (
    assert_close,
    assert_same_with_gradients,
    cases,
    random,
    textbook,
    textbook_map,
    who_sees_whom,
)


@given(cases(), st.sampled_from([None, 0.5]))
def test_equals_the_textbook_in_value_and_gradient(case, rise):
    """Also if moderate keys may not share a maximum."""
    tensors, options = case
    with pytest.MonkeyPatch.context() as patch:
        if rise is not None:
            patch.setitem(linear_path.MAX_RISE, tensors[0].dtype, rise)
        assert_same_with_gradients(*tensors, **options)


@given(cases())
def test_the_map_is_the_one_that_made_the_output(case):
    (query, key, value), options = case
    weights = linear_rows(query, key, slice(None), **options)
    sees = who_sees_whom(
        query.shape[-2],
        key.shape[-2],
        *(options.get(name) for name in ("visible", "causal", "offset")),
    )
    assert_close(weights, textbook_map(query, key, sees).expand(weights.shape), 1.0)
    sums = weights.sum(-1)
    some = sees.any(-1).expand(sums.shape)
    assert torch.allclose(sums, some.to(sums.dtype), atol=1e-5)
    output = linear(query, key, value, **options)
    hidden = value if "visible" not in options else value * options["visible"].unsqueeze(-1)
    assert_close(output, weights.double() @ hidden.double(), 1.0)


@given(cases(), st.integers(-45, 45), st.integers(-45, 45))
def test_chosen_rows_are_rows_of_the_whole_map(case, start, stop):
    (query, key, _), options = case
    whole = linear_rows(query, key, slice(None), **options)
    rows = slice(start, stop)
    assert_close(linear_rows(query, key, rows, **options), whole[..., rows, :].double(), 1.0)


def test_the_last_query_sees_the_last_key():
    query, key, value = random(3, 2), random(7, 2), random(7, 5)
    assert_close(linear(query, key, value, causal=True)[-1:], textbook(query[-1:], key, value))


def test_the_context_is_what_the_queries_read():
    query, key, value = random(2, 3, 7, 5), random(2, 1, 11, 5), random(3, 11, 2)
    visible = torch.rand(2, 1, 11) < 0.7
    context = linear_context(key, value, visible=visible)
    assert context.shape == (2, 3, 5, 2)
    assert_close(query.softmax(-1) @ context, textbook(query, key, value, visible))
    assert linear_context(key[..., :0, :], value[..., :0, :]).eq(0).all()


def test_pieces_of_the_real_size_equal_the_textbook(monkeypatch):
    monkeypatch.undo()
    torch.manual_seed(0)
    assert linear_path.BLOCK * 2 < 150
    query, key, value = random(2, 20, 150, 3), random(2, 20, 150, 3), random(2, 20, 150, 2)
    key[:, :, 100:] += 400  # one rise for which the piece must be cut
    for causal in (False, True):
        assert_same_with_gradients(query, key, value, causal=causal)
