"""Pairs of inputs with a class: a text and its translation, or a question and a picture."""

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from regard.core.map import AttentionMap
from regard.data import (
    SPLITS,
    Pairs,
    Tokenizer,
    load_or_train_tokenizer,
    load_tokenizer,
    read_dataset,
    train_tokenizer,
)
from regard.data.labelled import Labelled, read_labelled_pairs, shuffle_targets
from regard.data.scenes import COLORS, SHAPES, Scene, generate_questions
from regard.evaluation import ClassificationReport
from regard.layers.co import Aligned
from regard.models.pair import AlignedPairClassifier, PairClassifier
from regard.tasks.classification import (
    Classification,
    class_report,
    classification_loss,
    labelled_metrics,
    shuffled_epochs,
    split_labelled,
    split_sizes,
    table,
)
from regard.tasks.predictor import Predictor, check_inputs, field
from regard.tasks.run import load_classes, load_model, load_stored_classes, save_classes
from regard.tasks.settings import ConfiguredTask, Count, Table
from regard.trace import Call, Trace
from regard.training import Config, Loss, Settings, read_settings, stored_file
from regard.training.device import device_of, to_device
from regard.training.run_directory import read_run_config

LEFT, RIGHT = "tokenizer.left.json", "tokenizer.right.json"
SCENE = Scene((("",) * 3,) * 3).features().shape[1]  # width of a cell
BATCH = 64  # pairs that a predictor reads at a time
HELD_OUT = 1000  # generated questions for validation, and for test
Share = Annotated[float, Field(gt=0, lt=1)]
Input = tuple[str, str | Scene]
LabelledPairs = Labelled[Any]  # of inputs


class Data(Table):
    """The table `[data]`; without `name` and `path` scenes with questions are generated."""

    name: Literal["scenes", "tatoeba"] | None = Field(
        None, description="without name and path, questions about scenes are generated"
    )
    path: str | None = Field(
        None,
        description="two texts and a label: .csv, .tsv, .jsonl (.gz or .zst of them) or .parquet, "
        "or a directory of save_to_disk",
    )
    left: int | str | None = Field(
        None, description="column or key of the first text; 0 in a tsv without names, else left"
    )
    right: int | str | None = Field(None, description="column or key of the second text")
    label: int | str | None = Field(None, description="column or key of the label")
    test: Share = Field(0.1, description="share of the pairs of a file to test on")
    valid: Share = Field(0.1, description="share of the others for validation")
    tokenizer: str | None = Field(None, description="words, characters or bpe; by default bpe")
    size: Count | None = Field(None, description="the largest number of tokens of each side")
    batch: Count = Field(64, description="pairs in a batch")
    count: int = Field(8000, ge=20, multiple_of=2, description="questions to generate")


class Model(Settings):
    """The table `[model]`: the options of `PairClassifier`, or of `AlignedPairClassifier`."""

    dim: Count = Field(64, description="width of the layers")
    heads: Count = Field(4, description="number of attention heads")
    layers: int = Field(1, ge=0, description="self-attention layers before the co-attention")
    attention: Literal["parallel", "alternating", "aligned"] = Field(
        "parallel",
        description="kind of co-attention; aligned compares each position with what it attends to",
    )
    phrase: Count = Field(1, description="words of the longest phrase of a text")
    glimpses: Count = Field(1, description="places that each side can attend to, if parallel")
    dropout: float = Field(0.1, ge=0, lt=1, description="of embeddings and layers")


class PairBatch(NamedTuple):
    """Pairs, padded."""

    left: Tensor  # (B, L)
    left_lengths: Tensor  # (B,)
    right: Tensor  # (B, R), or of scenes (B, cells, width)
    right_lengths: Tensor  # (B,)
    labels: Tensor  # (B,)


