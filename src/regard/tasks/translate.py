"""Translation and what is like it: a source sequence becomes a target sequence."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from regard.data import (
    DATASETS,
    GENERATED,
    Batch,
    Batches,
    Encoded,
    Order,
    Pairs,
    Tokenizer,
    encode_pairs,
    fingerprint,
    load_tokenizer,
    train_tokenizer,
    train_tokenizers,
)
from regard.decoding import greedy
from regard.tasks.corpus import Data, Picked, Splits
from regard.tasks.translator import SOURCE, TARGET, Translator, build_model
from regard.training import Config, Loss, Settings, read_settings, stored_file, vocabulary_loss

EXAMPLES = 3  # that `describe` shows
ROWS = 512  # target tokens that are judged at a time


class LossSettings(Settings):
    """The table `[loss]`."""

    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="how much of a target's probability goes to all tokens"
    )


class Translate:
    """The task of pairs: tokenizers, batches by length, a model of `build`, greedy decoding.

    Args:
        data: the pairs
        model: `kind`, `preset` and options of `regard.models.build`
        loss: how it is trained
        seed: of the order of batches, and of generated data
    """

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
        self.kept = self._short_enough(self.corpus, "train on")
        valid = self._short_enough(self.valid_corpus, "validate with")
        self.valid_left_out = len(self.valid) - len(valid)
        if self.valid_left_out:
            sources, targets = Picked(self.valid.sources, valid), Picked(self.valid.targets, valid)
            self.valid = Pairs(sources, targets, self.valid.report)
            self.valid_corpus = self._encoded("valid", self.valid)
        self.batches = Batches(
            self.corpus.lengths[self.kept], **self._batch_size(), seed=seed, shuffle=True
        )
        self._order: tuple[int, Order] | None = None
        words = self.target_tokenizer.kind in ("words", "bpe")
        self.metric: str = data.metric or ("bleu" if words else "exact")
        self.larger_is_better = self.metric != "loss"

    @classmethod
    def from_config(cls, config: Config, run: Path | None = None) -> "Translate":
        """The task of a configuration, with the tokenizers of the run if one is given."""
        data = read_settings(Data, config.data, "data")
        loss = read_settings(LossSettings, config.loss, "loss")
        return cls(data, config.model, loss, config.seed, run)

    @classmethod
    def open(cls, run: Path) -> Translator:
        """What `regard.load` gives for a run of this task."""
        return Translator.open(run)

    # -------------------------------------------------------------- what the loop asks

    def build(self) -> nn.Module:
        """A fresh model for these vocabularies."""
        return build_model(self.model, self.source_tokenizer, self.target_tokenizer)

    def steps(self, epoch: int) -> int:
        """How many batches the epoch has."""
        return len(self._epoch(epoch))

    def batch(self, epoch: int, step: int) -> Batch:
        """One batch of the epoch."""
        return self.corpus.batch(self.kept[self._epoch(epoch)[step]].tolist())

    def loss(self, model: Any, batch: Batch) -> Loss:
        """Cross entropy of the real target tokens, summed."""
        features, tokens = real_targets(model, batch)
        output: nn.Linear = model.output
        smoothing = self.loss_settings.label_smoothing
        total = vocabulary_loss(
            features, output.weight, output.bias, tokens, label_smoothing=smoothing
        )
        return Loss(total, len(tokens))

    @torch.no_grad()
    def evaluate(self, model: Any) -> dict[str, float]:
        """Loss and accuracy of tokens, given those before; exact match and BLEU, decoded."""
        loss, right, count = 0.0, 0, 0
        written: dict[int, str] = {}
        for batch in self.evaluation_batches():
            features, tokens = real_targets(model, batch)
            for rows, wanted in zip(features.split(ROWS), tokens.split(ROWS), strict=True):
                logits = model.output(rows)
                loss += float(F.cross_entropy(logits, wanted, reduction="sum"))
                right += int((logits.argmax(-1) == wanted).sum())
            count += len(tokens)
            found = greedy(model, batch.source, batch.source_lengths)
            for index, best in zip(batch.index.tolist(), found, strict=True):
                written[index] = self.target_tokenizer.decode(best.tokens)
        texts = [written[index] for index in range(len(self.valid))]
        figures = {"loss": loss / count, "accuracy": right / count, "exact": self._exact(texts)}
        if self.metric == "bleu":
            import sacrebleu

            figures["bleu"] = sacrebleu.corpus_bleu(texts, [list(self.valid.targets)]).score
        return figures

    def write(self, run: Path) -> None:
        """Store the tokenizers; frames need none."""
        if self.source_tokenizer is not None:
            self.source_tokenizer.save(run / SOURCE)
        self.target_tokenizer.save(run / TARGET)

    def fingerprint(self) -> dict[str, str]:
        """Fingerprints of the data."""
        return {"train": fingerprint(self.train), "valid": fingerprint(self.valid)}

    def describe(self) -> str:
        """Statistics of the data, for people."""
        lengths = self.corpus.lengths[self.kept]
        source = self.source_tokenizer
        per_batch = len(self.kept) / self.steps(0)
        rows = {
            "training pairs": f"{len(self.kept):,}"
            + self._left_out(len(self.corpus) - len(self.kept)),
            "validation pairs": f"{len(self.valid):,}{self._left_out(self.valid_left_out)}",
            "source": "float frames" if source is None else f"{source.kind}, {len(source):,} kinds",
            "target": f"{self.target_tokenizer.kind}, {len(self.target_tokenizer):,} kinds",
            "source tokens": _spread(lengths[:, 0]),
            "target tokens": _spread(lengths[:, 1] - 2),
            "batches an epoch": f"{self.steps(0):,} of {per_batch:.0f} pairs",
        }
        if self.train.report.count:
            rows["bad lines"] = str(self.train.report)
        for text, target in self.train[:EXAMPLES]:
            shown = f"{len(text)} frames" if not isinstance(text, str) else text
            rows[f"example {len(rows)}"] = f"{shown} → {target}"
        names = [name.split(" ")[0] if name.startswith("example") else name for name in rows]
        width = max(map(len, names))
        return "\n".join(
            f"{name:<{width}}  {value}" for name, value in zip(names, rows.values(), strict=True)
        )

    # -------------------------------------------------------------- parts

    def evaluation_batches(self) -> Iterator[Batch]:
        """The pairs for validation, sorted by length; larger batches, since nothing is kept."""
        size = {key: 4 * number for key, number in self._batch_size().items()}
        if "tokens" in size:
            size["tokens"] = max(size["tokens"], int(self.valid_corpus.lengths.sum(1).max()))
        order = Batches(self.valid_corpus.lengths, **size, shuffle=False).order(0)
        return (self.valid_corpus.batch(order[step]) for step in range(len(order)))

    @cached_property
    def _answers(self) -> dict[Any, set[str]]:
        """All targets of a source: a word may be pronounced in several ways."""
        answers: dict[Any, set[str]] = {}
        for number, (source, target) in enumerate(self.valid):
            answers.setdefault(source if isinstance(source, str) else number, set()).add(target)
        return answers

    def _exact(self, texts: list[str]) -> float:
        """Which part of the distinct sources was written as one of their targets."""
        sources = range(len(texts)) if self.source_tokenizer is None else self.valid.sources
        found = dict(zip(sources, texts, strict=True))
        return float(np.mean([text in self._answers[source] for source, text in found.items()]))

    def _epoch(self, epoch: int) -> Order:
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, self.batches.order(epoch)
        return self._order[1]

    def _batch_size(self) -> dict[str, int]:
        if self.data.sentences is not None:
            return {"sentences": self.data.sentences}
        return {"tokens": self.data.tokens or 4096}

    def _tokenizers(self, run: Path | None) -> tuple[Tokenizer | None, Tokenizer]:
        source_file, target_file = stored_file(run, SOURCE), stored_file(run, TARGET)
        if source_file is not None and target_file is not None:
            frames = not isinstance(self.train.sources[0], str)
            return None if frames else load_tokenizer(source_file), load_tokenizer(target_file)
        data = self.data
        known: dict[str, Any] = {**GENERATED, **DATASETS}
        own = known[data.name] if data.name else None
        source = data.source_tokenizer or (own.source if own else None) or "characters"
        target = data.target_tokenizer or (own.target if own else "characters")
        size: dict[str, Any] = {"size": data.vocabulary, "min_count": data.min_count}
        if not isinstance(self.train.sources[0], str):
            if data.joint or data.source_tokenizer:
                raise ValueError("[data] sources are frames: they have no tokenizer to choose")
            return None, train_tokenizer(target, self.train.targets, **size)
        return train_tokenizers(self.train, source, target, joint=data.joint, **size)

    def _encoded(self, split: str, pairs: Pairs) -> Encoded:
        store = None if self.data.store is None else Path(self.data.store) / split
        return encode_pairs(pairs, self.source_tokenizer, self.target_tokenizer, store=store)

    def _left_out(self, count: int) -> str:
        return f"; {count:,} longer than {self.data.longest} left out" if count else ""

    def _short_enough(self, corpus: Encoded, purpose: str) -> np.ndarray:
        """The positions of pairs that are not longer than `longest`, (n,)."""
        lengths = corpus.lengths - np.array([0, 2])
        longest = self.data.longest
        kept = np.arange(len(lengths))
        if longest is not None:
            kept = (lengths.max(axis=1) <= longest).nonzero()[0]
            if not len(kept):
                raise ValueError(f"[data] longest={longest} leaves no pair to {purpose}")
        return kept


def real_targets(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Features (n, D) of the n target tokens that are no padding, and those tokens (n,)."""
    given, wanted = batch.target[:, :-1], batch.target[:, 1:]
    features = model(batch.source, batch.source_lengths, given)  # (B, T - 1, D)
    position = torch.arange(given.shape[1])
    real = position < (batch.target_lengths - 1).unsqueeze(1)
    return features[real], wanted[real]


def _spread(lengths: np.ndarray) -> str:
    return f"{lengths.sum():,}; {lengths.mean():.1f} on average, at most {lengths.max()}"
