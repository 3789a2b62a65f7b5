"""Metrics of classes: against scikit-learn, in cases worked out by hand, and at the extremes."""

import numpy as np
import pytest

from regard.evaluation import evaluate_classes

CLASSES = ["고양이", "dog", "bird"]


def random_case(seed, count=307, classes=3):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    logits = rng.normal(size=(count, classes))
    logits[range(count), labels] += 1.0
    shares = np.exp(logits)
    return shares / shares.sum(1, keepdims=True), labels


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_scores_are_those_of_scikit_learn(seed):
    from sklearn import metrics

    probabilities, labels = random_case(seed)
    predicted = probabilities.argmax(1)
    report = evaluate_classes(probabilities, labels, CLASSES)
    precision, recall, f1, count = metrics.precision_recall_fscore_support(labels, predicted)
    assert (report.confusion == metrics.confusion_matrix(labels, predicted)).all()
    for i, name in enumerate(CLASSES):
        scores = report.scores[name]
        values = [scores.precision.value, scores.recall.value, scores.f1.value]
        np.testing.assert_allclose(values, [precision[i], recall[i], f1[i]])
        assert scores.examples == count[i]
    found = {name: metric.value for name, metric in report.metrics.items()}
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(labels, predicted))
    assert found["macro_f1"] == pytest.approx(f1.mean())
    assert found["loss"] == pytest.approx(metrics.log_loss(labels, probabilities))


def test_intervals_hold_the_value_and_are_those_of_resampled_examples():
    probabilities, labels = random_case(5)
    report = evaluate_classes(probabilities, labels, CLASSES)
    every = [*report.metrics.values(), *(m for s in report.scores.values() for m in s[:3])]
    assert all(metric.low < metric.value < metric.high for metric in every)
    rng, predicted, recalls = np.random.default_rng(7), probabilities.argmax(1), []
    for _ in range(1000):
        some = rng.integers(0, len(labels), len(labels))
        recalls.append((predicted[some] == 0)[labels[some] == 0].mean())
    expected = np.quantile(recalls, (0.025, 0.975))
    interval = report.scores["고양이"].recall
    np.testing.assert_allclose((interval.low, interval.high), expected, atol=0.015)


def test_the_worst_are_those_whose_true_class_is_least_probable():
    probabilities = np.array([[0.6, 0.3, 0.1], [0.5, 0.49, 0.01], [0.1, 0.1, 0.8], [0.9, 0.1, 0]])
    texts = ["one", "two", "three", "four"]
    report = evaluate_classes(probabilities, [2, 1, 2, 2], CLASSES, texts=texts, shown=2)
    assert [wrong.text for wrong in report.worst] == ["four", "one"]
    assert report.worst[0][:4] == (3, "bird", "고양이", 0.9)
    assert np.isfinite(report.metrics["loss"].value)  # of a probability of 0
    assert report.as_dict()["worst"][1]["probability"] == 0.6


def test_a_class_that_does_not_occur_scores_zero_and_is_not_in_the_mean():
    report = evaluate_classes(np.array([[0.9, 0.1, 0.0]] * 3), [0, 0, 0], CLASSES)
    assert report.scores["bird"].f1 == (0.0, 0.0, 0.0)
    assert report.metrics["macro_f1"].value == 1.0
    assert report.worst == []


@pytest.mark.parametrize("shape", [(0, 3), (2, 2), (3, 3)])
def test_no_examples_or_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match=r"expected probabilities of shape \(\d, 3\)"):
        evaluate_classes(np.ones(shape), [0] * (shape[0] and 2), CLASSES)