class PairPredictor(Predictor):
    """A classifier of pairs with its tokenizers and classes: a run of the task pair.

    An input is a pair of texts, or a question and a `Scene`.

    Args:
        model: a trained model
        left: tokenizer of the left texts
        right: tokenizer of the right texts; None if they are scenes
        classes: their names, in the order of the logits
        config: of the run
    """

    task: ClassVar[str] = "pair"

    def __init__(
        self,
        model: nn.Module,
        left: Tokenizer,
        right: Tokenizer | None,
        classes: Sequence[str],
        config: Config | None = None,
    ) -> None:
        self.model, self.left, self.right = model.eval(), left, right
        self.classes, self.config = list(classes), config

    @classmethod
    def from_run(cls, directory: str | Path, device: str = "cpu") -> "PairPredictor":
        """Load a run directory of the task pair."""
        run, config = Path(directory), read_run_config(directory)
        options = read_settings(Model, config.model, "model")
        left, classes = load_tokenizer(run / LEFT), load_classes(run)
        right = load_tokenizer(run / RIGHT) if (run / RIGHT).is_file() else None
        model = load_model(partial(_build, options, len(classes), left, right), run, device)
        return cls(model, left, right, classes, config)

    def predict(self, inputs: Sequence[Input]) -> list[Classification]:
        """Classify pairs."""
        check_inputs(inputs, "pairs")
        return [
            Classification.of(logits, self.classes)
            for start in range(0, len(inputs), BATCH)
            for logits in self._read(inputs[start : start + BATCH])[0]
        ]

    @torch.no_grad()
    def trace(self, input: Input) -> Trace:
        """Return what both sides attend to, and with parallel attention their affinity.

        With aligned attention "left" has a row for each left token, its weights of the right
        tokens, and "right" the reverse; else they have a row for each glimpse, at their own side.
        """
        left, right = input
        logits, found = self._read([input])
        predicted = Classification.of(logits[0], self.classes)
        words = self.left.tokens(self.left.encode(left))
        if isinstance(right, Scene):
            others = right.names()
        else:
            assert self.right is not None
            others = self.right.tokens(self.right.encode(right))
        tokens = {"left": words, "right": others}
        about = {
            "task": self.task,
            "text": left,
            "title": str(predicted),
            "affinity": None,
            "columns": len(right.cells[0]) if isinstance(right, Scene) else None,
            **predicted._asdict(),
        }
        there, back = found.left_map.dense().cpu(), found.right_map.dense().cpu()
        if isinstance(found, Aligned):
            there, back = (
                there[:, : len(words), : len(others)],
                back[:, : len(others), : len(words)],
            )
            calls = [
                Call("left", AttentionMap.of(there), "left", "right"),
                Call("right", AttentionMap.of(back), "right", "left"),
            ]
            return Trace(calls, tokens, about)
        if getattr(found, "affinity", None) is not None:
            about["affinity"] = found.affinity.dense()[0, : len(words), : len(others)].tolist()
        calls = [
            Call("left", AttentionMap.of(there[:, :, : len(words)]), "glimpse", "left"),
            Call("right", AttentionMap.of(back[:, :, : len(others)]), "glimpse", "right"),
        ]
        glimpses = [f"glimpse {number}" for number in range(1, calls[0].shape[-2] + 1)]
        return Trace(calls, {"glimpse": glimpses, **tokens}, about)

    def parse(self, record: str | Mapping[str, Any]) -> Input:
        """Return the pair of a line LEFT, tab, RIGHT, or of a JSON object with `left` and `right`.

        A scene is written in rows of things: "red square, , ; , blue circle, ; , , ".
        """
        if isinstance(record, str):
            left, tab, right = record.partition("\t")
            if not tab:
                raise ValueError(f"expected two texts with a tab between them, got {record!r}")
        else:
            left, right = field(record, "left"), field(record, "right", kind=object)
        if self.right is None:
            return left, _scene(right)
        if not isinstance(right, str):
            raise ValueError(f"'right' should be a text, got {type(right).__name__}")
        if not left.strip() or not right.strip():
            raise ValueError("both texts need at least one word")
        return left, right

    def examples(self, count: int, split: str = "test") -> list[Input]:
        """Return pairs of a split of the run's data."""
        return split_pairs(self.data_settings(Data), self.seed)[0][split].inputs[:count]

    def evaluate(self, path: str | Path, **settings: Any) -> dict[str, float]:
        """Return accuracy and loss of the pairs of texts of a file."""
        pairs = self._labelled(path, "test", settings)
        return labelled_metrics(pairs, lambda some: self._read(some)[0], BATCH)

    def report(
        self,
        path: str | Path | None = None,
        *,
        split: str = "test",
        shown: int = 5,
        **settings: Any,
    ) -> ClassificationReport:
        """Return how well the classes of pairs are predicted; see `Predictor.report`."""
        return class_report(self, self._labelled(path, split, settings), self.classes, shown)

    def _labelled(
        self, path: str | Path | None, split: str, settings: Mapping[str, Any]
    ) -> LabelledPairs:
        if path is None:
            return split_pairs(self.data_settings(Data), self.seed, self.classes)[0][split]
        if self.right is None:
            raise ValueError("this run compares questions and scenes, which no file has")
        return _read_file(self.file_settings(Data, path, settings), self.classes)

    @torch.no_grad()
    def _read(self, pairs: Sequence[Input]) -> tuple[Tensor, Any]:
        """Logits (B, classes) and both maps of some pairs."""
        for _, right in pairs:
            if isinstance(right, str) != (self.right is not None):
                wanted = "a scene" if self.right is None else "a text"
                raise TypeError(f"the right side should be {wanted}, got {type(right).__name__}")
        batch = pair_batch(pairs, [0] * len(pairs), self.left, self.right)
        device = self.device
        output = self.model(*(part.to(device) for part in batch[:4]))
        # an export has its maps beside the logits
        return output[0], output[1] if len(output) == 2 else output


