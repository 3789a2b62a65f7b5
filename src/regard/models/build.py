"""Models by name, from flat keyword arguments such as a configuration file holds."""

import inspect
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import nn

from regard.core.names import check_name, did_you_mean, find_name
from regard.models.aligner import find_aligner
from regard.models.bahdanau import Bahdanau
from regard.models.decoder import Peeky, Plain, RecurrentDecoder
from regard.models.embedding import Tokens, source_embedding
from regard.models.gnmt import GNMT
from regard.models.language import LanguageModel
from regard.models.luong import JOINS, Luong
from regard.models.recurrent import Encoder
from regard.models.seq2seq import AttentionSeq2Seq, Seq2Seq
from regard.models.transformer import Transformer

Options = dict[str, Any]

_SIZES: Options = {"frames": None, "embedding": 256, "hidden": 256, "layers": 1, "cell": "gru"}
_SIZES |= {"bidirectional": "none", "reverse_source": False}
_SIZES |= {"residual": False, "tie": False, "dropout": 0.0}
_ATTENTION: Options = {"attention": "global", "window": None, "attention_dropout": 0.0}

RECURRENT: dict[str, tuple[Callable[..., RecurrentDecoder], Options]] = {
    "bahdanau": (
        Bahdanau,
        _SIZES | _ATTENTION | {"score": "additive", "bidirectional": "all", "width": None},
    ),
    "luong": (Luong, _SIZES | _ATTENTION | {"score": "general", "join": "tanh", "feeding": False}),
    "gnmt": (
        GNMT,
        _SIZES
        | _ATTENTION
        | {"score": "additive", "embedding": 1024, "hidden": 1024, "layers": 8, "cell": "lstm"},
    ),
    "plain": (Plain, _SIZES),
    "peeky": (Peeky, _SIZES),
}
"""Recurrent decoders, and the options of their models with defaults."""

FIXED: dict[str, Options] = {"gnmt": {"bidirectional": "bottom", "residual": True}}
"""Options that are part of a model's definition (Wu et al. 2016, section 3) and not free."""


def recurrent(
    kind: str, source_vocabulary: int | None, target_vocabulary: int, **options: Any
) -> Seq2Seq:
    """A recurrent encoder and the decoder of some kind, from the options of `RECURRENT`."""
    decoder, defaults = RECURRENT[kind]
    o = defaults | options | FIXED.get(kind, {})
    own: Options = {name: o[name] for name in ("width", "feeding") if name in o}
    if "join" in o:
        check_name("join", o["join"], JOINS)
        own["join"] = JOINS[o["join"]]
    if "score" in o:
        own["attention"] = find_aligner(
            o["attention"], score=o["score"], window=o["window"], dropout=o["attention_dropout"]
        )
    stack = {name: o[name] for name in ("layers", "residual", "dropout")}
    embedding = o["embedding"]
    tokens: Options = {"scale": math.sqrt(embedding), "dropout": o["dropout"]}  # entries of size 1
    source = source_embedding(source_vocabulary, o["frames"], embedding, **tokens)
    reading = {name: o[name] for name in ("cell", "bidirectional", "reverse_source")}
    encoder = Encoder(source, o["hidden"], **reading, **stack)
    if kind == "gnmt":  # its decoder always has residual connections
        del stack["residual"]
    target = Tokens(target_vocabulary, embedding, **tokens)
    return Seq2Seq(encoder, decoder(encoder, target, o["hidden"], **stack, **own), tie=o["tie"])


KINDS: dict[str, Callable[..., nn.Module]] = {
    **{kind: partial(recurrent, kind) for kind in RECURRENT},
    "attention": AttentionSeq2Seq,
    "transformer": Transformer,
    "language": LanguageModel,
}
"""Kinds of models, by name."""

_RECURRENT_PRESETS: dict[str, Options] = {
    "tiny": {"embedding": 64, "hidden": 128, "layers": 1, "dropout": 0.1},
    "small": {"embedding": 256, "hidden": 256, "layers": 1, "dropout": 0.3},
    "base": {"embedding": 512, "hidden": 512, "layers": 2, "dropout": 0.3},
}
_TRANSFORMER_PRESETS: dict[str, Options] = {
    # Wu et al. 2021 on Multi30k
    "tiny": {"layers": 4, "dim": 128, "heads": 4, "hidden": 256, "dropout": 0.3},
    "small": {"layers": 4, "dim": 256, "heads": 4, "hidden": 1024, "dropout": 0.3},
    # the sizes of Vaswani et al. 2017, table 3; with post-norm it hardly learns from little data
    "base": {"layers": 6, "dim": 512, "heads": 8, "hidden": 2048, "dropout": 0.1, "norm": "pre"},
}

