"""Hierarchical attention against Yang et al. 2016, eq. 5-10, written out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import regard
from regard.layers import AttentionPooling, HierarchicalAttention

B, S, W, D, H = 3, 5, 7, 11, 13
WORDS = torch.tensor([[7, 2, 1, 3, 5], [4, 0, 6, 0, 0], [0, 0, 0, 0, 0]])
SENTENCES = torch.tensor([5, 3, 0])


def make(**options):
    torch.manual_seed(0)
    return HierarchicalAttention(D, H, **options).double()


def documents():
    torch.manual_seed(1)
    return torch.randn(B, S, W, D, dtype=torch.float64)


def pooled(rows, pooling):
    """Eq. 5-7 for a list of vectors."""
    if not rows:
        return torch.zeros(pooling.dim, dtype=torch.float64), torch.zeros(0, dtype=torch.float64)
    scores = []
    for h in rows:
        u = torch.tanh(pooling.projection.weight @ h + pooling.projection.bias)
        scores.append(torch.dot(u, pooling.query[0]))
    exponents = [score.exp() for score in scores]
    weights = torch.stack([e / sum(exponents) for e in exponents])
    return sum(a * h for a, h in zip(weights, rows, strict=True)), weights


class GRU(nn.Module):
    """The paper's encoder: a bidirectional GRU that stops where a sequence ends."""

    def __init__(self, dim, width):
        super().__init__()
        self.gru = nn.GRU(dim, width, batch_first=True, bidirectional=True)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(
            x, lengths.clamp(min=1), batch_first=True, enforce_sorted=False
        )
        return pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=x.shape[1])[
            0
        ]


def test_it_is_the_equations_of_the_paper():
    layer, x = make(), documents()
    found = layer(x, word_lengths=WORDS, sentence_lengths=SENTENCES)
    word_map, sentence_map = found.word_map.dense(), found.sentence_map.dense()
    assert word_map.shape == (B, S, 1, W)
    assert sentence_map.shape == (B, 1, S)
    for b in range(B):
        sentences, real = [], []
        for s in range(SENTENCES[b]):
            vector, weights = pooled(list(x[b, s, : WORDS[b, s]]), layer.words)
            expected = torch.zeros(W, dtype=torch.float64)
            expected[: len(weights)] = weights
            torch.testing.assert_close(word_map[b, s, 0], expected)
            if WORDS[b, s]:
                sentences.append(vector)
                real.append(s)
        document, weights = pooled(sentences, layer.sentences)
        expected = torch.zeros(S, dtype=torch.float64)
        expected[real] = weights
        torch.testing.assert_close(sentence_map[b, 0], expected)
        torch.testing.assert_close(found.document[b], document)


def test_a_prior_multiplies_the_weights_before_they_are_normalized():
    layer, x = make(), documents()
    prior = torch.rand(B, S, W, dtype=torch.float64) + 0.1
    given = {"word_lengths": WORDS, "sentence_lengths": SENTENCES}
    found = layer(x, **given, prior=prior)
    real = torch.arange(W) < WORDS.unsqueeze(-1)
    words = layer(x, **given).word_map.dense()[:, :, 0] * prior  # (B, S, W)
    words = words / words.sum(-1, keepdim=True).clamp(min=1e-9)
    torch.testing.assert_close(found.word_map.dense()[:, :, 0], words)
    sentences = torch.einsum("bsw,bswd->bsd", words, x)
    keys = torch.tanh(layer.sentences.projection(sentences))
    weights = (keys @ layer.sentences.query[0]).exp() * (prior * real).sum(-1)
    weights = weights * (torch.arange(S) < SENTENCES.unsqueeze(-1)) * (WORDS > 0)
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)
    torch.testing.assert_close(found.sentence_map.dense()[:, 0], weights)
    torch.testing.assert_close(found.document, torch.einsum("bs,bsd->bd", weights, sentences))


def test_what_a_prior_holds_in_the_padding_does_not_matter():
    layer, x = make(), documents()
    prior = torch.rand(B, S, W, dtype=torch.float64) + 0.1
    given = {"word_lengths": WORDS, "sentence_lengths": SENTENCES}
    hidden = torch.arange(W) >= WORDS.unsqueeze(-1)
    hidden |= (torch.arange(S) >= SENTENCES.unsqueeze(-1)).unsqueeze(-1)
    expected = layer(x, **given, prior=prior).document
    for rubbish in (0.0, -1.0, torch.nan, torch.inf):
        dirty = prior.masked_fill(hidden, rubbish)
        assert layer(x, **given, prior=dirty).document.equal(expected)


def test_a_word_with_a_prior_of_zero_is_left_out():
    layer, x = make(), documents()
    prior = torch.ones(B, S, W, dtype=torch.float64)
    prior[:, :, -1], prior[:, -1] = 0.0, 0.0
    found = layer(x, prior=prior)
    words, sentences = torch.full((B, S), W - 1), torch.full((B,), S - 1)
    expected = layer(x, word_lengths=words, sentence_lengths=sentences)
    torch.testing.assert_close(found.document, expected.document)
    nothing = layer(x, prior=torch.zeros_like(prior)).document
    assert nothing.equal(torch.zeros_like(nothing))


