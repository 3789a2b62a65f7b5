"""A trained model that translates: what `regard.load` gives for a run with pairs."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict, Unpack, overload

import numpy as np
import torch
from torch import Tensor, nn

from regard.data import Tokenizer, load_tokenizer
from regard.data.tokenizer_pieces import Pieces
from regard.decoding import Hypothesis, Limits, batched, greedy, sample
from regard.decoding import beam as beam_search
from regard.models import build
from regard.tasks.run import load_weights
from regard.training.config import Config
from regard.training.run_directory import read_run_config

SOURCE, TARGET = "tokenizer.source.json", "tokenizer.target.json"


class Translation(NamedTuple):
    """What was written for a source."""

    text: str
    tokens: list[str]  # what it was written in, the end included
    score: float  # its log-probability, the end included
    map: Tensor | None  # (tokens, source), who looked at whom; None unless asked for
    source: list[str]  # the tokens that were read
    maps: dict[str, Tensor] | None  # by module, (heads, tokens, source) each


class Options(TypedDict, total=False):
    """What else `Translator.translate` takes; it says what they mean."""

    return_map: bool
    penalty: float
    sampling: Mapping[str, Any] | None
    prefix: Sequence[str] | None
    limits: Limits
    copy_unknown: bool
    first: int


class Translator:
    """A model and its tokenizers.

    >>> from regard.data import train_tokenizer
    >>> letters = train_tokenizer("characters", ["abc"])
    >>> model = build_model({"kind": "luong", "preset": "tiny"}, letters, letters)
    >>> translator = Translator(model, letters, letters)
    >>> (first,) = translator.translate(["cab"], return_map=True)
    >>> first.map.shape == (len(first.tokens), 3)
    True

    Args:
        model: of `regard.models`
        source: tokenizer of what is read; None if that is float frames
        target: tokenizer of what is written
        config: what the run was made with
    """

    def __init__(
        self,
        model: nn.Module,
        source: Tokenizer | None,
        target: Tokenizer,
        config: Config | None = None,
    ) -> None:
        self.model: Any = model.eval()
        self.source, self.target = source, target
        self.config = config

    @classmethod
    def open(cls, run: str | Path) -> "Translator":
        """A run of the task `translate`."""
        run = Path(run)
        config = read_run_config(run)
        target = load_tokenizer(run / TARGET)
        source = load_tokenizer(run / SOURCE) if (run / SOURCE).is_file() else None
        model = build_model(config.model, source, target)
        return cls(load_weights(model, run), source, target, config)

    @overload
    def translate(  # type: ignore[overload-overlap]  # 1 is also a whole number
        self,
        texts: Sequence[Any],
        *,
        beam: int = ...,
        n_best: Literal[1] = ...,
        **options: Unpack[Options],
    ) -> list[Translation]: ...

    @overload
    def translate(
        self, texts: Sequence[Any], *, beam: int = ..., n_best: int, **options: Unpack[Options]
    ) -> list[list[Translation]]: ...

    def translate(
        self,
        texts: Sequence[Any],
        *,
        beam: int = 1,
        n_best: int = 1,
        return_map: bool = False,
        penalty: float = 0.6,
        sampling: Mapping[str, Any] | None = None,
        prefix: Sequence[str] | None = None,
        limits: Limits = Limits(),  # noqa: B008
        copy_unknown: bool = False,
        first: int = 0,
    ) -> list[Translation] | list[list[Translation]]:
        """Translate texts, or float frames (length, width); an empty or blank one becomes empty.

        Args:
            texts: a list of them
            beam: how many continuations are followed at once; 1 is greedy
            n_best: how many translations of each are wanted, at most `beam`; as many draws, if
                they are drawn
            return_map: whether to say who looked at whom
            penalty: of a beam's length, see `regard.decoding.beam`
            sampling: draw translations, with options of `regard.decoding.sample`: temperature,
                top_k, top_p, seed
            prefix: what each translation must begin with
            limits: how long they may become
            copy_unknown: write for an unknown token the source token that it looked at most. Luong
                et al. 2015b; otherwise it is marked, by U+FFFD
            first: number of the first text, on which draws depend

        Returns: one `Translation` for each, or, with n_best > 1, a list of them for each
        """
        if isinstance(texts, str):
            raise TypeError(f"texts should be a list of texts, got one text: [{texts!r}]")
        if sampling is None and not 1 <= n_best <= beam:
            raise ValueError(f"n_best should be from 1 to beam={beam}, got {n_best}")
        if sampling is not None and (beam > 1 or n_best < 1):
            raise ValueError(f"draws need beam=1 and n_best of 1 or more, got {beam} and {n_best}")
        if prefix is not None and (isinstance(prefix, str) or len(prefix) != len(texts)):
            raise ValueError(f"prefix should be a list of {len(texts)}, one a text, got {prefix!r}")
        if copy_unknown and not all(isinstance(t, Pieces) for t in (self.source, self.target)):
            raise ValueError("copy_unknown needs tokenizers of characters, words or phonemes")
        sources = [self._encode(text) for text in texts]
        options: dict[str, Any] = {"return_map": return_map or copy_unknown, "limits": limits}
        if prefix is not None:
            options["prefix"] = [self.target.encode(text) for text in prefix]
        if sampling is not None:
            found = _drawn(self.model, sources, n_best, first, {**options, **sampling})
        elif beam > 1:
            search = partial(beam_search, size=beam, n_best=n_best, penalty=penalty)
            found = batched(search, self.model, sources, **options)
        else:
            found = [[best] for best in batched(greedy, self.model, sources, **options)]
        if not all(best and np.isfinite(best[0].score) for best in found):
            raise ValueError(
                "the model gives scores that are not numbers: its weights hold NaN or infinity, as "
                "after a training that diverged"
            )
        written = [
            [self._translation(text, source, one, copy_unknown, return_map) for one in best]
            for text, source, best in zip(texts, sources, found, strict=True)
        ]
        return written if n_best > 1 else [best[0] for best in written]

    def _encode(self, text: Any) -> Any:
        if self.source is None:
            frames = np.asarray(text, np.float32)
            if frames.ndim != 2:
                raise ValueError(f"frames should be (length, width), got shape {frames.shape}")
            return frames
        if not isinstance(text, str):
            raise TypeError(f"this model reads texts, got {type(text).__name__}")
        return [] if text.isspace() else self.source.encode(text)

    def _translation(
        self, given: Any, source: Any, best: Hypothesis, copy_unknown: bool, return_map: bool
    ) -> Translation:
        read = [""] * len(source) if self.source is None else self.source.tokens(source)
        map = None if best.maps is None else alignment(best, len(source))
        tokens = self.target.tokens(best.tokens)
        text = self.target.decode(best.tokens)
        if copy_unknown and map is not None and self.target.unk in best.tokens:
            text = self._copied(given, best.tokens, map)
        kept = (map, best.maps) if return_map else (None, None)
        return Translation(text, tokens, best.score, kept[0], read, kept[1])

    def _copied(self, given: Any, ids: Sequence[int], map: Tensor) -> str:
        """The text in which each unknown token is the source token that it looked at most."""
        assert isinstance(self.source, Pieces)
        assert isinstance(self.target, Pieces)
        pieces = self.source.cut(given)
        return self.target.join(
            [
                pieces[int(row.argmax())] if number == self.target.unk else piece
                for number, piece, row in zip(ids, self.target.cuts(ids), map, strict=True)
            ]
        )


def _drawn(
    model: Any, sources: list[Any], each: int, first: int, options: dict[str, Any]
) -> list[list[Hypothesis]]:
    """So many draws of each source; they depend on its number, and not on the others."""
    many = [source for source in sources for _ in range(each)]
    if "prefix" in options:
        options["prefix"] = [prefix for prefix in options["prefix"] for _ in range(each)]
    numbers = range(first * each, first * each + len(many))
    found = batched(sample, model, many, numbers=numbers, **options)
    return [found[start : start + each] for start in range(0, len(found), each)]


def alignment(best: Hypothesis, source: int) -> Tensor:
    """One map (tokens, source) of all that a model attends to the source with: their average.

    A recurrent model has one, which is given as it is. A model without attention has none: zeros.
    """
    if not best.maps:
        return torch.zeros(len(best.tokens), source)
    return torch.cat(list(best.maps.values())).mean(0)


def build_model(table: Mapping[str, Any], source: Tokenizer | None, target: Tokenizer) -> nn.Module:
    """The model of a table `[model]` for these tokenizers."""
    options = dict(table)
    kind, preset = options.pop("kind", "luong"), options.pop("preset", None)
    if kind == "language":
        raise ValueError("model.kind: a language model reads no source; choose another kind")
    if source is None and "frames" not in options:
        raise ValueError("model.frames is missing: sources are float frames, give their width")
    vocabulary = None if source is None else len(source)
    return build(
        kind, preset, source_vocabulary=vocabulary, target_vocabulary=len(target), **options
    )
