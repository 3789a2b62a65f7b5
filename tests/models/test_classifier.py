"""The document classifier against the equations of Yang et al. 2016."""

import pytest
import torch

from regard.models.classifier import BidirectionalGRU, DocumentClassifier, NeighboringWords

B, S, W, VOCABULARY = 2, 3, 5, 17
WORDS = torch.randint(VOCABULARY, (B, S, W), generator=torch.Generator().manual_seed(3))
OF_SENTENCES = torch.tensor([[5, 2, 3], [4, 1, 0]])
OF_DOCUMENTS = torch.tensor([3, 2])


def model_of(**options) -> DocumentClassifier:
    torch.manual_seed(7)
    model = DocumentClassifier(VOCABULARY, 11, dim=7, hidden=3, **options).double().eval()
    for pooling in (model.attention.words, model.attention.sentences):
        torch.nn.init.normal_(pooling.query)  # they start at zero
    return model


def test_an_untrained_model_gives_the_words_of_a_sentence_equal_weights():
    model = DocumentClassifier(VOCABULARY, 11, dim=7, hidden=3)
    weights = model(WORDS, OF_SENTENCES, OF_DOCUMENTS).word_map.dense()[0, :, 0]
    for s, count in enumerate(OF_SENTENCES[0]):
        torch.testing.assert_close(weights[s, :count], torch.full((count,), 1 / count))


def test_with_presence_a_word_counts_once_however_often_it_occurs():
    once = torch.tensor([[[4, 9, 2], [7, 0, 0]]])
    often = torch.tensor([[[4, 9, 2, 9], [9, 7, 4, 4]]])
    sizes = (torch.tensor([[3, 1]]), torch.tensor([2])), (torch.tensor([[4, 4]]), torch.tensor([2]))
    options = {"dim": 7, "hidden": 3, "encoder": "none"}
    for presence in (True, False):  # before training, when attention is a plain mean
        torch.manual_seed(7)
        model = DocumentClassifier(VOCABULARY, 11, presence=presence, **options).double().eval()
        first, second = model(once, *sizes[0]), model(often, *sizes[1])
        mean = model.output(model.embedding.weight[[4, 9, 2, 7]].mean(0))
        assert torch.allclose(second.logits[0], mean) == presence
        if presence:
            torch.testing.assert_close(first.logits, second.logits)


def test_with_presence_padding_and_dropped_words_are_not_counted():
    model = model_of(encoder="none", presence=True, word_dropout=0.5)
    first = model(WORDS, OF_SENTENCES, OF_DOCUMENTS).logits
    padded = torch.nn.functional.pad(WORDS, (0, 2, 0, 1), value=int(WORDS[0, 0, 0]))
    lengths = torch.nn.functional.pad(OF_SENTENCES, (0, 1), value=3)
    torch.testing.assert_close(model(padded, lengths, OF_DOCUMENTS).logits, first)
    model.train()
    assert model(WORDS, OF_SENTENCES, OF_DOCUMENTS).logits.isfinite().all()


def test_the_scale_is_a_factor_of_the_embeddings():
    one, three = model_of(encoder="none"), model_of(encoder="none", scale=3.0)
    one.embedding.weight.data *= 3
    expected = one(WORDS, OF_SENTENCES, OF_DOCUMENTS).logits
    torch.testing.assert_close(three(WORDS, OF_SENTENCES, OF_DOCUMENTS).logits, expected)


def pooled(x, pool):
    """Eq. 5-7 for one sequence (L, dim)."""
    scores = torch.tanh(x @ pool.projection.weight.T + pool.projection.bias) @ pool.query[0]
    weights = scores.softmax(0)
    return weights, weights @ x