def test_without_lengths_everything_is_real():
    layer, x = make(), documents()
    found = layer(x)
    full = layer(x, word_lengths=torch.full((B, S), W), sentence_lengths=torch.full((B,), S))
    assert found.document.equal(full.document)
    torch.testing.assert_close(
        found.word_map.dense().sum(-1), torch.ones(B, S, 1, dtype=torch.float64)
    )


def test_a_document_is_what_it_is_alone_and_without_padding():
    layer, x = make(), documents()
    found = layer(x, word_lengths=WORDS, sentence_lengths=SENTENCES)
    alone = layer(x[1:2, :3, :6], word_lengths=WORDS[1:2, :3], sentence_lengths=SENTENCES[1:2])
    torch.testing.assert_close(found.document[1:2], alone.document)
    torch.testing.assert_close(found.word_map.dense()[1:2, :3, :, :6], alone.word_map.dense())


def test_what_padding_holds_reaches_neither_output_nor_gradient():
    layer, x = make(), documents()
    hidden = torch.arange(W) >= WORDS.unsqueeze(-1)
    hidden |= (torch.arange(S) >= SENTENCES.unsqueeze(-1)).unsqueeze(-1)

    def run(words):
        words = words.clone().requires_grad_()
        found = layer(words, word_lengths=WORDS, sentence_lengths=SENTENCES)
        gradients = torch.autograd.grad(found.document.square().sum(), [words, *layer.parameters()])
        return found, gradients

    clean, expected = run(x)
    for rubbish in (torch.nan, torch.inf, 1e300):
        dirty, gradients = run(x.masked_fill(hidden.unsqueeze(-1), rubbish))
        assert dirty.document.equal(clean.document)
        assert dirty.word_map.dense().equal(clean.word_map.dense())
        assert dirty.sentence_map.dense().equal(clean.sentence_map.dense())
        assert all(map(torch.equal, gradients, expected))
    assert not expected[0][hidden].any()


def test_empty_sentences_and_documents_give_zeros():
    layer, x = make(), documents()
    lengths = torch.tensor([[3, 0, 2, 0, 1], [0, 0, 0, 0, 0], [4, 4, 4, 4, 4]])
    found = layer(x, word_lengths=lengths, sentence_lengths=torch.tensor([5, 5, 0]))
    assert not found.document[1:].any()
    assert not found.word_map.dense()[1:].any()
    assert not found.sentence_map.dense()[1:].any()
    weights = found.sentence_map.dense()[0, 0]
    assert weights[[1, 3]].eq(0).all()
    assert weights[[0, 2, 4]].gt(0).all()


def test_no_sentences_at_all_give_zeros():
    layer = make()
    found = layer(torch.randn(2, 0, W, D, dtype=torch.float64))
    assert found.document.equal(torch.zeros(2, D, dtype=torch.float64))


@settings(max_examples=12)
@given(st.data())
def test_any_raggedness_agrees_with_one_document_at_a_time(data):
    sentences = data.draw(st.lists(st.integers(0, S), min_size=2, max_size=3))
    words = [data.draw(st.lists(st.integers(0, W), min_size=S, max_size=S)) for _ in sentences]
    layer = make()
    x = torch.randn(len(sentences), S, W, D, dtype=torch.float64)
    found = layer(x, word_lengths=torch.tensor(words), sentence_lengths=torch.tensor(sentences))
    for b, count in enumerate(sentences):
        real = [s for s in range(count) if words[b][s]]
        vectors = [pooled(list(x[b, s, : words[b][s]]), layer.words)[0] for s in real]
        torch.testing.assert_close(found.document[b], pooled(vectors, layer.sentences)[0])


def test_encoders_stand_between_the_levels():
    torch.manual_seed(2)
    layer = HierarchicalAttention(
        D,
        H,
        word_encoder=GRU(D, 2),
        word_dim=4,
        sentence_encoder=GRU(4, 3),
        sentence_dim=6,
    ).double()
    x = documents()
    found = layer(x, word_lengths=WORDS, sentence_lengths=SENTENCES)
    assert found.document.shape == (B, 6)
    b, sentences = 0, []
    for s in range(S):
        h, _ = layer.word_encoder.gru(x[b, s : s + 1, : WORDS[b, s]])
        sentences.append(pooled(list(h[0]), layer.words)[0])
    h, _ = layer.sentence_encoder.gru(torch.stack(sentences).unsqueeze(0))
    document, weights = pooled(list(h[0]), layer.sentences)
    torch.testing.assert_close(found.document[b], document)
    torch.testing.assert_close(found.sentence_map[b, 0, :], weights)
    assert not found.document[2].any()
    parameters = dict(layer.named_parameters())
    assert any(name.startswith("word_encoder.gru") for name in parameters)


def test_patches_make_regions_and_regions_an_image():
    image = torch.randn(2, 4 * 4, 3 * 3, D)  # 16 regions of 9 patches
    found = HierarchicalAttention(D)(image)
    assert found.document.shape == (2, D)
    assert found.word_map.shape == (2, 16, 1, 9)


