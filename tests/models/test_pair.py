"""The pair classifier: what it joins, what padding may not do."""

import pytest
import torch
import torch.nn.functional as F

from regard.models.pair import AlignedPairClassifier, PairClassifier, Phrases, Side

LEFT = torch.tensor([[4, 7, 5, 12, 8], [9, 4, 10, 6, 11]])  # backwards they are others
RIGHT = torch.tensor([[16, 4, 9, 5, 12, 7, 10], [6, 13, 8, 15, 4, 11, 5]])
LEFT_LENGTHS, RIGHT_LENGTHS = torch.tensor([5, 2]), torch.tensor([3, 7])


def model_of(**options) -> PairClassifier:
    torch.manual_seed(5)
    sizes = {"left_vocabulary": 13, "dim": 12, "heads": 3}
    return PairClassifier(3, **{**sizes, "right_vocabulary": 17, **options}).double().eval()


@pytest.mark.parametrize("attention", ["parallel", "alternating"])
def test_logits_are_made_of_both_contexts(attention):
    model = model_of(attention=attention)
    logits, found = model(LEFT, LEFT_LENGTHS, RIGHT, RIGHT_LENGTHS)
    one, two = found.left, found.right
    joined = torch.cat((one, two, one * two, (one - two).abs()), -1)
    hidden = F.gelu(F.linear(joined, model.hidden.weight, model.hidden.bias))
    torch.testing.assert_close(logits, F.linear(hidden, model.output.weight, model.output.bias))
    weights = found.right_map.dense()[:, 0]
    torch.testing.assert_close(weights.sum(1), torch.ones(2, dtype=torch.float64))
    assert not weights[0, 3:].any()
    assert (found.affinity is None) == (attention == "alternating")


@pytest.mark.parametrize("options", [{"layers": 0}, {"layers": 1}, {"layers": 0, "phrase": 3}])
def test_what_stands_in_the_padding_reaches_nothing(options):
    model = model_of(**options)
    first, _ = model(LEFT, LEFT_LENGTHS, RIGHT, RIGHT_LENGTHS)
    left, right = LEFT.clone(), RIGHT.clone()
    left[1, 2:], right[0, 3:] = 0, 0
    torch.testing.assert_close(model(left, LEFT_LENGTHS, right, RIGHT_LENGTHS)[0], first)
    right[0, 2] = 4 if right[0, 2] != 4 else 5
    assert not torch.allclose(model(left, LEFT_LENGTHS, right, RIGHT_LENGTHS)[0], first)


def test_the_right_side_may_be_cells():
    model = model_of(right_vocabulary=None, right_cells=7)
    cells = torch.randn(2, 11, 7, dtype=torch.float64)
    _, found = model(LEFT, LEFT_LENGTHS, cells, torch.tensor([11, 11]))
    assert found.affinity.shape == (2, 5, 11)
    with pytest.raises(ValueError, match="did you mean 'parallel'"):
        model_of(attention="paralel")
    with pytest.raises(ValueError, match="one glimpse, got glimpses=2"):
        model_of(attention="alternating", glimpses=2)
    with pytest.raises(ValueError, match="either tokens or float frames"):
        model_of(right_cells=7)


def test_glimpses_are_joined_side_by_side():
    model = model_of(glimpses=2, layers=0)
    logits, found = model(LEFT, LEFT_LENGTHS, RIGHT, RIGHT_LENGTHS)
    assert logits.shape == (2, 3)
    assert found.left.shape == found.right.shape == (2, 24)
    assert found.left_map.dense().shape == (2, 2, 5)
    joined = torch.cat(
        (found.left, found.right, found.left * found.right, (found.left - found.right).abs()), -1
    )
    hidden = F.gelu(F.linear(joined, model.hidden.weight, model.hidden.bias))
    torch.testing.assert_close(logits, F.linear(hidden, model.output.weight, model.output.bias))


