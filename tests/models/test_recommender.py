"""The attention recommender: its equation, its parts, and users without a past."""

import pytest
import torch

from regard.models.recommender import Factorisation, Recommender

USERS, ITEMS, DIM = 5, 11, 6


def tables():
    draw = torch.Generator().manual_seed(1)
    return torch.rand(USERS, 3, generator=draw).round(), torch.rand(
        ITEMS, 7, generator=draw
    ).round()


def model_of(**options) -> Recommender:
    torch.manual_seed(3)
    model = Recommender(USERS, *tables(), **{"dim": DIM, "heads": 2, "past": 5, **options})
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model.double().eval()


PROFILES = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]], dtype=torch.float64)
PAST, LENGTHS = torch.tensor([[4, 2, 9], [7, 0, 0]]), torch.tensor([3, 1])


@pytest.mark.parametrize("options", [{}, {"last_item": True}, {"recency": True}])
def test_scores_are_the_equation_written_out(options):
    model = model_of(**options)
    found = model(torch.tensor([2, 5]), PROFILES, PAST, LENGTHS)
    items = model.item.weight + model.item_profiles @ model.item_profile.weight.T
    for b, user in enumerate((2, 5)):
        past = PAST[b, : LENGTHS[b]]
        q, k, e = PROFILES[b], model.item_profiles[past], items[past]
        if "last_item" in options:
            q, k = torch.cat((q, k[0], e[0])), torch.cat((k, e), 1)
        query = (model.query.weight @ q).view(2, 3)
        key = (k @ model.key.weight.T).view(-1, 2, 3)
        value = e.view(-1, 2, 3)
        contexts = []
        for head in range(2):
            scores = key[:, head] @ query[head] / 3**0.5
            if "recency" in options:
                scores = scores + model.recency[head, : len(past)]
            weights = scores.softmax(0)
            torch.testing.assert_close(found.weights[b, head, : len(past)], weights)
            contexts.append(weights @ value[:, head])
        r = model.join.weight @ torch.cat((model.user.weight[user], *contexts))
        torch.testing.assert_close(found.scores[b], items @ r + model.popularity)


def test_the_default_does_not_depend_on_the_order_of_the_past():
    arguments = torch.tensor([1]), PROFILES[:1]
    for options in ({}, {"last_item": True}, {"recency": True}):
        model = model_of(**options)
        scores = [
            model(*arguments, past, LENGTHS[:1]).scores for past in (PAST[:1], PAST[:1].flip(1))
        ]
        assert torch.allclose(*scores) == (not options)


def test_somebody_without_a_past_looks_at_all_items():
    model = model_of()
    none, zero = torch.zeros(1, 1, dtype=torch.long), torch.tensor([0])
    found = model(zero, PROFILES[:1], none, zero)
    assert found.weights.shape == (1, 2, ITEMS)
    torch.testing.assert_close(found.weights.sum(-1), torch.ones(1, 2, dtype=torch.float64))
    other = model(zero, PROFILES[1:], none, zero)
    assert not torch.allclose(found.scores, other.scores)  # the profile decides
    together = model(torch.tensor([0, 2]), PROFILES, PAST, torch.tensor([0, 1]))
    torch.testing.assert_close(together.scores[:1], found.scores)


@pytest.mark.parametrize("past", [[4, 2, 9], []])
def test_the_parts_add_up_to_the_score(past):
    model = model_of()
    parts = model.parts(2 if past else 0, PROFILES[0], torch.tensor(past, dtype=torch.long))
    count = torch.tensor([len(past)])
    shown = torch.tensor([past or [0]])
    scores = model(torch.tensor([2 if past else 0]), PROFILES[:1], shown, count).scores[0]
    total = parts.popularity + parts.own + parts.past.sum(0)
    torch.testing.assert_close(total, scores)
    assert parts.past.shape == (len(past) or ITEMS, ITEMS)


def test_identity_projections_compare_the_profiles_themselves():
    users = torch.eye(7)[:USERS]
    torch.manual_seed(3)
    options = {"dim": DIM, "projections": "identity"}
    model = Recommender(USERS, users, tables()[1], **options).double().eval()
    asking = torch.eye(7, dtype=torch.float64)[:1]
    found = model(torch.tensor([1]), asking, PAST[:1], LENGTHS[:1])
    scores = model.item_profiles[PAST[0]] @ asking[0] / 7**0.5
    torch.testing.assert_close(found.weights[0, 0], scores.softmax(0))
    with pytest.raises(ValueError, match="same width and no last_item, got 1 heads, 3 and 7 col"):
        Recommender(USERS, *tables(), projections="identity")


def test_self_attention_lets_past_items_see_each_other():
    model = model_of(self_attention=1)
    first = model(torch.tensor([1]), PROFILES[:1], PAST[:1], LENGTHS[:1]).scores
    padded = torch.tensor([[4, 2, 9, 3]])
    torch.testing.assert_close(
        model(torch.tensor([1]), PROFILES[:1], padded, LENGTHS[:1]).scores, first
    )
    turned = model(torch.tensor([1]), PROFILES[:1], PAST[:1].flip(1), LENGTHS[:1]).scores
    assert not torch.allclose(turned, first)


def test_factorisation_is_a_product_and_a_bias():
    model = Factorisation(USERS, ITEMS, dim=3)
    torch.nn.init.normal_(model.popularity)
    none = torch.zeros(2, 0)
    found = model(torch.tensor([2, 0]), none, none, none).scores
    expected = model.item.weight @ model.user.weight[2] + model.popularity
    torch.testing.assert_close(found[0], expected)
