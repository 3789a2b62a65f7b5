"""Names of scores, their aliases and those of normalizers, and the nearest name for a typo."""

import difflib
from collections.abc import Iterable
from typing import Any

from torch import nn

from regard.core.score import BUILDERS, SCORES, WITH_PARAMETERS, Score
from regard.core.terms import TERMS

ALIASES = {other: term.name for term in TERMS if term.name for other in term.names}
ALIASES["rnnsearch"] = "bahdanau"  # as a model; as a score, bahdanau is additive
"""Other names of the literature, and what they are called here. Hyphens and case do not matter."""


def find_name(name: str, known: Iterable[str]) -> str | None:
    """The name among the known ones that is meant, itself or an alias; None if there is none.

    >>> find_name("Concatenation", ["concat", "general"]), find_name("concatenation", ["dot"])
    ('concat', None)
    """
    known = list(known)
    if name in known:
        return name
    plain = _plain(name)
    return next((one for one in (plain, ALIASES.get(plain)) if one in known), None)


def check_name(what: str, name: str, known: Iterable[str]) -> None:
    """Raise `ValueError` with the nearest known name, if a name is not among those.

    >>> check_name("cell", "lst", ["gru", "lstm"])
    Traceback (most recent call last):
    ValueError: unknown cell 'lst'; did you mean 'lstm'? Known: gru, lstm
    """
    if name not in known:
        raise ValueError(f"unknown {what} {name!r}{did_you_mean(name, known)}")


def find_score(score: str | Score) -> Score:
    """A score by name, or the callable itself."""
    if not isinstance(score, str):
        if not callable(score):
            raise TypeError(
                "score must be a name or a callable (query, key) -> scores, got "
                f"{type(score).__name__}"
            )
        return score
    if score in SCORES:
        return SCORES[score]
    name = _score_name(score)
    if name in WITH_PARAMETERS:
        raise ValueError(
            f"score {score!r} has parameters: pass score=regard.{WITH_PARAMETERS[name]}"
        )
    return SCORES[name]


def build_score(score: str, query_dim: int, key_dim: int) -> nn.Module:
    """A new score by name, with parameters for queries and keys of these widths.

    >>> build_score("bilinear", 3, 5).weight.shape
    torch.Size([3, 5])
    """
    return BUILDERS[_score_name(score)](query_dim, key_dim)


def layer_score(score: str | Score, query_dim: int, key_dim: int) -> str | Score:
    """The score of a layer: one with parameters is built, the name of another is kept."""
    if isinstance(score, str):
        name = _score_name(score)
        return build_score(name, query_dim, key_dim) if name in WITH_PARAMETERS else name
    return find_score(score)


def _score_name(score: str) -> str:
    known = [*SCORES, *WITH_PARAMETERS]
    name = find_name(score, known)
    if name is None:
        raise ValueError(f"unknown score {score!r}{did_you_mean(score, known)}")
    return name


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """How an error about an unknown name goes on.

    >>> did_you_mean("softmx", ["softmax", "hard"])
    "; did you mean 'softmax'? Known: softmax, hard"
    >>> did_you_mean("concatination", ["location", "concat"])
    "; did you mean 'concat'? Known: location, concat"
    """
    known = list(known)
    meant = {alias: target for alias, target in ALIASES.items() if target in known}
    meant |= {one: one for one in known}
    close = difflib.get_close_matches(str(name), meant, n=1)
    close = close or difflib.get_close_matches(_plain(str(name)), meant, n=1)
    listed = ", ".join(known)
    return f"; did you mean {meant[close[0]]!r}? Known: {listed}" if close else f"; known: {listed}"


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")
