"""Models by name, from flat keyword arguments such as a configuration file holds."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from regard.core.names import did_you_mean
from regard.models.aligner import find_aligner
from regard.models.bahdanau import Bahdanau
from regard.models.embedding import Tokens, reader
from regard.models.encoder import Encoder
from regard.models.gnmt import GNMT
from regard.models.join import JOINS
from regard.models.language import LanguageModel
from regard.models.luong import Luong
from regard.models.plain import Peeky, Plain
from regard.models.presets import PRESETS
from regard.models.seq2seq import AttentionSeq2Seq, Seq2Seq
from regard.models.transformer import Transformer


def bahdanau(
    source_vocabulary: int | None,
    target_vocabulary: int,
    *,
    frames: int | None = None,
    embedding: int = 256,
    hidden: int = 256,
    layers: int = 1,
    cell: str = "gru",
    bidirectional: str = "all",
    residual: bool = False,
    score: str | Callable = "additive",
    attention: str = "global",
    window: int | None = None,
    width: int | None = None,
    tie: bool = False,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
) -> Seq2Seq:
    """A recurrent model with Bahdanau's decoder."""
    sizes: dict[str, Any] = {"layers": layers, "residual": residual, "dropout": dropout}
    source = reader(source_vocabulary, frames, embedding, dropout=dropout)
    encoder = Encoder(source, hidden, cell=cell, bidirectional=bidirectional, **sizes)
    make = find_aligner(attention, score=score, window=window, dropout=attention_dropout)
    tokens = Tokens(target_vocabulary, embedding, dropout=dropout)
    decoder = Bahdanau(encoder, tokens, hidden, attention=make, width=width, **sizes)
    return Seq2Seq(encoder, decoder, tie=tie)


def luong(
    source_vocabulary: int | None,
    target_vocabulary: int,
    *,
    frames: int | None = None,
    embedding: int = 256,
    hidden: int = 256,
    layers: int = 1,
    cell: str = "gru",
    bidirectional: str = "none",
    residual: bool = False,
    score: str | Callable = "general",
    attention: str = "global",
    window: int | None = None,
    join: str = "tanh",
    feeding: bool = False,
    tie: bool = False,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
) -> Seq2Seq:
    """A recurrent model with Luong's decoder."""
    if join not in JOINS:
        raise ValueError(f"unknown join {join!r}{did_you_mean(join, JOINS)}")
    sizes: dict[str, Any] = {"layers": layers, "residual": residual, "dropout": dropout}
    source = reader(source_vocabulary, frames, embedding, dropout=dropout)
    encoder = Encoder(source, hidden, cell=cell, bidirectional=bidirectional, **sizes)
    make = find_aligner(attention, score=score, window=window, dropout=attention_dropout)
    tokens = Tokens(target_vocabulary, embedding, dropout=dropout)
    decoder = Luong(
        encoder, tokens, hidden, attention=make, join=JOINS[join], feeding=feeding, **sizes
    )
    return Seq2Seq(encoder, decoder, tie=tie)


def gnmt(
    source_vocabulary: int | None,
    target_vocabulary: int,
    *,
    frames: int | None = None,
    embedding: int = 1024,
    hidden: int = 1024,
    layers: int = 8,
    cell: str = "lstm",
    score: str | Callable = "additive",
    attention: str = "global",
    window: int | None = None,
    tie: bool = False,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
) -> Seq2Seq:
    """A deep recurrent model with the encoder and decoder of Wu et al. 2016."""
    sizes: dict[str, Any] = {"layers": layers, "dropout": dropout}
    source = reader(source_vocabulary, frames, embedding, dropout=dropout)
    encoder = Encoder(source, hidden, cell=cell, bidirectional="bottom", residual=True, **sizes)
    make = find_aligner(attention, score=score, window=window, dropout=attention_dropout)
    tokens = Tokens(target_vocabulary, embedding, dropout=dropout)
    decoder = GNMT(encoder, tokens, hidden, attention=make, **sizes)
    return Seq2Seq(encoder, decoder, tie=tie)


def without_attention(
    decoder: type[Plain],
    source_vocabulary: int | None,
    target_vocabulary: int,
    *,
    frames: int | None = None,
    embedding: int = 256,
    hidden: int = 256,
    layers: int = 1,
    cell: str = "gru",
    bidirectional: str = "none",
    residual: bool = False,
    tie: bool = False,
    dropout: float = 0.0,
) -> Seq2Seq:
    """A recurrent model whose decoder knows the source as one vector."""
    sizes: dict[str, Any] = {"layers": layers, "residual": residual, "dropout": dropout}
    source = reader(source_vocabulary, frames, embedding, dropout=dropout)
    encoder = Encoder(source, hidden, cell=cell, bidirectional=bidirectional, **sizes)
    tokens = Tokens(target_vocabulary, embedding, dropout=dropout)
    return Seq2Seq(encoder, decoder(encoder, tokens, hidden, **sizes), tie=tie)


KINDS: dict[str, Callable[..., nn.Module]] = {
    "bahdanau": bahdanau,
    "luong": luong,
    "gnmt": gnmt,
    "plain": partial(without_attention, Plain),
    "peeky": partial(without_attention, Peeky),
    "attention": AttentionSeq2Seq,
    "transformer": Transformer,
    "language": LanguageModel,
}
"""Kinds of models, by name."""


def build(kind: str, preset: str | None = None, **flat: Any) -> nn.Module:
    """A model of some kind; `flat` goes over what the preset says.

    >>> model = build("transformer", "tiny", source_vocabulary=13, target_vocabulary=17)
    >>> len(model.encoder.layers), model.output
    (4, Linear(in_features=128, out_features=17, bias=True))

    Args:
        kind: a name of `KINDS`
        preset: "tiny", "small" or "base"; None for the defaults
        flat: keyword arguments of that kind; at least its vocabularies

    Raises:
        ValueError: for an unknown name, with the nearest known one
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind of model {kind!r}{did_you_mean(kind, KINDS)}")
    presets = PRESETS[kind]
    if preset is not None and preset not in presets:
        raise ValueError(f"unknown preset {preset!r} of {kind}{did_you_mean(preset, presets)}")
    make = KINDS[kind]
    known = inspect.signature(make).parameters
    for name in flat:
        if name not in known:
            raise ValueError(f"{kind} has no option {name!r}{did_you_mean(name, known)}")
    options = {} if preset is None else dict(presets[preset])
    options |= flat
    if "source_vocabulary" in known:
        options.setdefault("source_vocabulary", None)  # a source may be frames
    needed = "vocabulary" if kind == "language" else "target_vocabulary"
    if needed not in options:
        raise ValueError(f"a {kind} model needs {needed}=, how many tokens it can write")
    return make(**options)
