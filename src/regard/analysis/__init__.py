"""Attention in numbers: what heads do, whether they align, and whether they matter."""

from regard.analysis.ablation import (
    HeadChange,
    Pairs,
    ablate,
    head_importance,
    token_log_probabilities,
    word_importance,
)
from regard.analysis.alignment import (
    AlignmentHead,
    AlignmentScore,
    alignment_error,
    links,
    rank_heads,
    shifted,
)
from regard.analysis.alignment_file import (
    Gold,
    read_alignments,
    read_naacl,
    read_pharaoh,
    write_pharaoh,
)
from regard.analysis.attribution import METHODS, attribute
from regard.analysis.check import Finding, Report, check
from regard.analysis.difference import HeadDifference, head_differences
from regard.analysis.faithfulness import (
    Faithfulness,
    MethodComparison,
    MethodScore,
    compare_methods,
    cross_attention,
    faithfulness,
    gradients,
    kendall,
    occlusion,
)
from regard.analysis.heads import (
    HeadDiagnostics,
    HeadSums,
    diagnose,
    diagonality,
    entropy,
    offset_share,
    redundancy,
    rollout,
    similarity,
    sink_mass,
)
from regard.analysis.patterns import HeadPattern, head_patterns
from regard.analysis.steps import Steps, attention_steps
from regard.analysis.why import Claim, Decision, Why, explain_decision
from regard.analysis.words import by_words, merge_words, word_groups, word_labels

__all__ = [
    "METHODS",
    "AlignmentHead",
    "AlignmentScore",
    "Claim",
    "Decision",
    "Faithfulness",
    "Finding",
    "Gold",
    "HeadChange",
    "HeadDiagnostics",
    "HeadDifference",
    "HeadPattern",
    "HeadSums",
    "MethodComparison",
    "MethodScore",
    "Pairs",
    "Report",
    "Steps",
    "Why",
    "ablate",
    "alignment_error",
    "attention_steps",
    "attribute",
    "by_words",
    "check",
    "compare_methods",
    "cross_attention",
    "diagnose",
    "diagonality",
    "entropy",
    "explain_decision",
    "faithfulness",
    "gradients",
    "head_differences",
    "head_importance",
    "head_patterns",
    "kendall",
    "links",
    "merge_words",
    "occlusion",
    "offset_share",
    "rank_heads",
    "read_alignments",
    "read_naacl",
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
