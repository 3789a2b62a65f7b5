"""Metrics of predicted texts and classes, their intervals, and the errors behind them."""

from regard.evaluation.classification import (
    ClassificationReport,
    ClassScores,
    WrongClass,
    evaluate_classes,
)
from regard.evaluation.consensus import consensus
from regard.evaluation.edits import Edit, Mistake, confusions, distance, edits, worst
from regard.evaluation.metrics import (
    CorpusScore,
    Metric,
    Rate,
    bleu,
    bootstrap,
    chrf,
    error_rate,
    exact_match,
)
from regard.evaluation.translation import (
    Likelihood,
    TranslationReport,
    evaluate_translator,
    teacher_forced,
)

__all__ = [
    "ClassScores",
    "ClassificationReport",
    "CorpusScore",
    "Edit",
    "Likelihood",
    "Metric",
    "Mistake",
    "Rate",
    "TranslationReport",
    "WrongClass",
    "bleu",
    "bootstrap",
    "chrf",
    "confusions",
    "consensus",
    "distance",
    "edits",
    "error_rate",
    "evaluate_classes",
    "evaluate_translator",
    "exact_match",
    "teacher_forced",
    "worst",
]
