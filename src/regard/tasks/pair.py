"""Pairs of inputs with a class: a text and its translation, or a question and a picture."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from regard.data import (
    Tokenizer,
    fingerprint,
    load_or_train_tokenizer,
    read_dataset,
    train_tokenizer,
)
from regard.data.matched import Matched, read_matched, shuffled
from regard.data.scenes import generate_questions
from regard.models.pair import PairClassifier
from regard.tasks.classifier import CLASSES, read_classes, write_classes
from regard.tasks.judge import LEFT, RIGHT, Judge, Model, PairBatch, build_pair_model, pair_batch
from regard.tasks.tables import NamedOrFile, NoLoss
from regard.training import Loss, stored_file
from regard.training.config import Config
from regard.training.settings import read_settings

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, lt=1)]


class Data(NamedOrFile):
    """The table `[data]`; without `name` and `path` scenes with questions are generated."""

    name: Literal["scenes", "tatoeba"] | None = None
    path: str | None = Field(None, description="a .tsv (or .gz) of two texts and a label")
    left: int = Field(0, ge=0, description="column of the first text")
    right: int = Field(1, ge=0, description="column of the second text")
    label: int = Field(2, ge=0, description="column of the label")
    bad: Literal["refuse", "skip"] = Field("refuse", description="what lines without a pair meet")
    test: Share = Field(0.1, description="the share of pairs to test on, of a file")
    valid: Share = Field(0.1, description="the share of the others for validation, of a file")
    tokenizer: str | None = Field(None, description="words, characters or bpe; by default bpe")
    size: Count | None = Field(None, description="the largest number of tokens of each side")
    batch: Count = Field(64, description="pairs in a batch")
    count: int = Field(8000, ge=20, multiple_of=2, description="questions to generate")


class Pair:
    """The task of two inputs and a class.

    Args:
        data: the pairs
        model: options of the model
        seed: of splits, of the order of batches, of generated scenes and of shuffled translations
    """

    unit = "pairs"
    metric = "accuracy"
    larger_is_better = True

    def __init__(self, data: Data, model: Model, seed: int = 1, run: Path | None = None) -> None:
        self.data, self.model, self.seed = data, model, seed
        self.translations = None
        if data.name == "tatoeba":
            splits = ("train", "valid", "test")
            pairs = {split: read_dataset("tatoeba", split, folder=data.folder) for split in splits}
            self.translations = pairs["train"]
            self.train, self.valid, self.test = (
                shuffled(pairs[split], seed=(seed, n)) for n, split in enumerate(splits)
            )
        else:
            self.train, self.valid, self.test = _splits(data, seed)
        if classes := stored_file(run, CLASSES):
            known = read_classes(classes)
            self.train, self.valid, self.test = (
                part.with_classes(known) for part in (self.train, self.valid, self.test)
            )
        self.scenes = not isinstance(self.train.rights[0], str)
        kind = data.tokenizer or ("words" if self.scenes else "bpe")
        size = data.size or (2000 if kind == "bpe" else None)
        self.left = load_or_train_tokenizer(
            stored_file(run, LEFT), lambda: train_tokenizer(kind, self.train.lefts, size=size)
        )
        self.right: Tokenizer | None = None
        if not self.scenes:
            texts = [str(text) for text in self.train.rights]
            self.right = load_or_train_tokenizer(
                stored_file(run, RIGHT), lambda: train_tokenizer(kind, texts, size=size)
            )
        self._epoch: tuple[int, Matched, np.ndarray] | None = None

    @classmethod
    def from_config(cls, config: Config, run: Path | None = None) -> "Pair":
        """The task of a configuration, with tokenizers and classes of the run if one is given."""
        read_settings(NoLoss, config.loss, "loss")
        data = read_settings(Data, config.data, "data")
        return cls(data, read_settings(Model, config.model, "model"), config.seed, run)

    @classmethod
    def open(cls, run: Path) -> Judge:
        """What `regard.load` gives for a run of this task."""
        return Judge.open(run)

    # -------------------------------------------------------------- what the loop asks

    def build(self) -> PairClassifier:
        """A fresh model for these inputs."""
        return build_pair_model(self.model, len(self.train.classes), self.left, self.right)

    def steps(self, epoch: int) -> int:
        """How many batches the epoch has."""
        return -(-len(self.train) // self.data.batch)

    def batch(self, epoch: int, step: int) -> PairBatch:
        """One batch of the epoch; translations are shuffled anew in each epoch."""
        if self._epoch is None or self._epoch[0] != epoch:
            pairs = self.train
            if self.translations is not None:
                pairs = shuffled(self.translations, seed=(self.seed, 3, epoch))
            order = np.random.default_rng((self.seed, epoch)).permutation(len(pairs))
            self._epoch = epoch, pairs, order
        _, pairs, order = self._epoch
        size = self.data.batch
        return self._collated(pairs, order[step * size : (step + 1) * size].tolist())

    def loss(self, model: nn.Module, batch: PairBatch) -> Loss:
        """Cross entropy, summed over pairs."""
        logits, _ = model(*batch[:4])
        return Loss(F.cross_entropy(logits, batch.labels, reduction="sum"), len(batch.labels))

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Accuracy and loss of validation, which choose the model, and the accuracy of test."""
        figures = self._figures(model, self.valid)
        return {**figures, "test_accuracy": self._figures(model, self.test)["accuracy"]}

    def write(self, run: Path) -> None:
        """Store the tokenizers and the names of the classes."""
        self.left.save(run / LEFT)
        if self.right is not None:
            self.right.save(run / RIGHT)
        write_classes(self.train.classes, run / CLASSES)

    def fingerprint(self) -> dict[str, str]:
        """Fingerprints of the data."""
        return {"train": fingerprint(self.train), "valid": fingerprint(self.valid)}

    def describe(self) -> str:
        """Statistics of the data, for people."""
        first = self.train.rights[0]
        rows = {
            "pairs": f"{len(self.train):,} for training, {len(self.valid):,} for validation, "
            f"{len(self.test):,} for test",
            "classes": ", ".join(self.train.classes),
            "left": f"{self.left.kind}, {len(self.left):,} kinds",
            "right": "scenes"
            if self.right is None
            else f"{self.right.kind}, {len(self.right):,} kinds",
            "example": f"{self.train.lefts[0]} | "
            + (first if isinstance(first, str) else ", ".join(filter("·".__ne__, first.names()))),
        }
        return "\n".join(f"{name:<12}{value}" for name, value in rows.items())

    def bag_of_words(self) -> float:
        """Accuracy on test of a linear model on which words, and things, each side has."""
        answers = bag_of_words(self.train, self.test, self.left, self.right)
        return float((answers == torch.tensor(self.test.labels)).float().mean())

    # -------------------------------------------------------------- batches

    def _collated(self, pairs: Matched, places: Sequence[int]) -> PairBatch:
        lefts, rights = [pairs.lefts[i] for i in places], [pairs.rights[i] for i in places]
        return pair_batch(lefts, rights, [pairs.labels[i] for i in places], self.left, self.right)

    def _in_order(self, pairs: Matched) -> Iterator[PairBatch]:
        for start in range(0, len(pairs), self.data.batch):
            yield self._collated(pairs, range(start, min(start + self.data.batch, len(pairs))))

    def _figures(self, model: nn.Module, pairs: Matched) -> dict[str, float]:
        loss, right = 0.0, 0
        for batch in self._in_order(pairs):
            logits, _ = model(*batch[:4])
            loss += float(F.cross_entropy(logits, batch.labels, reduction="sum"))
            right += int((logits.argmax(-1) == batch.labels).sum())
        return {"accuracy": right / len(pairs), "loss": loss / len(pairs)}


