"""Decoding: greedy search, beam search and sampling."""

from regard.decoding.batched import batched
from regard.decoding.beam import beam
from regard.decoding.greedy import greedy
from regard.decoding.sample import sample
from regard.decoding.search import Hypothesis, Limits, OnStep

__all__ = ["Hypothesis", "Limits", "OnStep", "batched", "beam", "greedy", "sample"]
