"""Classification of documents by a hierarchical attention network."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import nn

from regard.data import (
    Batches,
    Order,
    fingerprint,
    load_or_train_tokenizer,
    train_tokenizer,
)
from regard.data.datasets import data_file
from regard.data.documents import Documents, generate_documents, read_documents
from regard.data.sentences import (
    Document,
    DocumentBatch,
    collate_documents,
    encode_document,
    sentences,
)
from regard.models.classifier import DocumentClassifier
from regard.tasks.classifier import (
    CLASSES,
    TOKENIZER,
    Classifier,
    Model,
    read_classes,
    write_classes,
)
from regard.tasks.tables import NamedOrFile, NoLoss
from regard.training import Loss, stored_file
from regard.training.config import Config
from regard.training.settings import read_settings

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]

# where in the data folder, and the columns of text and class
KNOWN = {
    "movie_reviews": ("movie_reviews/movie_reviews.zip", "text", "label"),
    "nsmc": ("nsmc/train.tsv.gz", "document", "label"),
}


class Data(NamedOrFile):
    """The table `[data]`; without `name` and `path` documents are generated."""

    name: Literal["movie_reviews", "nsmc"] | None = None
    path: str | None = Field(None, description="a .csv, .tsv, .jsonl (or .gz of them) or .zip")
    text: str = Field("text", description="the column, or key, of the text")
    label: str = Field("label", description="the column, or key, of the class")
    bad: Literal["refuse", "skip"] = Field("refuse", description="what rows without a text meet")
    fold: int | None = Field(None, ge=0, description="the fold to test on, if the data has folds")
    test: Share = Field(0.1, description="the share of documents to test on, without folds")
    valid: Share = Field(0.1, gt=0, description="the share of the others for validation")
    tokenizer: str = Field("words", description="words, characters or bpe")
    size: Count | None = Field(None, description="the largest number of tokens")
    min_count: Count = Field(1, description="leave out tokens that are rarer")
    max_words: Count = Field(50, description="a longer sentence goes on in another one")
    max_sentences: Count = Field(60, description="of a longer document the end is read")
    batch: Count = Field(32, description="documents in a batch")
    count: int = Field(2000, ge=40, description="documents to generate")


class Classify:
    """The task of documents with a class.

    Args:
        data: the documents
        model: options of the model
        seed: of the splits, of the order of batches, and of generated documents
    """

    unit = "documents"
    metric = "accuracy"
    larger_is_better = True

    def __init__(self, data: Data, model: Model, seed: int = 1, run: Path | None = None) -> None:
        self.data, self.model, self.seed = data, model, seed
        documents = _read(data, seed)
        if classes := stored_file(run, CLASSES):
            documents = documents.with_classes(read_classes(classes))
        self.train, self.valid, self.test = (
            documents.choose(places) for places in _split(documents, data, seed)
        )
        self.tokenizer = load_or_train_tokenizer(
            stored_file(run, TOKENIZER),
            lambda: train_tokenizer(
                data.tokenizer,
                (part for text in self.train.texts for part in sentences(text)),
                size=data.size,
                min_count=data.min_count,
            ),
        )
        self.encoded = {name: self._encoded(name) for name in ("train", "valid", "test")}
        self.batches = _batches(self.encoded["train"], data.batch, seed, shuffle=True)
        self._order: tuple[int, Order] | None = None

    @classmethod
    def from_config(cls, config: Config, run: Path | None = None) -> "Classify":
        """The task of a configuration, with tokenizers and classes of the run if one is given."""
        read_settings(NoLoss, config.loss, "loss")
        data = read_settings(Data, config.data, "data")
        return cls(data, read_settings(Model, config.model, "model"), config.seed, run)

    @classmethod
    def open(cls, run: Path) -> Classifier:
        """What `regard.load` gives for a run of this task."""
        return Classifier.open(run)

    # -------------------------------------------------------------- what the loop asks

    def build(self) -> DocumentClassifier:
        """A fresh model for this vocabulary and these classes."""
        options = self.model.model_dump()
        return DocumentClassifier(len(self.tokenizer), len(self.train.classes), **options)

    def steps(self, epoch: int) -> int:
        """How many batches the epoch has."""
        return len(self._epoch(epoch))

    def batch(self, epoch: int, step: int) -> DocumentBatch:
        """One batch of the epoch: documents of about as many sentences."""
        return self._collated("train", self._epoch(epoch)[step])

    def loss(self, model: nn.Module, batch: DocumentBatch) -> Loss:
        """Cross entropy, summed over documents."""
        logits = model(*batch[:3]).logits
        return Loss(F.cross_entropy(logits, batch.labels, reduction="sum"), len(batch.labels))

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Accuracy and loss of validation, which choose the model, and the accuracy of test."""
        figures = self._figures(model, "valid")
        if len(self.test):
            figures["test_accuracy"] = self._figures(model, "test")["accuracy"]
        return figures

    def write(self, run: Path) -> None:
        """Store the tokenizer and the names of the classes."""
        self.tokenizer.save(run / TOKENIZER)
        write_classes(self.train.classes, run / CLASSES)

    def fingerprint(self) -> dict[str, str]:
        """Fingerprints of the data."""
        return {"train": fingerprint(self.train), "valid": fingerprint(self.valid)}

    def describe(self) -> str:
        """Statistics of the data, for people."""
        counts = np.bincount(self.train.labels, minlength=len(self.train.classes))
        per_class = ", ".join(
            f"{name} {count:,}" for name, count in zip(self.train.classes, counts, strict=True)
        )
        train = self.encoded["train"]
        words = sum(len(document.ids) for document in train)
        unknown = sum(int((document.ids == self.tokenizer.unk).sum()) for document in train)
        parts = sum(len(document.lengths) for document in train)
        rows = {
            "documents": f"{len(self.train):,} for training, {len(self.valid):,} for validation, "
            f"{len(self.test):,} for test",
            "classes": per_class,
            "a document": f"{parts / len(train):.1f} sentences, {words / len(train):.0f} words",
            "tokens": f"{self.tokenizer.kind}, {len(self.tokenizer):,} kinds, "
            f"{unknown / words:.1%} unknown",
            "example": " / ".join(sentences(self.train.texts[0]))[:160],
        }
        return "\n".join(f"{name:<12}{value}" for name, value in rows.items())

    # -------------------------------------------------------------- batches

    def _figures(self, model: nn.Module, split: str) -> dict[str, float]:
        loss, right = 0.0, 0
        for batch in self._in_order(split):
            logits = model(*batch[:3]).logits
            loss += float(F.cross_entropy(logits, batch.labels, reduction="sum"))
            right += int((logits.argmax(-1) == batch.labels).sum())
        count = len(self.encoded[split])
        return {"accuracy": right / count, "loss": loss / count}

    def _in_order(self, split: str) -> Iterator[DocumentBatch]:
        order = _batches(self.encoded[split], self.data.batch, self.seed, shuffle=False).order(0)
        for places in order:
            yield self._collated(split, places)

    def _collated(self, split: str, places: Sequence[int]) -> DocumentBatch:
        documents, labels = self.encoded[split], getattr(self, split).labels
        return collate_documents([documents[i] for i in places], [labels[i] for i in places])

    def _epoch(self, epoch: int) -> Order:
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, self.batches.order(epoch)
        return self._order[1]

    def _encoded(self, split: str) -> list[Document]:
        limits = {"max_words": self.data.max_words, "max_sentences": self.data.max_sentences}
        texts = getattr(self, split).texts
        return [encode_document(text, self.tokenizer, **limits) for text in texts]