def test_autocast_keeps_the_dtype_of_the_words():
    layer, x = make().float(), documents().float()
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x, word_lengths=WORDS).document.dtype == torch.float32


def test_gradients_pass_gradcheck():
    layer = make()
    x = documents()[:, :3, :3].requires_grad_()
    parameters = list(layer.parameters())
    words = WORDS[:, :3].clamp(max=3)

    def run(x, *_):
        return layer(x, word_lengths=words, sentence_lengths=SENTENCES.clamp(max=3)).document

    assert torch.autograd.gradcheck(run, (x, *parameters), fast_mode=True)


def test_documents_of_a_batch_do_not_influence_each_other():
    torch.manual_seed(3)
    layer = HierarchicalAttention(17)
    x = torch.randn(4, 11, 37, 17)
    words, sentences = torch.randint(1, 38, (4, 11)), torch.tensor([11, 3, 7, 2])
    before = layer(x, word_lengths=words, sentence_lengths=sentences)
    for rubbish in (torch.randn(11, 37, 17), torch.full((11, 37, 17), 1e6)):
        x[1] = rubbish
        after = layer(x, word_lengths=words, sentence_lengths=sentences)
        assert after.document[[0, 2, 3]].equal(before.document[[0, 2, 3]])
        before = after


def test_the_weights_of_both_levels_are_named_after_them():
    assert set(make().state_dict()) == {
        f"{level}.{name}"
        for level in ("words", "sentences")
        for name in ("query", "projection.weight", "projection.bias")
    }


def test_pooling_takes_lengths_booleans_and_masks():
    torch.manual_seed(0)
    pool, x = AttentionPooling(D, H), torch.randn(B, W, D)
    count = torch.tensor([7, 3, 0])
    expected = pool(x, mask=count)
    assert pool(x, mask=torch.arange(W) < count.unsqueeze(-1)).equal(expected)
    assert pool(x, mask=regard.lengths(count)).equal(expected)
    alone = pool(x[1, :3])
    torch.testing.assert_close(expected[1], alone)
    gaps = torch.arange(W).expand(B, W) % 2 == 0
    torch.testing.assert_close(pool(x, mask=gaps), pool(x[:, ::2]))


def test_the_map_of_a_pooling_makes_its_output():
    torch.manual_seed(0)
    pool, x = AttentionPooling(D), torch.randn(B, W, D)
    output, map = pool(x, mask=torch.tensor([7, 3, 0]), return_map=True)
    torch.testing.assert_close((map.dense() @ x).squeeze(-2), output)
    assert output.equal(pool(x, mask=torch.tensor([7, 3, 0])))


def test_a_bad_configuration_raises_a_helpful_error():
    with pytest.raises(ValueError, match="dim must be 1 or more, got 0"):
        HierarchicalAttention(0)
    with pytest.raises(ValueError, match="word_dim=4 needs a word_encoder"):
        HierarchicalAttention(3, word_dim=4)
    with pytest.raises(ValueError, match="sentence_dim=4 needs a sentence_encoder"):
        HierarchicalAttention(3, sentence_dim=4)


def test_bad_inputs_raises_a_helpful_error():
    layer, x = make(), documents()
    with pytest.raises(ValueError, match=r"\(B, S, W, 11\), got \(3, 5, 7, 10\)"):
        layer(x[..., :10])
    with pytest.raises(ValueError, match=r"word_lengths should be \(3, 5\)"):
        layer(x, word_lengths=WORDS.T)
    with pytest.raises(ValueError, match="word_lengths should be from 0 to 7"):
        layer(x, word_lengths=WORDS + 1)
    with pytest.raises(ValueError, match="sentence_lengths should be from 0 to 5"):
        layer(x, sentence_lengths=SENTENCES - 1)
    with pytest.raises(ValueError, match=r"prior should be \(3, 5, 7\) .* got \(3, 5\)"):
        layer(x, prior=torch.ones(B, S))
    for wrong in (-1.0, torch.nan):
        with pytest.raises(ValueError, match="prior should be at least 0; it has"):
            layer(x, prior=torch.ones(B, S, W).index_fill(2, torch.tensor([1]), wrong))
    with pytest.raises(TypeError, match="word_lengths should be integers"):
        layer(x, word_lengths=WORDS > 0)
    wrong = HierarchicalAttention(D, word_encoder=lambda x, lengths: x[..., :5]).double()
    with pytest.raises(ValueError, match=r"word_encoder should return .* got \(15, 7, 5\)"):
        wrong(x)
    pool = AttentionPooling(D).double()
    with pytest.raises(ValueError, match=r"how many positions are real, should be \(3, 5\)"):
        pool(x, mask=SENTENCES)
    with pytest.raises(TypeError, match="mask should be bool"):
        pool(x, mask=torch.ones(B, S, W))
    with pytest.raises(ValueError, match="does not fit"):
        pool(x[0], mask=regard.lengths([3, 3]))
