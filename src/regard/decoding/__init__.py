"""Searching for what a model would write: greedily, with beams, or by drawing."""

from regard.decoding.batched import batched
from regard.decoding.beam import beam
from regard.decoding.greedy import greedy
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.limits import Limits
from regard.decoding.sample import sample

__all__ = ["Hypothesis", "Limits", "batched", "beam", "greedy", "sample"]
