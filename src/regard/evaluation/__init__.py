"""How good written texts are, how sure that is, and what is wrong with them."""

from regard.evaluation.edits import Edit, distance, edits
from regard.evaluation.errors import Mistake, confusions, worst
from regard.evaluation.interval import Figure, resampled
from regard.evaluation.likelihood import Predicted, predicted
from regard.evaluation.overlap import Overlap, bleu, chrf
from regard.evaluation.rates import Rate, error_rate, exact_match

__all__ = [
    "Edit",
    "Figure",
    "Mistake",
    "Overlap",
    "Predicted",
    "Rate",
    "bleu",
    "chrf",
    "confusions",
    "distance",
    "edits",
    "error_rate",
    "exact_match",
    "predicted",
    "resampled",
    "worst",
]
