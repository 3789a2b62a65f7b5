import math
from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.kneser_ney import END, START, KneserNey

sequences = st.lists(st.text("abc", max_size=5), min_size=1, max_size=12)
orders = st.integers(1, 4)


@given(sequences, orders)
def test_probabilities_after_any_context_sum_to_one(texts, order):
    model = KneserNey(texts, order)
    seen = {*"".join(texts), END}
    for context in product([START, *"abcd"], repeat=order - 1):
        total = sum(model.probability(context, token) for token in [*seen, "never seen"])
        assert total == pytest.approx(1.0)


def by_the_formula(texts, order, context, token, largest):
    """The formula of the docstring for one n-gram, with a uniform distribution below."""
    padded = [(START,) * (order - 1) + tuple(text) + (END,) for text in texts]
    tokens = {token for text in padded for token in text} - {START}

    def grams(size):
        counts = Counter(
            text[last - size + 1 : last + 1]
            for text in padded
            for last in range(order - 1, len(text))
        )
        if size == order:
            return counts
        before = {
            text[last - size : last + 1] for text in padded for last in range(order - 1, len(text))
        }
        return Counter(gram[1:] for gram in before)

    def probability(context, token):
        counts = grams(len(context) + 1)
        below = probability(context[1:], token) if context else 1 / (len(tokens) + 1)
        after = {gram[-1]: count for gram, count in counts.items() if gram[:-1] == context}
        if not after:
            return below
        once = sum(count == 1 for count in counts.values())
        twice = sum(count == 2 for count in counts.values())
        discount = min(largest, (once + 1) / (once + 2 * twice + 2))
        total = sum(after.values())
        return (
            max(after.get(token, 0) - discount, 0) / total + discount * len(after) / total * below
        )

    return probability(context, token)


@given(
    sequences,
    orders,
    st.text("abcd", min_size=3, max_size=3),
    st.sampled_from("abcd"),
    st.sampled_from([1.0, 0.3]),
)
def test_a_probability_is_the_papers_formula(texts, order, before, token, discount):
    context = tuple(before)[: order - 1]
    expected = by_the_formula(texts, order, context, token, discount)
    model = KneserNey(texts, order, discount=discount)
    assert model.probability(context, token) == pytest.approx(expected)


def test_a_sequence_has_the_product_of_its_probabilities_and_of_its_end():
    model = KneserNey(["ab", "abc", "ba"], order=3)
    contexts = [(START, START), (START, "a"), ("a", "b")]
    expected = math.prod(map(model.probability, contexts, ["a", "b", END]))
    assert math.exp(model.log_probability("ab")) == pytest.approx(expected)


def test_a_token_that_follows_one_context_only_is_unlikely_after_others():
    frequent = KneserNey([["new", "york"]] * 9 + [["a", "b"], ["c", "b"]], order=2)
    assert frequent.probability(("new",), "york") > frequent.probability(("new",), "b")
    assert frequent.probability(("unknown",), "york") < frequent.probability(("unknown",), "b")


def test_an_order_below_one_is_an_error():
    with pytest.raises(ValueError, match="order should be 1 or more, got 0"):
        KneserNey([], 0)


@pytest.mark.parametrize("discount", [-0.1, 0.0, 1.1, math.nan])
def test_a_discount_that_is_not_above_zero_and_at_most_one_is_an_error(discount):
    with pytest.raises(ValueError, match="discount should be above 0 and at most 1"):
        KneserNey([], 2, discount=discount)


def test_without_sequences_everything_is_equally_likely():
    assert KneserNey([], 3).log_probability("ab") == 0.0
