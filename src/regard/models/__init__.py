"""Whole models: sequence to sequence, recurrent and Transformer, and the language model."""

from regard.models.aligner import ALIGNERS, GlobalAligner, LocalAligner, find_aligner
from regard.models.bahdanau import Bahdanau, Maxout
from regard.models.build import KINDS, PRESETS, build, options_of
from regard.models.decoder import Bridge, Peeky, Plain, State
from regard.models.embedding import Frames, Tokens
from regard.models.gnmt import GNMT
from regard.models.language import LanguageModel
from regard.models.luong import Attentional, Concatenation, Luong
from regard.models.memory import Memory
from regard.models.recurrent import Encoder, Recurrent
from regard.models.seq2seq import AttentionSeq2Seq, Seq2Seq
from regard.models.stack import Stack, StackState
from regard.models.summary import parameters, summary
from regard.models.transformer import Transformer

__all__ = [
    "ALIGNERS",
    "GNMT",
    "KINDS",
    "PRESETS",
    "AttentionSeq2Seq",
    "Attentional",
    "Bahdanau",
    "Bridge",
    "Concatenation",
    "Encoder",
    "Frames",
    "GlobalAligner",
    "LanguageModel",
    "LocalAligner",
    "Luong",
    "Maxout",
    "Memory",
    "Peeky",
    "Plain",
    "Recurrent",
    "Seq2Seq",
    "Stack",
    "StackState",
    "State",
    "Tokens",
    "Transformer",
    "build",
    "find_aligner",
    "options_of",
    "parameters",
    "summary",
]
