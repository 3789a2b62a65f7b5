"""Configurations by the name that people say after `--task`."""

from typing import Any

from regard.core.names import did_you_mean

Recipe = dict[str, Any]

_LETTERS: Recipe = {
    "task": "translate",
    "model": {"kind": "luong", "preset": "tiny", "bidirectional": "all", "dropout": 0.0},
    "training": {"epochs": 5, "lr": 3e-3, "schedule": "cosine", "warmup": 50},
}
_TRANSFORMER: Recipe = {  # a model of sentences
    "kind": "transformer",
    "preset": "tiny",
    "norm": "pre",
    "tie": "all",
    "attention_dropout": 0.0,
}
_CAPTIONS: Recipe = {  # those of Multi30k
    "task": "translate",
    "data": {"joint": True, "vocabulary": 8000, "tokens": 2400},
    "loss": {"label_smoothing": 0.1},
}


def _on(name: str, recipe: Recipe, **data: Any) -> Recipe:
    """A recipe for data of this name."""
    return {**recipe, "data": {"name": name, **recipe.get("data", {}), **data}}


RECIPES: dict[str, Recipe] = {
    "dates": _on(
        "dates",
        {
            "task": "translate",
            "model": {
                "kind": "luong",
                "cell": "lstm",
                "bidirectional": "all",
                "embedding": 32,
                "hidden": 64,
            },
            "training": {"epochs": 3, "lr": 8e-3, "schedule": "cosine", "warmup": 100},
        },
        count=30_000,
        test_count=2000,
        sentences=50,
    ),
    "reverse": _on("reverse", _LETTERS, sentences=128),
    "copy": _on("copy", _LETTERS, sentences=128),
    "addition": _on("addition", _LETTERS, sentences=128),
    "signal": _on(
        "signal", {**_LETTERS, "model": {**_LETTERS["model"], "frames": 12}}, sentences=64
    ),
    "multi30k": _on(
        "multi30k",
        {
            **_CAPTIONS,
            "model": _TRANSFORMER,
            "training": {
                "epochs": 30,
                "lr": 3e-3,
                "schedule": "cosine",
                "warmup": 1000,
                "evaluate_every": 800,
                "average": 3,
            },
        },
    ),
    "multi30k-de-en": _on(
        "multi30k-de-en",
        {
            **_CAPTIONS,
            "model": {"kind": "bahdanau", "preset": "small"},
            "training": {"epochs": 4, "lr": 2e-3, "schedule": "cosine", "warmup": 400},
        },
        vocabulary=3000,
        tokens=1600,
    ),
    "multi30k-en-fr": _on(
        "multi30k-en-fr",
        {
            **_CAPTIONS,
            "model": {
                "kind": "luong",
                "preset": "small",
                "score": "additive",  # the general one freezes: docs/results.md
                "bidirectional": "all",
                "embedding": 192,
                "hidden": 192,
                "dropout": 0.2,
            },
            "training": {"epochs": 6, "lr": 2e-3, "schedule": "cosine", "warmup": 400},
        },
        vocabulary=3000,
        tokens=1600,
    ),
    "multi30k-en-fr-gnmt": _on(
        "multi30k-en-fr",
        {
            **_CAPTIONS,
            "model": {"kind": "gnmt", "preset": "small", "embedding": 192, "hidden": 192},
            "training": {
                "epochs": 6,
                "lr": 2e-3,
                "schedule": "cosine",
                "warmup": 400,
                "average": 3,
            },
        },
        vocabulary=3000,
        tokens=1600,
    ),
    "pronounce": _on(
        "pronounce",
        {
            "task": "translate",
            "model": {
                "kind": "bahdanau",
                "preset": "small",
                "bidirectional": "all",
                "layers": 2,
                "dropout": 0.3,
            },
            "loss": {"label_smoothing": 0.1},
            "training": {
                "epochs": 16,
                "lr": 2e-3,
                "schedule": "cosine",
                "warmup": 200,
                "average": 3,
            },
        },
        sentences=128,
    ),
    "tatoeba": _on(
        "tatoeba",
        {
            **_CAPTIONS,
            "model": _TRANSFORMER,
            "training": {
                "epochs": 60,
                "lr": 3e-3,
                "schedule": "cosine",
                "warmup": 800,
                "evaluate_every": 1000,
                "average": 3,
            },
        },
        metric="bleu",
        source_tokenizer="bpe",
        target_tokenizer="bpe",
        vocabulary=2000,
        tokens=1000,
    ),
    # Veličković et al. 2018, section 3.3, but for a patience of 200 epochs in accuracy alone
    "graph": {
        "task": "graph",
        "training": {
            "epochs": 1000,
            "lr": 5e-3,
            "weight_decay": 0.0,
            "betas": [0.9, 0.999],
            "eps": 1e-8,
            "clip": 0.0,
            "evaluate_every": 5,
            "patience": 40,
        },
    },
    "hard": {
        "task": "hard",
        "training": {"epochs": 3, "lr": 3e-3, "evaluate_every": 100},
    },
    "classify": {
        "task": "classify",
        "data": {"batch": 16},
        "model": {"dim": 32, "hidden": 16, "dropout": 0.1},
        "training": {"epochs": 4, "lr": 1e-2},
    },
    "movie_reviews": {
        "task": "classify",
        "data": {"name": "movie_reviews", "min_count": 3, "max_words": 25, "valid": 0.05},
        "model": {"dim": 64, "hidden": 32, "encoder": "none", "word_dropout": 0.5},
        "training": {
            "epochs": 7,
            "lr": 3e-3,
            "schedule": "cosine",
            "warmup": 40,
            "weight_decay": 0.1,
            "average": 3,
            "average_of": "last",
        },
    },
    "nsmc": {
        "task": "classify",
        "data": {
            "name": "nsmc",
            "tokenizer": "bpe",
            "size": 8000,
            "max_words": 60,
            "max_sentences": 6,
            "valid": 0.02,
            "batch": 128,
        },
        "model": {"dim": 96, "hidden": 64, "dropout": 0.3, "word_dropout": 0.1},
        "training": {"epochs": 2, "lr": 2e-3, "schedule": "cosine", "evaluate_every": 500},
    },
    "recommend": {
        "task": "recommend",
        "training": {"epochs": 25, "lr": 3e-3, "schedule": "cosine", "patience": 8},
    },
    "opposites": {
        "task": "recommend",
        "data": {"generated": "opposites", "count": 1000, "batch": 64},
        "model": {"forget": 0.0, "dropout": 0.0},
        "training": {"epochs": 40, "lr": 3e-3, "schedule": "cosine"},
    },
    "image": {
        "task": "image",
        "data": {"shift": 1},
        "model": {"patch": 2},
        "training": {"epochs": 20, "lr": 2e-3, "schedule": "cosine", "warmup": 50},
    },
    "digits": {
        "task": "image",
        "data": {"name": "digits", "shift": 1},
        "model": {"patch": 2},
        "training": {"epochs": 80, "lr": 2e-3, "schedule": "cosine", "warmup": 100},
    },
    "fashion": {
        "task": "image",
        "data": {"name": "fashion", "rows": 128},
        "model": {"patch": 4},
        "training": {"epochs": 5, "lr": 2e-3, "schedule": "cosine", "warmup": 200},
    },
    "memory": {
        "task": "memory",
        "training": {"epochs": 15, "lr": 2e-3, "weight_decay": 0.0},
    },
    "pair": {
        "task": "pair",
        "data": {"count": 20000},
        "model": {"dim": 48, "layers": 0, "phrase": 3, "glimpses": 3, "dropout": 0.0},
        "training": {"epochs": 4, "lr": 4e-3, "schedule": "cosine", "warmup": 50},
    },
    "tatoeba-pairs": {
        "task": "pair",
        "data": {"name": "tatoeba"},
        "training": {"epochs": 10, "lr": 2e-3, "warmup": 100},
    },
    "language": {
        "task": "language",
        "data": {"context": 64},
        "model": {"dim": 64, "heads": 4, "hidden": 256, "layers": 2, "dropout": 0.0},
        "training": {"epochs": 6, "lr": 3e-3, "schedule": "cosine", "warmup": 20},
    },
    "tinyshakespeare": {
        "task": "language",
        "data": {"name": "tinyshakespeare"},
        "training": {
            "epochs": 12,
            "lr": 2e-3,
            "schedule": "cosine",
            "warmup": 100,
            "weight_decay": 0.1,
            "evaluate_every": 250,
        },
    },
}
"""Names of tasks with data and settings that are known to work."""


def find_recipe(name: str) -> Recipe:
    """A recipe by name, to be changed at will."""
    from copy import deepcopy

    if name not in RECIPES:
        raise ValueError(f"unknown task {name!r}{did_you_mean(name, RECIPES)}")
    return deepcopy(RECIPES[name])
