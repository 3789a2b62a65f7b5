"""Attention as functions: `attend`, and two formulas of another form."""

from regard.attention.attend import attend, attention_weight, explain
from regard.attention.dispatch import Attended
from regard.attention.features import attend_features
from regard.attention.linear import attend_linear
from regard.attention.prepared import Prepared, prepare

__all__ = [
    "Attended",
    "Prepared",
    "attend",
    "attend_features",
    "attend_linear",
    "attention_weight",
    "explain",
    "prepare",
]