PRESETS: dict[str, dict[str, Options]] = {
    "bahdanau": _RECURRENT_PRESETS,
    "luong": _RECURRENT_PRESETS,
    "gnmt": {
        "tiny": {"embedding": 64, "hidden": 64, "layers": 3, "dropout": 0.1},
        "small": {"embedding": 256, "hidden": 256, "layers": 4, "dropout": 0.2},
        "base": {"embedding": 512, "hidden": 512, "layers": 4, "dropout": 0.3},
    },
    "plain": _RECURRENT_PRESETS,
    "peeky": _RECURRENT_PRESETS,
    "attention": {
        "tiny": {"embedding": 16, "hidden": 64},
        "small": {"embedding": 16, "hidden": 256},
        "base": {"embedding": 256, "hidden": 512, "dropout": 0.3},
    },
    "transformer": _TRANSFORMER_PRESETS,
    "language": _TRANSFORMER_PRESETS,
}
"""Sizes for small data on a CPU, for each kind of model: tiny, small and base.

docs/training.md has what they learn. Without a preset GNMT has its paper's 8 layers of 1024 units.
"""


def options_of(kind: str) -> list[str]:
    """The names of the options of a kind of model.

    >>> options_of("plain")[:4]
    ['source_vocabulary', 'target_vocabulary', 'frames', 'embedding']
    """
    if kind not in RECURRENT:
        return list(inspect.signature(KINDS[kind]).parameters)
    free = [name for name in RECURRENT[kind][1] if name not in FIXED.get(kind, {})]
    return ["source_vocabulary", "target_vocabulary", *free]


def switch_kind(model: Mapping[str, Any], kind: str) -> Options:
    """The table `[model]` of a configuration for another kind of model.

    What both kinds have in common stays, except the score: each kind has its own. Sizes stay
    among recurrent models; a Transformer has those of the preset, or of the tiny one.

    >>> switch_kind({"kind": "luong", "cell": "lstm", "hidden": 7, "score": "dot"}, "bahdanau")
    {'kind': 'bahdanau', 'cell': 'lstm', 'hidden': 7}
    >>> switch_kind({"kind": "luong", "cell": "lstm", "hidden": 7}, "transformer")
    {'kind': 'transformer', 'preset': 'tiny', 'dropout': 0.0}
    """
    was = model.get("kind", "luong")
    if was == kind:
        return dict(model)
    own = options_of(kind)
    others = {"kind", "score"}.union(*map(options_of, KINDS)).difference(own) | {"score"}
    kept = {name: value for name, value in model.items() if name not in others}
    if "transformer" in (was, kind):
        sizes = set(own).difference(("dropout", "frames"))
        kept = {name: value for name, value in kept.items() if name not in sizes}
        if "preset" not in kept:
            kept = {"preset": "tiny", "dropout": 0.0, **kept}
    if kind == "attention":  # its dot product needs an encoder as wide as the decoder
        kept.pop("bidirectional", None)
    if kind == "gnmt" and ("layers" in kept or "preset" not in kept):
        kept["layers"] = max(2, kept.get("layers", 2))
    return {"kind": kind, **kept}


def build(kind: str, preset: str | None = None, **options: Any) -> nn.Module:
    """A model of some kind; `options` override those of the preset.

    Under `torch.device("meta")` it has shapes and no numbers, and takes no memory.

    >>> model = build("transformer", "tiny", source_vocabulary=13, target_vocabulary=17)
    >>> len(model.encoder.layers), model.output
    (4, Linear(in_features=128, out_features=17, bias=True))

    Args:
        kind: a name of `KINDS`, or an alias of one
        preset: "tiny", "small" or "base"; None for the defaults
        options: keyword arguments of that kind; at least its vocabularies

    Raises:
        ValueError: for an unknown name, with the nearest known one
    """
    found = find_name(kind, KINDS)
    if found is None:
        raise ValueError(f"unknown kind of model {kind!r}{did_you_mean(kind, KINDS)}")
    kind = found
    presets = PRESETS[kind]
    if preset is not None:
        check_name(f"preset of {kind}", preset, presets)
    known = options_of(kind)
    for name in options:
        if name not in known:
            raise ValueError(f"{kind} has no option {name!r}{did_you_mean(name, known)}")
    _check_types(kind, options)
    options = (presets[preset] if preset else {}) | options
    if "source_vocabulary" in known:
        options.setdefault("source_vocabulary", None)  # a source may be frames
    needed = "vocabulary" if kind == "language" else "target_vocabulary"
    if needed not in options:
        raise ValueError(f"a {kind} model needs {needed}=, the number of tokens it can emit")
    return KINDS[kind](**options)


def _check_types(kind: str, options: Options) -> None:
    """Raise `ValueError` for an option that is not a number where its default is one."""
    if kind in RECURRENT:
        defaults = RECURRENT[kind][1]
    else:
        parameters = inspect.signature(KINDS[kind]).parameters
        defaults = {name: parameter.default for name, parameter in parameters.items()}
    expected = {
        bool: (bool, "true or false"),
        int: (int, "a whole number"),
        float: (float, "a number"),
    }
    for name, value in options.items():
        if type(defaults.get(name)) not in expected:
            continue
        wanted, described = expected[type(defaults[name])]
        fits = isinstance(value, (int, float) if wanted is float else wanted)
        if not fits or (isinstance(value, bool) and wanted is not bool):
            raise ValueError(f"{name} of {kind} should be {described}, got {value!r}")