def bag_of_words(
    train: Matched, test: Matched, left: Tokenizer, right: Tokenizer | None, *, steps: int = 300
) -> Tensor:
    """Answers (N,) to test of logistic regression on both bags of words, things being words."""

    def bags(pairs: Matched) -> Tensor:
        names = [[] if isinstance(r, str) else r.names() for r in pairs.rights]
        found = torch.zeros(len(pairs), len(left) + (len(right) if right else len(things)))
        for row, (text, other) in enumerate(zip(pairs.lefts, pairs.rights, strict=True)):
            found[row, left.encode(text)] = 1.0
            places = right.encode(str(other)) if right else [things[name] for name in names[row]]
            found[row, [len(left) + place for place in places]] = 1.0
        return found

    scenes = [scene for scene in train.rights if not isinstance(scene, str)]
    things = {name: n for n, name in enumerate(sorted({n for s in scenes for n in s.names()}))}
    x, y = bags(train), torch.tensor(train.labels)
    model = nn.Linear(x.shape[1], len(train.classes))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03, weight_decay=1e-4)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        return model(bags(test)).argmax(-1)


def _splits(data: Data, seed: int) -> tuple[Matched, Matched, Matched]:
    if data.path is None:
        counts = (data.count, 1000, 1000)
        made = [generate_questions(count, seed=3 * seed + n) for n, count in enumerate(counts)]
        train, valid, test = (
            Matched(
                [question.text for question in questions],
                [question.scene for question in questions],
                [int(question.answer == "yes") for question in questions],
                ["no", "yes"],
            )
            for questions in made
        )
        return train, valid, test
    columns = {"left": data.left, "right": data.right, "label": data.label}
    pairs = read_matched(data.path, **columns, bad=data.bad)
    order = np.random.default_rng(seed).permutation(len(pairs)).tolist()
    held = max(1, round(data.test * len(order)))
    check = max(1, round(data.valid * (len(order) - held)))
    if len(order) - held - check < 1:
        raise ValueError(f"{data.path} has {len(order)} pairs, too few to hold some out")
    return (
        _chosen(pairs, order[held + check :]),
        _chosen(pairs, order[held : held + check]),
        _chosen(pairs, order[:held]),
    )


def _chosen(pairs: Matched, places: Sequence[int]) -> Matched:
    return Matched(
        [pairs.lefts[i] for i in places],
        [pairs.rights[i] for i in places],  # type: ignore[arg-type]
        [pairs.labels[i] for i in places],
        pairs.classes,
    )
