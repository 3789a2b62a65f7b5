"""Translation and related tasks: a source sequence becomes a target sequence."""

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from regard.analysis import read_alignments
from regard.data import (
    DATASETS,
    GENERATED,
    Batch,
    Batches,
    Encoded,
    Pairs,
    Tokenizer,
    encode_pairs,
    fingerprint,
    load_tokenizer,
    train_tokenizer,
    train_tokenizers,
)
from regard.data.files import text_lines
from regard.decoding import greedy
from regard.tasks.classification import table
from regard.tasks.guided import GuidedAlignment, guided_attention, recorded
from regard.tasks.parallel_corpus import Data, Picked, Splits
from regard.tasks.settings import ConfiguredTask
from regard.tasks.translator import SOURCE, TARGET, Translator
from regard.tasks.variants import build_model
from regard.training import Config, Loss, Settings, read_settings, stored_file, vocabulary_loss
from regard.training.processes import gathered, shared, summed

EXAMPLES = 3  # that `describe` shows
LONG, MANY = 10, 500  # times the average, and tokens, from which a pair is named as long
LETTERS = 200  # of an example that are shown
ROWS = 512  # target tokens that are evaluated at a time


class LossSettings(Settings):
    """The table `[loss]`."""

    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="share of a target's probability that goes to all tokens"
    )
    guided: float = Field(
        0.0, ge=0, description="weight of the loss of a head that learns data.alignments, e.g. 0.05"
    )


