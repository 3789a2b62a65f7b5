"""The table `[model]` of translation: models of it, and variants by decoder, score, normalizer."""

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, NamedTuple

from torch import nn

from regard.core.names import did_you_mean, find_name
from regard.core.score import BUILDERS
from regard.data import Tokenizer
from regard.models.build import KINDS, RECURRENT, build, options_of, switch_kind
from regard.models.options import SELF_ATTENTIONS

ATTENTIVE = ("luong", "bahdanau", "gnmt")  # decoders that take a score and a normalizer
DECODERS = ("plain", "peeky", "attention", *ATTENTIVE, "transformer")
NORMALIZERS = {
    "softmax": "global",
    "sparsemax": "sparsemax",
    "entmax15": "entmax15",
    "sigmoid": "sigmoid",
    "sink": "sink",
    "hard": "hard",
    "gumbel": "gumbel",
}
"""Normalizers, and the option `attention` of a model that selects each."""


class Variant(NamedTuple):
    """The choices of one model."""

    decoder: str
    score: str | None = None  # None: the decoder has no score
    normalizer: str | None = None
    encoder: str | None = None  # attention in the encoder, of a Transformer

    @property
    def name(self) -> str:
        """Return the name, which is also that of its folder.

        >>> Variant("luong", "dot", "softmax").name, Variant("luong", "dot", "hard").name
        ('luong-dot', 'luong-dot-hard')
        >>> Variant("transformer", encoder="efficient").name
        'transformer-efficient'
        """
        normalizer = None if self.normalizer == "softmax" else self.normalizer
        encoder = None if self.encoder == "dot" else self.encoder
        shown = (self.decoder, self.score, normalizer, encoder)
        return "-".join(part for part in shown if part is not None)


def variants(
    decoders: Iterable[str],
    scores: Iterable[str] = (),
    normalizers: Iterable[str] = ("softmax",),
    encoders: Iterable[str] = ("dot",),
) -> list[Variant]:
    """Return every combination; a decoder without choices comes once.

    >>> [variant.name for variant in variants(["plain", "luong"], ["dot", "general"])]
    ['plain', 'luong-dot', 'luong-general']
    >>> [variant.name for variant in variants(["luong", "bahdanau"])]
    ['luong-general', 'bahdanau-additive']

    Args:
        decoders: of `DECODERS`
        scores: of luong, bahdanau and gnmt; the own score of each if empty
        normalizers: of the same
        encoders: of the transformer

    Raises:
        ValueError: for an unknown name, with the nearest known one
    """
    decoders = _known("decoder", decoders, DECODERS)
    scores = _known("score", scores, BUILDERS)
    normalizers = _known("normalizer", normalizers, NORMALIZERS)
    encoders = _known("encoder", encoders, SELF_ATTENTIONS)
    found: list[Variant] = []
    for decoder in decoders:
        if decoder in ATTENTIVE:
            own = scores or [RECURRENT[decoder][1]["score"]]
            found += [Variant(decoder, *both) for both in product(own, normalizers)]
        elif decoder == "transformer":
            found += [Variant(decoder, encoder=encoder) for encoder in encoders]
        else:
            found.append(Variant(decoder))
    return list(dict.fromkeys(found))


def model_table(model: Mapping[str, Any], variant: Variant, *, one_way: bool) -> dict[str, Any]:
    """Return the table `[model]` of a variant of a recipe.

    The rest is that of the recipe, as far as it is for this decoder: see `switch_kind`.

    >>> recipe = {"kind": "luong", "cell": "lstm", "hidden": 7}
    >>> model_table(recipe, Variant("bahdanau", "dot", "softmax"), one_way=True)
    {'kind': 'bahdanau', 'cell': 'lstm', 'hidden': 7, 'score': 'dot', 'bidirectional': 'none'}

    Args:
        one_way: whether the source is read from left to right only
    """
    kept = switch_kind(model, variant.decoder)
    kept.pop("encoder_attention", None)
    if variant.score is not None:
        kept["score"] = variant.score
    if variant.normalizer not in (None, "softmax"):
        kept["attention"] = NORMALIZERS[str(variant.normalizer)]
        kept.pop("window", None)
    if variant.encoder not in (None, "dot"):
        kept["encoder_attention"] = variant.encoder
    if one_way and "bidirectional" in options_of(variant.decoder):
        kept["bidirectional"] = "none"
    return kept


def build_model(table: Mapping[str, Any], source: Tokenizer | None, target: Tokenizer) -> nn.Module:
    """Build the model of a table `[model]` for these tokenizers."""
    options = dict(table)
    kind, preset = options.pop("kind", "luong"), options.pop("preset", None)
    if kind == "language":
        raise ValueError("model.kind: a language model reads no source; choose another kind")
    if source is None and "frames" not in options:
        raise ValueError("model.frames is missing: sources are float frames, give their width")
    vocabulary = None if source is None else len(source)
    try:
        return build(
            kind, preset, source_vocabulary=vocabulary, target_vocabulary=len(target), **options
        )
    except ValueError as error:  # "hidden of luong should be ..."
        named = str(error).split(" ", 1)[0] in options
        raise ValueError(f"model.{error}" if named else f"[model] {error}") from error


def check_options(model: Mapping[str, Any]) -> None:
    """Raise if an option is of no kind of model: every variant would leave it out."""
    known = {"kind", "preset"}.union(*map(options_of, KINDS))
    for name in model:
        if name not in known:
            raise ValueError(f"unknown key model.{name}{did_you_mean(name, sorted(known))}")


def _known(what: str, names: Iterable[str], known: Iterable[str]) -> list[str]:
    known, found = list(known), []
    for name in names:
        one = find_name(name, known)
        if one is None:
            raise ValueError(f"unknown {what} {name!r}{did_you_mean(name, known)}")
        found.append(one)
    return found