def test_it_is_the_papers_network_written_out():
    model = model_of()
    found = model(WORDS, OF_SENTENCES, OF_DOCUMENTS)
    layer = model.attention
    for b in range(B):
        parts = []
        for s in range(OF_DOCUMENTS[b]):
            ids = WORDS[b, s, : OF_SENTENCES[b, s]]
            states, _ = layer.word_encoder.gru(model.embedding.weight[ids][None])
            weights, sentence = pooled(states[0], layer.words)
            got = found.word_map.dense()[b, s, 0]
            torch.testing.assert_close(got[: len(ids)], weights)
            assert not got[len(ids) :].any()
            parts.append(sentence)
        states, _ = layer.sentence_encoder.gru(torch.stack(parts)[None])
        weights, document = pooled(states[0], layer.sentences)
        torch.testing.assert_close(found.sentence_map.dense()[b, 0, : len(parts)], weights)
        torch.testing.assert_close(found.logits[b], model.output(document))


def test_without_an_encoder_the_order_of_words_and_sentences_does_not_matter():
    model = model_of(encoder="none")
    first = model(WORDS[:1], torch.tensor([[5, 5, 5]]), torch.tensor([3])).logits
    turned = WORDS[:1].flip(1, 2)
    second = model(turned, torch.tensor([[5, 5, 5]]), torch.tensor([3])).logits
    torch.testing.assert_close(first, second)
    window = model_of(encoder="window")
    apart = [
        window(x, torch.tensor([[5, 5, 5]]), torch.tensor([3])).logits for x in (WORDS[:1], turned)
    ]
    assert not torch.allclose(*apart)


def test_what_stands_in_the_padding_reaches_nothing():
    changed = WORDS.clone()
    changed[0, 1, 2:] = 1
    changed[1, 2] = 2
    for encoder in ("gru", "window", "none"):
        model = model_of(encoder=encoder)
        first = model(WORDS, OF_SENTENCES, OF_DOCUMENTS).logits
        torch.testing.assert_close(model(changed, OF_SENTENCES, OF_DOCUMENTS).logits, first)


def test_a_window_is_each_word_with_its_neighbours():
    torch.manual_seed(2)
    layer, x = NeighboringWords(3).double(), torch.randn(1, 5, 3, dtype=torch.float64)
    got = layer(x, torch.tensor([5]))
    zero = torch.zeros(3, dtype=torch.float64)
    for t in range(5):
        left = x[0, t - 1] if t else zero
        right = x[0, t + 1] if t < 4 else zero
        near = torch.cat((left, x[0, t], right))
        expected = x[0, t] + torch.tanh(layer.projection(near))
        torch.testing.assert_close(got[0, t], expected)


def test_empty_sequences_stay_zero_in_both_directions():
    torch.manual_seed(5)
    layer, x = BidirectionalGRU(3, 2), torch.randn(3, 7, 3)
    found = layer(x, torch.tensor([4, 0, 7]))
    assert not found[1].any()
    assert not found[0, 4:].any()
    torch.testing.assert_close(found[:1, :4], layer.gru(x[:1, :4])[0])
    assert not layer(x, torch.tensor([0, 0, 0])).any()


def test_a_lost_word_is_lost_wherever_it_stands_and_the_others_keep_their_order():
    model = model_of(word_dropout=0.5)
    torch.manual_seed(11)
    kept, lengths = model._drop_words(WORDS, OF_SENTENCES)
    for b in range(B):
        real = [WORDS[b, s, : OF_SENTENCES[b, s]].tolist() for s in range(S)]
        left = [kept[b, s, : lengths[b, s]].tolist() for s in range(S)]
        there = {word for part in left for word in part}
        assert left == [[word for word in part if word in there] for part in real]
    assert 0 < lengths.sum() < OF_SENTENCES.sum()
    model.train()
    assert model(WORDS, OF_SENTENCES, OF_DOCUMENTS).logits.isfinite().all()


def test_a_wrong_encoder_or_shape_raises_a_helpful_error():
    with pytest.raises(ValueError, match="did you mean 'gru'"):
        model_of(encoder="grü")
    with pytest.raises(ValueError, match=r"token ids \(documents, sentences, words\)"):
        model_of()(WORDS[0], OF_SENTENCES, OF_DOCUMENTS)
