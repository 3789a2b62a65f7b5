"""Sizes that are known to work, as plain dicts of keyword arguments for `build`."""

from typing import Any

Preset = dict[str, Any]

_TRANSFORMER: dict[str, Preset] = {
    # Wu et al. 2021 on Multi30k
    "tiny": {"layers": 4, "dim": 128, "heads": 4, "hidden": 256, "dropout": 0.3},
    # the IWSLT model of Ott et al. 2019
    "small": {"layers": 6, "dim": 512, "heads": 4, "hidden": 1024, "dropout": 0.3},
    # Vaswani et al. 2017, table 3
    "base": {"layers": 6, "dim": 512, "heads": 8, "hidden": 2048, "dropout": 0.1},
}

_RECURRENT: dict[str, Preset] = {
    "tiny": {"embedding": 64, "hidden": 128, "layers": 1, "dropout": 0.1},
    "small": {"embedding": 256, "hidden": 256, "layers": 1, "dropout": 0.3},
    "base": {"embedding": 512, "hidden": 512, "layers": 2, "dropout": 0.3},
}

_GNMT: dict[str, Preset] = {
    "tiny": {"embedding": 64, "hidden": 64, "layers": 3, "dropout": 0.1},
    "small": {"embedding": 256, "hidden": 256, "layers": 4, "dropout": 0.2},
    "base": {"embedding": 1024, "hidden": 1024, "layers": 8, "dropout": 0.2},
}

_ATTENTION: dict[str, Preset] = {
    "tiny": {"embedding": 16, "hidden": 64},
    "small": {"embedding": 16, "hidden": 256},
    "base": {"embedding": 256, "hidden": 512, "dropout": 0.3},
}

PRESETS: dict[str, dict[str, Preset]] = {
    "bahdanau": _RECURRENT,
    "luong": _RECURRENT,
    "gnmt": _GNMT,
    "plain": _RECURRENT,
    "peeky": _RECURRENT,
    "attention": _ATTENTION,
    "transformer": _TRANSFORMER,
    "language": _TRANSFORMER,
}
"""For each kind of model its presets: tiny, small and base."""