def _scene(value: Any) -> Scene:
    """A scene of rows of things, as lists or as a text with ; between rows and , between things."""
    rows = [row.split(",") for row in value.split(";")] if isinstance(value, str) else value
    things = {"", *(f"{color} {shape}" for color in COLORS for shape in SHAPES)}
    if isinstance(rows, list) and len(rows) == 3 and all(isinstance(row, list) for row in rows):
        cells = tuple(tuple(str(cell).strip() for cell in row) for row in rows)
        if all(len(row) == 3 and things.issuperset(row) for row in cells):
            return Scene(cells)
    raise ValueError(
        "a scene is three rows of three things, each empty or such as 'red square': "
        f"'red square, , ; , blue circle, ; , , ', got {value!r}"
    )


def _build(
    options: Model, classes: int, left: Tokenizer, right: Tokenizer | None
) -> PairClassifier | AlignedPairClassifier:
    sides = {"right_cells": SCENE} if right is None else {"right_vocabulary": len(right)}
    sides["left_vocabulary"] = len(left)
    if options.attention != "aligned":
        return PairClassifier(classes, **sides, **options.model_dump())
    if options.glimpses > 1:
        raise ValueError(f"aligned attention has no glimpses, got glimpses={options.glimpses}")
    return AlignedPairClassifier(
        classes, **sides, **options.model_dump(exclude={"attention", "glimpses"})
    )


