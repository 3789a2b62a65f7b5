"""Classification of documents by a hierarchical attention network."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from regard.core.map import AttentionMap
from regard.data import (
    Batches,
    Tokenizer,
    load_or_train_tokenizer,
    load_tokenizer,
    train_tokenizer,
)
from regard.data.datasets import data_file
from regard.data.labelled import Labelled, generate_documents, read_documents
from regard.data.sentences import (
    Document,
    DocumentBatch,
    collate_documents,
    document_pieces,
    encode_document,
    sentences,
)
from regard.evaluation import ClassificationReport
from regard.models.classifier import DocumentClassifier
from regard.tasks.classification import (
    Classification,
    class_report,
    classification_loss,
    classification_metrics,
    labelled_metrics,
    split_labelled,
    split_sizes,
    table,
)
from regard.tasks.predictor import Predictor, check_inputs, field
from regard.tasks.run import load_classes, load_model, load_stored_classes, save_classes
from regard.tasks.settings import ConfiguredTask, Count, Share, Table
from regard.trace import Call, Trace
from regard.training import Config, Loss, Settings, read_settings, stored_file
from regard.training.processes import shared
from regard.training.run_directory import read_run_config

TOKENIZER = "tokenizer.json"
BATCH = 32  # documents that a classifier reads at a time
# file in the data folder, and the columns of text and class
KNOWN = {
    "movie_reviews": ("movie_reviews/movie_reviews.zip", "text", "label"),
    "nsmc": ("nsmc/train.tsv.gz", "document", "label"),
}


class Data(Table):
    """The table `[data]`; without `name` and `path` documents are generated."""

    name: Literal["movie_reviews", "nsmc"] | None = Field(
        None, description="without name and path, reviews are generated"
    )
    path: str | None = Field(
        None,
        description="a .csv, .tsv, .jsonl (.gz or .zst of them), .parquet or .zip, or a directory "
        "of save_to_disk",
    )
    format: Literal["csv", "tsv", "jsonl", "parquet", "dataset", "zip"] | None = Field(  # type: ignore[assignment]
        None, description="by default, by the name; dataset is a directory of save_to_disk"
    )
    text: int | str = Field("text", description="the column, or key, of the text")
    label: int | str = Field("label", description="the column, or key, of the class")
    fold: int | None = Field(None, ge=0, description="the fold to test on, if the data has folds")
    test: Share = Field(0.1, description="share of the documents to test on, without folds")
    valid: Share = Field(0.1, gt=0, description="share of the others for validation")
    tokenizer: str = Field("words", description="words, characters or bpe")
    size: Count | None = Field(None, description="the largest number of tokens")
    min_count: Count = Field(1, description="rarer tokens are unknown")
    max_words: Count = Field(50, description="longer sentences are split")
    max_sentences: Count = Field(60, description="of longer documents the end is read")
    batch: Count = Field(32, description="documents in a batch")
    count: int = Field(2000, ge=40, description="documents to generate")


class Model(Settings):
    """The table `[model]`: the options of `DocumentClassifier`."""

    dim: Count = Field(100, description="width of the embeddings")
    hidden: Count = Field(50, description="width of the recurrent states, each way")
    encoder: Literal["gru", "window", "none"] = Field(
        "gru", description="how the neighbours of a word or sentence are read"
    )
    dropout: Share = Field(0.5, description="of embeddings and layers")
    word_dropout: Share = Field(0.0, description="share of words left out in training")
    presence: bool = Field(
        False, description="whether a word counts once in a document, however often it occurs"
    )
    scale: float = Field(1.0, gt=0, description="factor of the embeddings")


class Classifier(Predictor):
    """A document classifier with its tokenizer and classes: a run of the task classify.

    >>> from regard.data import train_tokenizer
    >>> words = train_tokenizer("words", ["a good film", "a bad film"])
    >>> model = DocumentClassifier(len(words), 2, dim=5, hidden=3)
    >>> classifier = Classifier(model, words, ["neg", "pos"])
    >>> classifier.classify(["A film. A good one."])[0].label in ("neg", "pos")
    True
    >>> trace = classifier.trace("A film. A good one.")
    >>> trace["sentences"].shape, trace["words"].shape
    (torch.Size([1, 1, 2]), torch.Size([1, 2, 7]))

    Args:
        model: a trained model
        tokenizer: of its words
        classes: their names, in the order of the logits
        config: of the run
        max_words: longer sentences are split
        max_sentences: of longer documents the end is read
    """

    task: ClassVar[str] = "classify"

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Tokenizer,
        classes: Sequence[str],
        config: Config | None = None,
        *,
        max_words: int = 50,
        max_sentences: int = 60,
    ) -> None:
        self.model, self.tokenizer, self.classes = model.eval(), tokenizer, list(classes)
        self.config = config
        self.limits = {"max_words": max_words, "max_sentences": max_sentences}

    @classmethod
    def from_run(cls, directory: str | Path, device: str = "cpu") -> "Classifier":
        """Load a run directory of the task classify."""
        run, config = Path(directory), read_run_config(directory)
        data = read_settings(Data, config.data, "data")
        options = read_settings(Model, config.model, "model")
        tokenizer, classes = load_tokenizer(run / TOKENIZER), load_classes(run)
        model = load_model(partial(_build, options, tokenizer, classes), run, device)
        limits = {"max_words": data.max_words, "max_sentences": data.max_sentences}
        return cls(model, tokenizer, classes, config, **limits)

    def classify(self, texts: Sequence[str]) -> list[Classification]:
        """Classify documents; the same as `predict`."""
        return self.predict(texts)

    @torch.no_grad()
    def predict(self, inputs: Sequence[str]) -> list[Classification]:
        """Classify documents; an empty one is read as one unknown word."""
        check_inputs(inputs, "texts")
        return [
            Classification.of(logits, self.classes)
            for start in range(0, len(inputs), BATCH)
            for logits in self._read(inputs[start : start + BATCH]).logits
        ]

    @torch.no_grad()
    def trace(self, input: str) -> Trace:
        """Return which words and sentences the class of a document rests on.

        "words" has a row for each sentence, with the weights of its words among all words of the
        document; "sentences" has the weights of the sentences; "document" is their product, the
        weight of each word in the document.
        """
        if not input.strip():
            raise ValueError("a document needs at least one word")
        pieces = document_pieces(input, self.tokenizer, **self.limits)
        found = self._read([input])
        lengths = [len(part) for part in pieces]
        dense = found.word_map.dense()[0, :, 0]  # (sentences, longest)
        words = torch.zeros(len(pieces), sum(lengths))
        for row, (start, end) in enumerate(pairwise(accumulate(lengths, initial=0))):
            words[row, start:end] = dense[row, : end - start]
        parts = found.sentence_map.dense()[0, :, : len(pieces)].cpu()  # (1, sentences)
        predicted = Classification.of(found.logits[0], self.classes)
        calls = [
            Call("words", AttentionMap.of(words[None]), "sentence", "word"),
            Call("sentences", AttentionMap.of(parts[None]), "document", "sentence"),
            Call("document", AttentionMap.of((parts @ words)[None]), "document", "word"),
        ]
        tokens = {
            "word": [word for part in pieces for word in part],
            "sentence": [f"sentence {number}" for number in range(1, len(pieces) + 1)],
            "document": [predicted.label],
        }
        about = {"task": self.task, "text": input, "sentence_lengths": lengths}
        return Trace(calls, tokens, about | {"title": str(predicted), **predicted._asdict()})

    def parse(self, record: str | Mapping[str, Any]) -> str:
        """Return a line as it is, or `text` of a JSON object."""
        text = record if isinstance(record, str) else field(record, "text")
        if not text.strip():
            raise ValueError("a document needs at least one word")
        return text

    def examples(self, count: int, split: str = "test") -> list[str]:
        """Return documents of a split of the run's data."""
        return split_documents(self.data_settings(Data), self.seed)[split].inputs[:count]

    @torch.no_grad()
    def evaluate(self, path: str | Path, **settings: Any) -> dict[str, float]:
        """Return accuracy and loss of the documents of a file."""
        documents = self._labelled(path, "test", settings)
        return labelled_metrics(documents, lambda texts: self._read(texts).logits, BATCH)

    def report(
        self,
        path: str | Path | None = None,
        *,
        split: str = "test",
        shown: int = 5,
        **settings: Any,
    ) -> ClassificationReport:
        """Return how well the classes of documents are predicted; see `Predictor.report`."""
        return class_report(self, self._labelled(path, split, settings), self.classes, shown)

    def _labelled(
        self, path: str | Path | None, split: str, settings: Mapping[str, Any]
    ) -> Labelled[str]:
        if path is None:
            return split_documents(self.data_settings(Data), self.seed, self.classes)[split]
        return _read(self.file_settings(Data, path, settings), self.seed, self.classes)

    def _read(self, texts: Sequence[str]) -> Any:
        """What the model returns for some documents."""
        encoded = [encode_document(text, self.tokenizer, **self.limits) for text in texts]
        batch = collate_documents(encoded, [0] * len(encoded))
        device = self.device
        return self.model(*(part.to(device) for part in batch[:3]))


