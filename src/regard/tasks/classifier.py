"""A trained model that classifies documents: what `regard.load` gives for a run of `classify`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field

from regard.data import Tokenizer, load_tokenizer
from regard.data.lines import readable
from regard.data.sentences import collate_documents, document_pieces, encode_document
from regard.models.classifier import DocumentClassifier
from regard.tasks.run import load_weights
from regard.training.run_directory import read_run_config
from regard.training.settings import Settings, read_settings
from regard.visual.document import ShadedDocument

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
TOKENIZER, CLASSES = "tokenizer.json", "classes.json"
TOGETHER = 32  # documents that are read at a time


class Model(Settings):
    """The table `[model]`: the options of `DocumentClassifier`."""

    dim: Count = 100
    hidden: Count = 50
    encoder: Literal["gru", "window", "none"] = "gru"
    dropout: Share = 0.5
    word_dropout: Share = 0.0


class Classification(NamedTuple):
    """The class of a document, and how sure the model is of each class."""

    label: str
    probabilities: dict[str, float]
    document: ShadedDocument  # its sentences and words with their weights


class Classifier:
    """A model, its tokenizer and the names of its classes.

    >>> from regard.data import train_tokenizer
    >>> words = train_tokenizer("words", ["a good film", "a bad film"])
    >>> model = DocumentClassifier(len(words), 2, dim=5, hidden=3)
    >>> (found,) = Classifier(model, words, ["neg", "pos"]).classify(["A film. A good one."])
    >>> found.document.sentences, round(sum(found.document.sentence_weights), 5)
    ([['A', ' film', '.'], ['A', ' good', ' one', '.']], 1.0)

    Args:
        model: a trained model
        tokenizer: of its words
        classes: their names, in the order of the logits
        max_words: a longer sentence goes on in another one
        max_sentences: of a longer document the end is read
    """

    def __init__(
        self,
        model: DocumentClassifier,
        tokenizer: Tokenizer,
        classes: Sequence[str],
        *,
        max_words: int = 50,
        max_sentences: int = 60,
    ) -> None:
        self.model, self.tokenizer, self.classes = model.eval(), tokenizer, list(classes)
        self.limits = {"max_words": max_words, "max_sentences": max_sentences}

    @classmethod
    def open(cls, run: str | Path) -> "Classifier":
        """A run of the task `classify`."""
        run, config = Path(run), read_run_config(run)
        tokenizer, classes = load_tokenizer(run / TOKENIZER), read_classes(run / CLASSES)
        options = read_settings(Model, config.model, "model").model_dump()
        model = DocumentClassifier(len(tokenizer), len(classes), **options)
        data = config.data
        limits = {name: data[name] for name in ("max_words", "max_sentences") if name in data}
        load_weights(model, run)
        return cls(model, tokenizer, classes, **limits)

    @torch.no_grad()
    def classify(self, texts: Sequence[str]) -> list[Classification]:
        """Classify documents; an empty one is read as one unknown word."""
        if isinstance(texts, str):
            raise TypeError(f"texts should be a list of texts, got one text: [{texts!r}]")
        found = []
        for start in range(0, len(texts), TOGETHER):
            some = texts[start : start + TOGETHER]
            encoded = [encode_document(text, self.tokenizer, **self.limits) for text in some]
            batch = collate_documents(encoded, [0] * len(encoded))
            logits, word_map, sentence_map = self.model(*batch[:3])
            chances = logits.softmax(-1)
            words, parts = word_map.dense().squeeze(2), sentence_map.dense().squeeze(1)
            for b, text in enumerate(some):
                pieces = document_pieces(text, self.tokenizer, **self.limits)
                label = self.classes[int(chances[b].argmax())]
                shaded = ShadedDocument(
                    pieces,
                    [words[b, s, : len(part)].tolist() for s, part in enumerate(pieces)],
                    parts[b, : len(pieces)].tolist(),
                    f"{label} ({float(chances[b].max()):.0%})",
                )
                named = dict(zip(self.classes, chances[b].tolist(), strict=True))
                found.append(Classification(label, named, shaded))
        return found


def write_classes(classes: Sequence[str], path: Path) -> None:
    """Store the names of classes."""
    path.write_text(json.dumps(list(classes), ensure_ascii=False), encoding="utf-8")


def read_classes(path: Path) -> list[str]:
    """The names of classes that were stored."""
    try:
        classes = json.loads(readable(path).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is damaged: it is not JSON") from error
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise ValueError(f"{path} is damaged: it should be a list of names")
    return classes
