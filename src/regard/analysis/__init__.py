"""Attention in numbers: what heads do, whether they align, and whether it matters."""

from regard.analysis.ablation import (
    HeadChange,
    Pairs,
    ablate,
    head_importance,
    token_log_probabilities,
    word_importance,
)
from regard.analysis.alignment import AlignmentScore, alignment_error, links
from regard.analysis.alignment_heads import AlignmentHead, best_shift, rank_heads, shifted
from regard.analysis.by_words import by_words
from regard.analysis.diagnostics import HeadDiagnostics, diagnose
from regard.analysis.diagonal import diagonality, next_share, offset_share, previous_share
from regard.analysis.entropy import entropy
from regard.analysis.faithfulness import (
    Faithfulness,
    cross_attention,
    faithfulness,
    gradients,
    occlusion,
)
from regard.analysis.kendall import kendall
from regard.analysis.pharaoh import Gold, read_pharaoh, write_pharaoh
from regard.analysis.redundancy import redundancy, similarity
from regard.analysis.rollout import rollout
from regard.analysis.sink import sink_mass
from regard.analysis.words import merge_words, word_groups, word_labels

__all__ = [
    "AlignmentHead",
    "AlignmentScore",
    "Faithfulness",
    "Gold",
    "HeadChange",
    "HeadDiagnostics",
    "Pairs",
    "ablate",
    "alignment_error",
    "best_shift",
    "by_words",
    "cross_attention",
    "diagnose",
    "diagonality",
    "entropy",
    "faithfulness",
    "gradients",
    "head_importance",
    "kendall",
    "links",
    "merge_words",
    "next_share",
    "occlusion",
    "offset_share",
    "previous_share",
    "rank_heads",
    "read_pharaoh",
    "redundancy",
    "rollout",
    "shifted",
    "similarity",
    "sink_mass",
    "token_log_probabilities",
    "word_groups",
    "word_importance",
    "word_labels",
    "write_pharaoh",
]