def _build(options: Model, tokenizer: Tokenizer, classes: Sequence[str]) -> DocumentClassifier:
    return DocumentClassifier(len(tokenizer), len(classes), **options.model_dump())


class ClassifyTask(ConfiguredTask):
    """Documents with a class.

    Args:
        data: the documents
        model: options of the model
        seed: of the splits, of the order of batches, and of generated documents
        run: a run directory whose tokenizer and classes are used, instead of new ones
    """

    predictor = Classifier
    tables = (("data", Data), ("model", Model))
    unit = "documents"
    metric = "accuracy"
    larger_is_better = True

    def __init__(self, data: Data, model: Model, seed: int = 1, run: Path | None = None) -> None:
        self.data, self.model, self.seed = data, model, seed
        splits = split_documents(data, seed, load_stored_classes(run))
        self.train, self.valid, self.test = splits["train"], splits["valid"], splits["test"]
        self.tokenizer = load_or_train_tokenizer(
            stored_file(run, TOKENIZER),
            lambda: train_tokenizer(
                data.tokenizer,
                (part for text in self.train.inputs for part in sentences(text)),
                size=data.size,
                min_count=data.min_count,
            ),
        )
        limits = {"max_words": data.max_words, "max_sentences": data.max_sentences}
        self.encoded = {
            name: [encode_document(text, self.tokenizer, **limits) for text in split.inputs]
            for name, split in splits.items()
        }
        batches = _batches(self.encoded["train"], data.batch, seed, shuffle=True)
        self._order = lru_cache(maxsize=1)(batches.order)

    def build(self) -> DocumentClassifier:
        """Build a fresh model for this vocabulary and these classes."""
        return _build(self.model, self.tokenizer, self.train.classes)

    def steps(self, epoch: int) -> int:
        """Return how many batches the epoch has."""
        return len(self._order(epoch))

    def batch(self, epoch: int, step: int) -> DocumentBatch:
        """Return one batch of the epoch: documents of about as many sentences."""
        return self._collated("train", self._order(epoch)[step])

    def loss(self, model: nn.Module, batch: DocumentBatch) -> Loss:
        """Return the cross entropy, summed over documents."""
        return classification_loss(model(*batch[:3]).logits, batch.labels)

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Return accuracy and loss of validation, and the accuracy of test."""
        metrics = classification_metrics(self._logits(model, "valid"))
        if len(self.test):
            test = classification_metrics(self._logits(model, "test"))
            metrics["test_accuracy"] = test["accuracy"]
        return metrics

    def write(self, run: Path) -> None:
        """Store the tokenizer and the names of the classes."""
        self.tokenizer.save(run / TOKENIZER)
        save_classes(self.train.classes, run)

    def describe(self) -> str:
        """Return statistics of the data as a table."""
        counts = np.bincount(self.train.labels, minlength=len(self.train.classes))
        per_class = zip(self.train.classes, counts, strict=True)
        train = self.encoded["train"]
        words = sum(len(document.ids) for document in train)
        unknown = sum(int((document.ids == self.tokenizer.unk).sum()) for document in train)
        parts = sum(len(document.lengths) for document in train)
        return table(
            {
                "documents": split_sizes(self.train, self.valid, self.test),
                "classes": ", ".join(f"{name} {count:,}" for name, count in per_class),
                "a document": f"{parts / len(train):.1f} sentences, {words / len(train):.0f} words",
                "tokens": f"{self.tokenizer.kind}, {len(self.tokenizer):,} kinds, "
                f"{unknown / words:.1%} unknown",
                "example": " / ".join(sentences(self.train.inputs[0]))[:160],
            }
        )

    def _logits(self, model: nn.Module, split: str) -> Iterator[tuple[Tensor, Tensor]]:
        order = _batches(self.encoded[split], self.data.batch, self.seed, shuffle=False).order(0)
        for batch in shared((self._collated(split, places) for places in order), model):
            yield model(*batch[:3]).logits, batch.labels

    def _collated(self, split: str, places: Sequence[int]) -> DocumentBatch:
        documents, labels = self.encoded[split], getattr(self, split).labels
        return collate_documents([documents[i] for i in places], [labels[i] for i in places])


def split_documents(
    data: Data, seed: int, classes: list[str] | None = None
) -> dict[str, Labelled[str]]:
    """Return the documents of "train", "valid" and "test".

    Args:
        data: where they are
        seed: of the splits, and of generated documents
        classes: of a run, to number the labels by; those of the data if None
    """
    documents = _read(data, seed, classes)
    return split_labelled(documents, data.test, data.valid, seed, data.fold)


def _read(data: Data, seed: int, classes: list[str] | None) -> Labelled[str]:
    if data.name is not None:
        file, text, label = KNOWN[data.name]
        path = data_file(data.name, file, data.folder)
        # a few of NSMC's reviews are empty
        return read_documents(path, text=text, label=label, bad="skip", classes=classes)
    if data.path is not None:
        columns = {"text", "label", "format", "encoding", "delimiter", "bad"}
        options = data.model_dump(include=columns)
        return read_documents(data.path, **options, classes=classes)
    return generate_documents(data.count, seed=seed)


def _batches(documents: list[Document], size: int, seed: int, *, shuffle: bool) -> Batches:
    lengths = [(document.lengths.max(), len(document.lengths)) for document in documents]
    return Batches(np.array(lengths), sentences=size, seed=seed, shuffle=shuffle)
