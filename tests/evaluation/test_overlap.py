"""BLEU and chrF are sacrebleu's own numbers, and predictions are the model's own."""

import math

import pytest
import sacrebleu
import torch

from regard.data import collate
from regard.evaluation import bleu, chrf, predicted
from regard.models import build

WRITTEN = ["a man rides a horse .", "two dogs play in the snow", "a child sleeps"]
WANTED = [
    ["a man is riding a horse ."],
    ["two dogs are playing in snow", "dogs play in the snow"],
    ["the child sleeps"],
]


def test_scores_are_those_of_sacrebleu():
    streams = [[own[0] for own in WANTED], [own[1] if len(own) > 1 else None for own in WANTED]]
    found = bleu(WRITTEN, WANTED, samples=0)
    assert found.figure.value == pytest.approx(sacrebleu.corpus_bleu(WRITTEN, streams).score)
    assert found.signature.startswith("nrefs:")
    assert "tok:13a" in found.signature
    found = chrf(WRITTEN, WANTED, samples=0)
    assert found.figure.value == pytest.approx(sacrebleu.corpus_chrf(WRITTEN, streams).score)


def test_the_interval_is_around_the_score():
    figure = bleu(WRITTEN * 20, WANTED * 20, samples=100).figure
    assert figure.low < figure.value < figure.high
    assert figure.low >= 0.0
    assert figure.high <= 100.0


def test_how_is_part_of_the_signature():
    upper = [text.upper() for text in WRITTEN]
    assert bleu(upper, WANTED, samples=0, lowercase=True).figure.value > 10
    assert "case:lc" in bleu(upper, WANTED, samples=0, lowercase=True).signature


def test_nothing_has_no_score():
    with pytest.raises(ValueError, match="one text or more"):
        bleu([], [])


def test_predictions_are_those_of_a_pair_alone():
    torch.manual_seed(1)
    model = build("luong", source_vocabulary=13, target_vocabulary=11, embedding=5, hidden=7)
    pairs = [([5, 7, 4], [6, 8]), ([9], [5, 5, 7, 4])]
    together = predicted(model, [collate(pairs)])
    loss = right = 0.0
    model.eval()
    for source, target in pairs:
        inputs, wanted = torch.tensor([[1, *target]]), torch.tensor([*target, 2])
        logits = model.output(model(torch.tensor([source]), None, inputs))[0].detach()
        loss -= float(torch.log_softmax(logits, -1)[range(len(wanted)), wanted].sum())
        right += float((logits.argmax(-1) == wanted).sum())
    assert together.tokens == 8
    assert together.loss == pytest.approx(loss / 8, rel=1e-5)
    assert together.accuracy == pytest.approx(right / 8)
    assert together.perplexity == pytest.approx(math.exp(loss / 8), rel=1e-5)
