"""Attention that torch has no fused operator for: numba loops on the CPU, with twins in torch."""

from .additive import additive_attention, additive_scores
from .compile import available
from .featurewise import feature_attention

__all__ = ["additive_attention", "additive_scores", "available", "feature_attention"]