# ------------------------------------------------------------------ aligned, Parikh et al. 2016


def aligned_of(**options) -> AlignedPairClassifier:
    torch.manual_seed(5)
    sizes = {"left_vocabulary": 13, "right_vocabulary": 17, "dim": 12, "heads": 3}
    return AlignedPairClassifier(3, **{**sizes, **options}).double().eval()


def test_each_word_is_compared_with_its_context_and_the_comparisons_are_averaged():
    model = aligned_of()
    logits, found = model(LEFT, LEFT_LENGTHS, RIGHT, RIGHT_LENGTHS)
    means = []
    for side, ids, lengths, contexts, layer in (
        (model.left, LEFT, LEFT_LENGTHS, found.left, model.left_comparison),
        (model.right, RIGHT, RIGHT_LENGTHS, found.right, model.right_comparison),
    ):
        rows = []
        for b in range(2):
            x = side.embedding.weight[ids[b, : lengths[b]]] * 12**0.5
            context = contexts[b, : lengths[b]]
            joined = torch.cat((x, context, x * context, (x - context).abs()), -1)
            rows.append(F.gelu(layer(joined)).mean(0))
        means.append(torch.stack(rows))
    hidden = F.gelu(model.hidden(torch.cat(means, -1)))
    torch.testing.assert_close(logits, model.output(hidden))


@pytest.mark.parametrize("options", [{}, {"layers": 1}, {"phrase": 3}])
def test_padding_reaches_no_comparison(options):
    model = aligned_of(**options)
    first, _ = model(LEFT, LEFT_LENGTHS, RIGHT, RIGHT_LENGTHS)
    left, right = LEFT.clone(), RIGHT.clone()
    left[1, 2:], right[0, 3:] = 0, 0
    torch.testing.assert_close(model(left, LEFT_LENGTHS, right, RIGHT_LENGTHS)[0], first)
    alone = model(LEFT[1:, :2], LEFT_LENGTHS[1:], RIGHT[1:], RIGHT_LENGTHS[1:])[0]
    torch.testing.assert_close(alone, first[1:])


def test_order_matters_to_self_attention_alone():
    flipped = LEFT[:1].flip(1), LEFT_LENGTHS[:1], RIGHT[:1], RIGHT_LENGTHS[:1]
    for layers in (0, 1):
        model = aligned_of(layers=layers)
        straight = model(LEFT[:1], *flipped[1:])[0]
        assert torch.allclose(model(*flipped)[0], straight) == (layers == 0)


def test_words_to_be_compared_start_small():
    torch.manual_seed(0)
    for start in (0.1, 1.0):
        side = Side(5000, None, 12, layers=0, heads=3, position="none", start=start)
        entries = side(torch.arange(5000)[None], torch.tensor([5000]))
        assert float(entries.detach().std()) == pytest.approx(start, rel=0.05)
    model = AlignedPairClassifier(2, left_vocabulary=5000, right_cells=7, dim=12)
    assert float(model.left.embedding.weight.detach().std()) == pytest.approx(
        0.1 / 12**0.5, rel=0.05
    )


# ------------------------------------------------------------------ phrases, Lu et al. 2016


def test_each_place_has_the_strongest_phrase_that_begins_there():
    torch.manual_seed(3)
    layer = Phrases(5, 3).double()
    words = torch.randn(2, 7, 5, dtype=torch.float64)
    found = layer(words)
    padded = F.pad(words, (0, 0, 0, 2))
    for b in range(2):
        for t in range(7):
            phrases = [
                torch.tanh(
                    torch.einsum("oik,ki->o", one.weight, padded[b, t : t + size]) + one.bias
                )
                for size, one in enumerate(layer.lengths, start=1)
            ]
            torch.testing.assert_close(found[b, t], torch.stack(phrases).amax(0))


def test_a_size_below_one_is_refused():
    with pytest.raises(ValueError, match="longest must be 1 or more, got 0"):
        Phrases(5, 0)