class PairTask(ConfiguredTask):
    """Two inputs and a class.

    Args:
        data: the pairs
        model: options of the model
        seed: of splits, of the order of batches, of generated scenes and of shuffled translations
        run: a run directory whose tokenizers and classes are used, instead of new ones
    """

    predictor = PairPredictor
    tables = (("data", Data), ("model", Model))
    unit = "pairs"
    metric = "accuracy"
    larger_is_better = True

    def __init__(self, data: Data, model: Model, seed: int = 1, run: Path | None = None) -> None:
        self.data, self.model, self.seed = data, model, seed
        splits, self.translations = split_pairs(data, seed, load_stored_classes(run))
        self.train, self.valid, self.test = (splits[name] for name in SPLITS)
        lefts, rights = zip(*self.train.inputs, strict=True)
        scenes = not isinstance(rights[0], str)
        kind = data.tokenizer or ("words" if scenes else "bpe")
        size = data.size or (2000 if kind == "bpe" else None)
        self.left = load_or_train_tokenizer(
            stored_file(run, LEFT), lambda: train_tokenizer(kind, lefts, size=size)
        )
        self.right: Tokenizer | None = None
        if not scenes:
            self.right = load_or_train_tokenizer(
                stored_file(run, RIGHT), lambda: train_tokenizer(kind, rights, size=size)
            )
        self._order = shuffled_epochs(len(self.train), seed)
        self._pairs = lru_cache(maxsize=1)(self._epoch_pairs)

    def build(self) -> PairClassifier | AlignedPairClassifier:
        """Build a fresh model for these inputs."""
        return _build(self.model, len(self.train.classes), self.left, self.right)

    def steps(self, epoch: int) -> int:
        """Return how many batches the epoch has."""
        return -(-len(self.train) // self.data.batch)

    def batch(self, epoch: int, step: int) -> PairBatch:
        """Return one batch of the epoch; translations are shuffled anew in each epoch."""
        size = self.data.batch
        places = self._order(epoch)[step * size : (step + 1) * size].tolist()
        chosen = self._pairs(epoch).choose(places)
        return pair_batch(chosen.inputs, chosen.labels, self.left, self.right)

    def loss(self, model: nn.Module, batch: PairBatch) -> Loss:
        """Return the cross entropy, summed over pairs."""
        return classification_loss(model(*batch[:4])[0], batch.labels)

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Return accuracy and loss of validation, and the accuracy of test."""

        def logits(inputs: list[Input]) -> Tensor:
            batch = pair_batch(inputs, [0] * len(inputs), self.left, self.right)
            return model(*to_device(batch[:4], device_of(model)))[0]

        valid = labelled_metrics(self.valid, logits, self.data.batch)
        test = labelled_metrics(self.test, logits, self.data.batch)
        return {**valid, "test_accuracy": test["accuracy"]}

    def write(self, run: Path) -> None:
        """Store the tokenizers and the names of the classes."""
        self.left.save(run / LEFT)
        if self.right is not None:
            self.right.save(run / RIGHT)
        save_classes(self.train.classes, run)

    def describe(self) -> str:
        """Return statistics of the data as a table."""
        first, other = self.train.inputs[0]
        shown = other if isinstance(other, str) else ", ".join(filter("·".__ne__, other.names()))
        right = self.right
        return table(
            {
                "pairs": split_sizes(self.train, self.valid, self.test),
                "classes": ", ".join(self.train.classes),
                "left": f"{self.left.kind}, {len(self.left):,} kinds",
                "right": "scenes" if right is None else f"{right.kind}, {len(right):,} kinds",
                "example": f"{first} | {shown}",
            }
        )

    def _epoch_pairs(self, epoch: int) -> LabelledPairs:
        if self.translations is None:
            return self.train
        return shuffle_targets(self.translations, seed=(self.seed, 3, epoch))


def pair_batch(
    inputs: Sequence[Input], labels: Sequence[int], left: Tokenizer, right: Tokenizer | None
) -> PairBatch:
    """Encode and pad pairs."""
    words, word_lengths = _padded([left.encode(text) for text, _ in inputs])
    if right is None:
        cells = np.stack([scene.features() for _, scene in inputs if isinstance(scene, Scene)])
        others = torch.from_numpy(cells)
        other_lengths = torch.full((len(inputs),), others.shape[1])
    else:
        others, other_lengths = _padded([right.encode(str(text)) for _, text in inputs])
    return PairBatch(words, word_lengths, others, other_lengths, torch.tensor(labels))


def _padded(ids: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
    padded = pad_sequence([torch.tensor(row or [0]) for row in ids], batch_first=True)
    return padded, torch.tensor([len(row) for row in ids])


def split_pairs(
    data: Data, seed: int, classes: list[str] | None = None
) -> tuple[dict[str, LabelledPairs], Pairs | None]:
    """Return the pairs of "train", "valid" and "test", and the translations to shuffle, if any."""
    if data.name == "tatoeba":
        pairs = {split: read_dataset("tatoeba", split, folder=data.folder) for split in SPLITS}
        mixed = {
            split: shuffle_targets(pairs[split], seed=(seed, n)) for n, split in enumerate(SPLITS)
        }
        return mixed, pairs["train"]
    if data.path is None:
        counts = (data.count, HELD_OUT, HELD_OUT)
        made = [_questions(count, seed=3 * seed + n) for n, count in enumerate(counts)]
        return dict(zip(SPLITS, made, strict=True)), None
    return split_labelled(_read_file(data, classes), data.test, data.valid, seed), None


def _read_file(data: Data, classes: list[str] | None) -> LabelledPairs:
    columns = {"left", "right", "label", "format", "encoding", "delimiter", "bad"}
    return read_labelled_pairs(str(data.path), **data.model_dump(include=columns), classes=classes)


def _questions(count: int, seed: int) -> LabelledPairs:
    questions = generate_questions(count, seed=seed)
    return Labelled(
        [(question.text, question.scene) for question in questions],
        [int(question.answer == "yes") for question in questions],
        ["no", "yes"],
    )
