"""Searching for what a model would write: greedily, with beams, or by drawing."""

from regard.decoding.greedy import greedy
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.limits import Limits

__all__ = ["Hypothesis", "Limits", "greedy"]
