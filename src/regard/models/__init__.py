"""Whole models: sequence to sequence, recurrent and Transformer, and the language model."""

from regard.models.aligner import ALIGNERS, GlobalAligner, LocalAligner, find_aligner
from regard.models.bahdanau import Bahdanau
from regard.models.bridge import Bridge
from regard.models.build import KINDS, build
from regard.models.embedding import Frames, Tokens
from regard.models.encoder import Encoder
from regard.models.gnmt import GNMT
from regard.models.join import Attentional, Concatenation, Maxout
from regard.models.language import LanguageModel, LanguageState
from regard.models.luong import Luong
from regard.models.memory import Maps, Memory
from regard.models.plain import Peeky, Plain
from regard.models.presets import PRESETS
from regard.models.recurrent import Recurrent
from regard.models.seq2seq import AttentionSeq2Seq, Seq2Seq
from regard.models.stack import DecoderStack, EncoderStack
from regard.models.state import State
from regard.models.summary import parameters, summary
from regard.models.transformer import Transformer, TransformerState

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
    "DecoderStack",
    "Encoder",
    "EncoderStack",
    "Frames",
    "GlobalAligner",
    "LanguageModel",
    "LanguageState",
    "LocalAligner",
    "Luong",
    "Maps",
    "Maxout",
    "Memory",
    "Peeky",
    "Plain",
    "Recurrent",
    "Seq2Seq",
    "State",
    "Tokens",
    "Transformer",
    "TransformerState",
    "build",
    "find_aligner",
    "parameters",
    "summary",
]