def _read(data: Data, seed: int) -> Documents:
    if data.name is not None:
        file, text, label = KNOWN[data.name]
        path = data_file(data.name, file, data.folder)
        # a few of NSMC's reviews are empty
        return read_documents(path, text=text, label=label, bad="skip")
    if data.path is not None:
        return read_documents(data.path, text=data.text, label=data.label, bad=data.bad)
    return generate_documents(data.count, seed=seed)


def _split(documents: Documents, data: Data, seed: int) -> list[list[int]]:
    """Places of the documents for training, validation and test."""
    order = np.random.default_rng(seed).permutation(len(documents)).tolist()
    if data.fold is None:
        held = round(data.test * len(order))
        test, rest = order[:held], order[held:]
    elif documents.folds is None:
        raise ValueError(f"data.fold={data.fold}, but these documents have no folds; leave it out")
    elif data.fold not in documents.folds:
        known = ", ".join(map(str, sorted(set(documents.folds))))
        raise ValueError(f"data.fold={data.fold}, but the folds of the data are {known}")
    else:
        folds = documents.folds
        test = [i for i in order if folds[i] == data.fold]
        rest = [i for i in order if folds[i] != data.fold]
    valid = max(1, round(data.valid * len(rest)))
    if len(rest) - valid < 1:
        raise ValueError(
            f"of {len(documents)} documents none would be left for training; lower data.test and "
            "data.valid, or bring more documents"
        )
    return [rest[valid:], rest[:valid], test]


def _batches(documents: list[Document], size: int, seed: int, *, shuffle: bool) -> Batches:
    lengths = [(document.lengths.max(), len(document.lengths)) for document in documents]
    return Batches(np.array(lengths), sentences=size, seed=seed, shuffle=shuffle)