class TranslateTask(ConfiguredTask):
    """Parallel data: tokenizers, batches by length, a model of `build`, greedy decoding.

    Args:
        data: the pairs
        model: `kind`, `preset` and options of `regard.models.build`
        loss: how it is trained
        seed: of the order of batches, and of generated data
        run: a run directory whose tokenizers are used, instead of new ones
    """

    predictor = Translator
    tables = (("data", Data), ("loss", LossSettings))
    unit = "tokens"

    def __init__(
        self,
        data: Data,
        model: Mapping[str, Any],
        loss: LossSettings,
        seed: int = 1,
        run: Path | None = None,
    ) -> None:
        self.data, self.loss_settings, self.seed = data, loss, seed
        self.model = dict(model)
        self.splits = Splits(data, seed)
        self.train, self.valid = self.splits.read("train"), self.splits.read("valid")
        self.source_tokenizer, self.target_tokenizer = self._tokenizers(run)
        self.corpus = self._encoded("train", self.train)
        self.valid_corpus = self._encoded("valid", self.valid)
        self.guided = self._guided()
        self.kept = self._short_enough(self.corpus, "train on")
        valid = self._short_enough(self.valid_corpus, "validate with")
        self.valid_left_out = 0 if valid is None else len(self.valid) - len(valid)
        if valid is not None and self.valid_left_out:
            sources, targets = Picked(self.valid.sources, valid), Picked(self.valid.targets, valid)
            self.valid = Pairs(sources, targets, self.valid.report)
            self.valid_corpus = self._encoded("valid", self.valid)
        order = {"seed": seed, "pool": data.pool, **self._batch_size()}
        batches = Batches(self._lengths(), shuffle=True, **order)
        self._order = lru_cache(maxsize=1)(batches.order)
        words = self.target_tokenizer.kind in ("words", "bpe")
        self.metric: str = data.metric or ("bleu" if words else "exact")
        self.larger_is_better = self.metric != "loss"

    @classmethod
    def from_config(cls, config: Config, run: Path | None = None) -> "TranslateTask":
        """Make the task of a configuration; with `run`, with the tokenizers of that run."""
        data = read_settings(Data, config.data, "data")
        loss = read_settings(LossSettings, config.loss, "loss")
        return cls(data, config.model, loss, config.seed, run)

    def build(self) -> nn.Module:
        """Build a fresh model for these vocabularies."""
        return build_model(self.model, self.source_tokenizer, self.target_tokenizer)

    def steps(self, epoch: int) -> int:
        """Return how many batches the epoch has."""
        return len(self._order(epoch))

    def batch(self, epoch: int, step: int) -> Batch:
        """Return one batch of the epoch."""
        index = self._order(epoch)[step]
        return self.corpus.batch(index if self.kept is None else self.kept[index].tolist())

    def loss(self, model: Any, batch: Batch) -> Loss:
        """Return the cross entropy of the target tokens, summed, and that of a guided head."""
        guided = self.guided
        recording: Any = recorded([guided_attention(model)]) if guided else nullcontext([])
        with recording as calls:
            features, tokens = target_features(model, batch)
        output: nn.Linear = model.output
        smoothing = self.loss_settings.label_smoothing
        total = vocabulary_loss(
            features, output.weight, output.bias, tokens, label_smoothing=smoothing
        )
        if guided:
            total = total + self.loss_settings.guided * guided.loss(calls, batch)
        return Loss(total, len(tokens))

    @torch.no_grad()
    def evaluate(self, model: Any) -> dict[str, float]:
        """Return loss and accuracy of tokens given those before; decoded, exact match and BLEU."""
        loss, correct, count = 0.0, 0.0, 0.0
        written: dict[int, str] = {}
        for batch in shared(self.evaluation_batches(), model):
            features, tokens = target_features(model, batch)
            for rows, wanted in zip(features.split(ROWS), tokens.split(ROWS), strict=True):
                logits = model.output(rows)
                loss += float(F.cross_entropy(logits, wanted, reduction="sum"))
                correct += int((logits.argmax(-1) == wanted).sum())
            count += len(tokens)
            found = greedy(model, batch.source, batch.source_lengths)
            for index, best in zip(batch.index.tolist(), found, strict=True):
                written[index] = self.target_tokenizer.decode(best.tokens)
        loss, correct, count = summed(loss, correct, count)
        written = {index: text for some in gathered(written) for index, text in some.items()}
        texts = [written[index] for index in range(len(self.valid))]
        metrics = {"loss": loss / count, "accuracy": correct / count, "exact": self._exact(texts)}
        if self.metric == "bleu":
            import sacrebleu

            metrics["bleu"] = sacrebleu.corpus_bleu(texts, [list(self.valid.targets)]).score
        return metrics

    def write(self, run: Path) -> None:
        """Store the tokenizers; frames need none."""
        if self.source_tokenizer is not None:
            self.source_tokenizer.save(run / SOURCE)
        self.target_tokenizer.save(run / TARGET)

    def fingerprint(self) -> dict[str, str]:
        """Return fingerprints of the data, with that of the alignments if there are any."""
        found = super().fingerprint()
        if self.guided:
            found["alignments"] = fingerprint(self.guided.links)
        return found

    def describe(self) -> str:
        """Return statistics of the data as a table."""
        lengths = self._lengths()
        source, target, count = self.source_tokenizer, self.target_tokenizer, self.steps(0)
        rows = {
            "training pairs": f"{len(lengths):,}{self._left_out(len(self.corpus) - len(lengths))}",
            "validation pairs": f"{len(self.valid):,}{self._left_out(self.valid_left_out)}",
            "test pairs": self._count_test(),
            "source": "float frames" if source is None else f"{source.kind}, {len(source):,} kinds",
            "target": f"{target.kind}, {len(target):,} kinds",
            "source tokens": _spread(lengths[:, 0]),
            "target tokens": _spread(lengths[:, 1] - 2),
            "batches an epoch": f"{count:,} of {len(lengths) / count:.0f} pairs",
        }
        longest = lengths.max(1)
        long = int((longest > LONG * max(1, longest.mean())).sum())
        if long and longest.max() > MANY:
            rows["long pairs"] = (
                f"{long:,} of over {LONG} times the average, the longest of {longest.max():,} "
                "tokens; data.longest leaves them out"
            )
        if self.train.report.count:
            rows["bad lines"] = str(self.train.report)
        for number, (text, written) in enumerate(self.train[:EXAMPLES], start=1):
            shown = f"{len(text)} frames" if not isinstance(text, str) else text
            rows[f"example {number}"] = " → ".join(
                side if len(side) <= LETTERS else f"{side[:LETTERS]}…" for side in (shown, written)
            )
        return table(rows)

    def evaluation_batches(self) -> Iterator[Batch]:
        """The validation pairs by length; batches are larger, since no gradient is kept."""
        size = {key: 4 * number for key, number in self._batch_size().items()}
        if "tokens" in size:
            size["tokens"] = max(size["tokens"], int(self.valid_corpus.lengths.sum(1).max()))
        order = Batches(self.valid_corpus.lengths, **size, shuffle=False).order(0)
        return (self.valid_corpus.batch(order[step]) for step in range(len(order)))

    @cached_property
    def _answers(self) -> dict[Any, set[str]]:
        """All targets of a source: a word may have several pronunciations."""
        answers: dict[Any, set[str]] = {}
        for number, (source, target) in enumerate(self.valid):
            answers.setdefault(source if isinstance(source, str) else number, set()).add(target)
        return answers

    def _exact(self, texts: list[str]) -> float:
        """The share of distinct sources that were written as one of their targets."""
        sources = range(len(texts)) if self.source_tokenizer is None else self.valid.sources
        found = dict(zip(sources, texts, strict=True))
        return float(np.mean([text in self._answers[source] for source, text in found.items()]))

    def _batch_size(self) -> dict[str, int]:
        if self.data.sentences is not None:
            return {"sentences": self.data.sentences}
        return {"tokens": self.data.tokens or 4096}

    def _tokenizers(self, run: Path | None) -> tuple[Tokenizer | None, Tokenizer]:
        data, frames = self.data, not isinstance(self.train.sources[0], str)
        source_file, target_file = stored_file(run, SOURCE), stored_file(run, TARGET)
        if source_file is not None and target_file is not None:
            return None if frames else load_tokenizer(source_file), load_tokenizer(target_file)
        known: dict[str, Any] = {**GENERATED, **DATASETS}
        own = known[data.name] if data.name else None
        source = data.source_tokenizer or (own.source if own else None) or "characters"
        target = data.target_tokenizer or (own.target if own else "characters")
        size: dict[str, Any] = {"size": data.vocabulary, "min_count": data.min_count}
        if frames:
            if data.joint or data.source_tokenizer:
                raise ValueError("[data] sources are frames: they have no tokenizer to choose")
            return None, train_tokenizer(target, self.train.targets, **size)
        return train_tokenizers(self.train, source, target, joint=data.joint, **size)

    def _guided(self) -> GuidedAlignment | None:
        """The alignments of the training pairs; None without guided alignment."""
        file = self.data.alignments
        if (file is None) != (self.loss_settings.guided == 0):
            raise ValueError("guided alignment needs both data.alignments and loss.guided > 0")
        if file is None:
            return None
        sources = self.train.sources
        whole = len(sources.entries if isinstance(sources, Picked) else sources)
        try:
            gold = read_alignments((line for _, line in text_lines(file)), whole)
            if isinstance(sources, Picked):
                gold = [gold[int(place)] for place in sources.positions]
            tokenizers = self.source_tokenizer, self.target_tokenizer
            return GuidedAlignment.of(gold, self.train, *tokenizers)
        except ValueError as error:
            raise ValueError(f"data.alignments {file}: {error}") from error

    def _encoded(self, split: str, pairs: Pairs) -> Encoded:
        store = None if self.data.store is None else Path(self.data.store) / split
        return encode_pairs(pairs, self.source_tokenizer, self.target_tokenizer, store=store)

    def _count_test(self) -> str:
        data = self.data
        if data.train is not None and (data.valid is None) != (data.test is None):
            return "the validation pairs"
        return f"{len(self.splits.read('test')):,}"

    def _left_out(self, count: int) -> str:
        return f"; {count:,} longer than {self.data.longest} left out" if count else ""

    def _lengths(self) -> np.ndarray:
        """Of the pairs to train on, (n, 2)."""
        lengths = self.corpus.lengths
        return lengths if self.kept is None else lengths[self.kept]

    def _short_enough(self, corpus: Encoded, purpose: str) -> np.ndarray | None:
        """The positions of pairs that are not longer than `longest`, (n,); None: all of them."""
        longest = self.data.longest
        if longest is None:
            return None
        kept = ((corpus.lengths - np.array([0, 2])).max(axis=1) <= longest).nonzero()[0]
        if not len(kept):
            raise ValueError(f"[data] longest={longest} leaves no pair to {purpose}")
        return kept


def target_features(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return features (n, D) of the n target tokens that are not padding, and the tokens (n,)."""
    given, wanted = batch.target[:, :-1], batch.target[:, 1:]
    features = model(batch.source, batch.source_lengths, given)  # (B, T - 1, D)
    position = torch.arange(given.shape[1], device=given.device)
    real = position < (batch.target_lengths - 1).unsqueeze(1)
    return features[real], wanted[real]


def _spread(lengths: np.ndarray) -> str:
    return f"{lengths.sum():,}; {lengths.mean():.1f} on average, at most {lengths.max()}"
