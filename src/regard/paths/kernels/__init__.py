"""Attention without a fused torch operator: numba loops for the CPU, or the formula."""

from .additive import additive_attention, additive_scores
from .compile import available, without_kernels
from .featurewise import feature_attention

__all__ = [
    "additive_attention",
    "additive_scores",
    "available",
    "feature_attention",
    "without_kernels",
]
