"""Evaluation of a translator on pairs it has not seen: metrics, intervals and typical errors."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from regard.data import Batch, Batches, Pairs, Tokenizer, encode_pairs
from regard.decoding.search import evaluating
from regard.evaluation.edits import Edit, Mistake, Split, confusions, worst
from regard.evaluation.metrics import Metric, bleu, bootstrap, chrf, error_rate, exact_match
from regard.system.graphemes import graphemes

ERROR_RATES: dict[str, tuple[str, Split]] = {
    "characters": ("cer", graphemes),
    "phonemes": ("per", str.split),
    "words": ("wer", str.split),
    "bpe": ("wer", str.split),
}
"""The name of the error rate and what it counts, by the kind of the target tokenizer."""


class Likelihood(NamedTuple):
    """Teacher-forced loss and accuracy over real target tokens, EOS included."""

    loss: float  # nats per token
    accuracy: float  # share of tokens that were the most probable
    tokens: int

    @property
    def perplexity(self) -> float:
        """exp(loss)."""
        return math.exp(min(self.loss, 700.0))


class Translates(Protocol):
    """The part of a `Translator` that is evaluated."""

    @property
    def model(self) -> nn.Module: ...
    @property
    def source(self) -> Tokenizer | None: ...
    @property
    def target(self) -> Tokenizer: ...
    def translate(self, texts: Any, **options: Any) -> Any:
        """One object with a `text` for each source."""


@dataclass(frozen=True)
class TranslationReport:
    """Metrics and errors. Rates are from 0 to 1, BLEU and chrF from 0 to 100."""

    sources: int  # distinct ones
    pairs: int
    metrics: dict[str, Metric]
    signatures: dict[str, str]  # how BLEU and chrF were computed
    worst: list[Mistake]
    worst_sources: list[str]
    confusions: list[tuple[Edit, int]]

    def as_dict(self) -> dict[str, Any]:
        """The report in types that JSON can represent."""
        worst = zip(self.worst, self.worst_sources, strict=True)
        return {
            "sources": self.sources,
            "pairs": self.pairs,
            "metrics": {name: metric._asdict() for name, metric in self.metrics.items()},
            "signatures": self.signatures,
            "worst": [{**mistake._asdict(), "source": source} for mistake, source in worst],
            "confusions": [{**edit._asdict(), "count": n} for edit, n in self.confusions],
        }


def evaluate_translator(
    translator: Translates,
    pairs: Pairs,
    *,
    shown: int = 5,
    bleu_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> TranslationReport:
    """Translate the distinct sources of pairs and compare with all of their targets.

    A source with several targets, such as a word with several pronunciations, is right if its
    translation is one of them. For phonemes `wer` is the share of words that are wrong; for words
    and BPE it is the word error rate.

    Args:
        translator: what `regard.load` returns
        pairs: sources and targets
        shown: number of worst sentences and of confusions in the report
        bleu_options: of sacrebleu's BLEU, such as {"lowercase": True, "tokenize": "none"}
        options: of `Translator.translate`, such as beam=5
    """
    if not len(pairs):
        raise ValueError("there are no pairs to evaluate with")
    sources, references = _references(pairs)
    predictions = [translation.text for translation in translator.translate(sources, **options)]
    kind = translator.target.kind
    name, split = ERROR_RATES[kind]
    metrics = {
        "exact": bootstrap(exact_match(predictions, references)),
        name: bootstrap(error_rate(predictions, references, split=split)),
    }
    if kind == "phonemes":
        value, low, high = metrics["exact"]
        metrics["wer"] = Metric(1 - value, 1 - high, 1 - low)
    signatures = {}
    if kind in ("words", "bpe"):
        scores = {"bleu": bleu(predictions, references, **(bleu_options or {}))}
        scores["chrf"] = chrf(predictions, references)
        metrics |= {name: score.metric for name, score in scores.items()}
        signatures = {name: score.signature for name, score in scores.items()}
    if hasattr(translator.model, "output"):  # CTranslate2 returns no scores of given targets
        likelihood = teacher_forced(translator.model, _batches(translator, pairs))
        for name, value in (
            ("accuracy", likelihood.accuracy),
            ("perplexity", likelihood.perplexity),
        ):
            metrics[name] = Metric(value, value, value)
    mistakes = worst(predictions, references, split=split, count=shown)
    read = [sources[mistake.number] for mistake in mistakes]
    return TranslationReport(
        len(sources),
        len(pairs),
        metrics,
        signatures,
        mistakes,
        [source if isinstance(source, str) else f"{len(source)} frames" for source in read],
        confusions(predictions, references, split=split, count=shown),
    )


def teacher_forced(model: nn.Module, batches: Iterable[Batch]) -> Likelihood:
    """Loss and accuracy of each target token given the true tokens before it.

    Args:
        model: sequence to sequence
        batches: padded pairs
    """
    loss, right, count = 0.0, 0, 0
    with evaluating(model):  # type: ignore[arg-type]
        for batch in batches:
            inputs, labels = batch.target[:, :-1], batch.target[:, 1:]
            features = model(batch.source, batch.source_lengths, inputs)  # (B, T - 1, D)
            position = torch.arange(inputs.shape[1], device=inputs.device)
            real = position < (batch.target_lengths - 1).unsqueeze(1)
            logits = model.output(features[real])  # type: ignore[operator]
            tokens = labels[real]
            loss += float(F.cross_entropy(logits, tokens, reduction="sum"))
            right += int((logits.argmax(-1) == tokens).sum())
            count += len(tokens)
    return Likelihood(loss / max(count, 1), right / max(count, 1), count)


def _references(pairs: Pairs) -> tuple[list[Any], list[list[str]]]:
    """Distinct sources in order, and all targets of each; frames are all distinct."""
    found: dict[Any, tuple[Any, list[str]]] = {}
    for index, (source, target) in enumerate(pairs):
        key = source if isinstance(source, str) else index
        found.setdefault(key, (source, []))[1].append(target)
    return [source for source, _ in found.values()], [targets for _, targets in found.values()]


def _batches(translator: Translates, pairs: Pairs) -> Iterator[Batch]:
    corpus = encode_pairs(pairs, translator.source, translator.target)
    real = (corpus.lengths[:, 0] > 0).nonzero()[0]
    size = max(8192, int(corpus.lengths.sum(1).max()))
    for index in Batches(corpus.lengths[real], tokens=size, shuffle=False).order(0):
        yield corpus.batch(real[np.asarray(index)].tolist())
