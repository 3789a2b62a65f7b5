"""A trained model that judges pairs: what `regard.load` gives for a run of `pair`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from regard.data import Tokenizer, load_tokenizer
from regard.data.scenes import Scene
from regard.models.pair import PairClassifier
from regard.tasks.classifier import CLASSES, read_classes
from regard.tasks.run import load_weights
from regard.training.run_directory import read_run_config
from regard.training.settings import Settings, read_settings
from regard.visual.pair import SeenPair

Count = Annotated[int, Field(ge=1)]
LEFT, RIGHT = "tokenizer.left.json", "tokenizer.right.json"
SCENE = Scene((("",) * 3,) * 3).features().shape[1]  # width of a cell


class Model(Settings):
    """The table `[model]`: the options of `PairClassifier`."""

    dim: Count = 64
    heads: Count = 4
    layers: int = Field(1, ge=0)
    attention: Literal["parallel", "alternating"] = "parallel"
    phrase: Count = Field(1, description="words of the longest phrase of a text")
    glimpses: Count = Field(1, description="how many places each side can look at")
    dropout: float = Field(0.1, ge=0, lt=1)


class PairBatch(NamedTuple):
    """Pairs side by side, padded."""

    left: Tensor  # (B, L)
    left_lengths: Tensor  # (B,)
    right: Tensor  # (B, R), or of scenes (B, cells, width)
    right_lengths: Tensor  # (B,)
    labels: Tensor  # (B,)


class Judgement(NamedTuple):
    """The class of a pair, how sure the model is of each class, and both maps."""

    label: str
    probabilities: dict[str, float]
    seen: SeenPair


class Judge:
    """A model, its tokenizers and the names of its classes.

    Args:
        model: a trained model
        left: tokenizer of the left texts
        right: tokenizer of the right ones; None if they are scenes
        classes: their names, in the order of the logits
    """

    def __init__(
        self,
        model: PairClassifier,
        left: Tokenizer,
        right: Tokenizer | None,
        classes: Sequence[str],
    ) -> None:
        self.model, self.left, self.right = model.eval(), left, right
        self.classes = list(classes)

    @classmethod
    def open(cls, run: str | Path) -> "Judge":
        """A run of the task `pair`."""
        run, config = Path(run), read_run_config(run)
        left, classes = load_tokenizer(run / LEFT), read_classes(run / CLASSES)
        right = load_tokenizer(run / RIGHT) if (run / RIGHT).is_file() else None
        options = read_settings(Model, config.model, "model")
        model = build_pair_model(options, len(classes), left, right)
        load_weights(model, run)
        return cls(model, left, right, classes)

    @torch.no_grad()
    def judge(self, pairs: Sequence[tuple[str, str | Scene]]) -> list[Judgement]:
        """The class of each pair, and where both sides looked."""
        if not pairs:
            return []
        lefts, rights = [left for left, _ in pairs], [right for _, right in pairs]
        for right in rights:
            if isinstance(right, str) != (self.right is not None):
                wanted = "a scene" if self.right is None else "a text"
                raise TypeError(f"the right side should be {wanted}, got {type(right).__name__}")
        batch = pair_batch(lefts, rights, [0] * len(pairs), self.left, self.right)
        logits, found = self.model(*batch[:4])
        left_map, right_map = found.left_map.dense(), found.right_map.dense()  # (B, glimpses, ·)
        affinity = None if found.affinity is None else found.affinity.dense()
        answers = []
        for b, (left, right) in enumerate(pairs):
            chances = logits[b].softmax(-1)
            label = self.classes[int(chances.argmax())]
            words = self.left.tokens(self.left.encode(left))
            others = right.names() if isinstance(right, Scene) else self._tokens(right)
            L, R = len(words), len(others)
            seen = SeenPair(
                words,
                others,
                left_map[b, :, :L],
                right_map[b, :, :R],
                None if affinity is None else affinity[b, :L, :R],
                len(right.cells[0]) if isinstance(right, Scene) else None,
                f"{label} ({float(chances.max()):.0%})",
            )
            named = dict(zip(self.classes, chances.tolist(), strict=True))
            answers.append(Judgement(label, named, seen))
        return answers

    def _tokens(self, text: str) -> list[str]:
        assert self.right is not None
        return self.right.tokens(self.right.encode(text))


def build_pair_model(
    options: Model, classes: int, left: Tokenizer, right: Tokenizer | None
) -> PairClassifier:
    """A model for these inputs."""
    sides = {"right_cells": SCENE} if right is None else {"right_vocabulary": len(right)}
    flat = options.model_dump()
    return PairClassifier(classes, left_vocabulary=len(left), **sides, **flat)


def pair_batch(
    lefts: Sequence[str],
    rights: Sequence[str | Scene],
    labels: Sequence[int],
    left: Tokenizer,
    right: Tokenizer | None,
) -> PairBatch:
    """Encode and pad pairs."""
    words, word_lengths = _padded([left.encode(text) for text in lefts])
    if right is None:
        cells = np.stack([scene.features() for scene in rights if isinstance(scene, Scene)])
        others = torch.from_numpy(cells)
        other_lengths = torch.full((len(rights),), others.shape[1])
    else:
        others, other_lengths = _padded([right.encode(str(text)) for text in rights])
    return PairBatch(words, word_lengths, others, other_lengths, torch.tensor(labels))


def _padded(ids: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(row) for row in ids])
    padded = torch.zeros(len(ids), max(1, int(lengths.max())), dtype=torch.long)
    for row, one in enumerate(ids):
        padded[row, : len(one)] = torch.tensor(one, dtype=torch.long)
    return padded, lengths
