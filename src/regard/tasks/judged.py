"""A translator judged by pairs it has not seen: figures, how sure they are, and its errors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.core.graphemes import graphemes
from regard.data import Batch, Batches, Pairs, encode_pairs
from regard.evaluation import (
    Edit,
    Figure,
    Mistake,
    bleu,
    chrf,
    confusions,
    error_rate,
    exact_match,
    predicted,
    resampled,
    worst,
)
from regard.tasks.translator import Translator

Cut = Callable[[str], Sequence[str]]

CUTS: dict[str, tuple[str, Cut]] = {
    "characters": ("cer", graphemes),
    "phonemes": ("per", str.split),
    "words": ("wer", str.split),
    "bpe": ("wer", str.split),
}
"""By the target's tokenizer, what an error rate is called and what it counts."""


@dataclass(frozen=True)
class Judged:
    """What was measured. Rates are shares, BLEU and chrF go from 0 to 100."""

    sources: int  # distinct ones, which were translated
    pairs: int
    figures: dict[str, Figure]
    signatures: dict[str, str]  # how BLEU and chrF were computed
    worst: list[Mistake]
    read: dict[int, str]  # the sources of the worst, by number
    confusions: list[tuple[Edit, int]]

    def as_dict(self) -> dict[str, Any]:
        """All of it, as JSON takes it."""
        return {
            "sources": self.sources,
            "pairs": self.pairs,
            "figures": {name: figure._asdict() for name, figure in self.figures.items()},
            "signatures": self.signatures,
            "worst": [{**m._asdict(), "source": self.read[m.number]} for m in self.worst],
            "confusions": [{**edit._asdict(), "count": n} for edit, n in self.confusions],
        }


def judge(
    translator: Translator,
    pairs: Pairs,
    *,
    shown: int = 5,
    bleu_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Judged:
    """Translate the distinct sources of pairs, and compare with all their targets.

    A source with several targets, such as a word with several pronunciations, is right if it is
    one of them. For phonemes `wer` is the share of words that are wrong; for words and pieces of
    words it is the word error rate.

    Args:
        translator: what `regard.load` gives
        pairs: sources and what they should become
        shown: how many of the worst sentences and of the confusions
        bleu_options: of sacrebleu's BLEU, such as {"lowercase": True, "tokenize": "none"}
        options: of `Translator.translate`, such as beam=5
    """
    if not len(pairs):
        raise ValueError("there is no pair to evaluate with")
    sources, wanted = _references(pairs)
    written = [one.text for one in translator.translate(sources, **options)]
    kind = translator.target.kind
    rate_name, cut = CUTS[kind]
    exact, errors = exact_match(written, wanted), error_rate(written, wanted, cut=cut)
    figures = {"exact": resampled(exact), rate_name: resampled(errors)}
    if kind == "phonemes":
        wrong = figures["exact"]
        figures["wer"] = Figure(1 - wrong.value, 1 - wrong.high, 1 - wrong.low)
    signatures = {}
    if kind in ("words", "bpe"):
        overlaps = {"bleu": bleu(written, wanted, **(bleu_options or {}))}
        overlaps["chrf"] = chrf(written, wanted)
        figures |= {name: overlap.figure for name, overlap in overlaps.items()}
        signatures = {name: overlap.signature for name, overlap in overlaps.items()}
    told = predicted(translator.model, _batches(translator, pairs))
    for name, value in (("accuracy", told.accuracy), ("perplexity", told.perplexity)):
        figures[name] = Figure(value, value, value)
    mistakes = worst(written, wanted, errors, cut=cut, count=shown)
    read = {m.number: str(sources[m.number]) for m in mistakes}
    if translator.source is None:
        read = {m.number: f"{len(sources[m.number])} frames" for m in mistakes}
    frequent = confusions(written, wanted, cut=cut, count=shown)
    return Judged(len(sources), len(pairs), figures, signatures, mistakes, read, frequent)


def _references(pairs: Pairs) -> tuple[list[Any], list[list[str]]]:
    """Distinct sources in order, and all targets of each; frames are all distinct."""
    found: dict[Any, tuple[Any, list[str]]] = {}
    for number, (source, target) in enumerate(pairs):
        key = source if isinstance(source, str) else number
        found.setdefault(key, (source, []))[1].append(target)
    return [source for source, _ in found.values()], [targets for _, targets in found.values()]


def _batches(translator: Translator, pairs: Pairs) -> Iterator[Batch]:
    corpus = encode_pairs(pairs, translator.source, translator.target)
    real = (corpus.lengths[:, 0] > 0).nonzero()[0]
    size = max(8192, int(corpus.lengths.sum(1).max()))
    for index in Batches(corpus.lengths[real], tokens=size, shuffle=False).order(0):
        yield corpus.batch(real[np.asarray(index)].tolist())
