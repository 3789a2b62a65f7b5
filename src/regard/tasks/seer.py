"""A trained image classifier: what `regard.load` gives for such a run."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.data.image import as_input

CLASSES = "images.json"


class Sight(NamedTuple):
    """What an image was taken for."""

    label: str
    probability: float
    weights: Tensor | None  # (rows, columns) of its patches; None unless asked for


class Seer:
    """A classifier of images, with the names of its classes.

    >>> from regard.models.image import ImageClassifier
    >>> seer = Seer(ImageClassifier((8, 8), 2), (8, 8), 1, ("cat", "dog"))
    >>> (one,) = seer.classify(torch.zeros(1, 8, 8, dtype=torch.uint8))
    >>> one.label in ("cat", "dog")
    True

    Args:
        model: an `ImageClassifier`
        size: height and width of the images, before they are enlarged
        scale: how many times the model wants them larger
        classes: their names
    """

    def __init__(
        self, model: nn.Module, size: tuple[int, int], scale: int, classes: Sequence[str]
    ) -> None:
        self.model, self.size, self.scale = model.eval(), size, scale
        self.classes = tuple(classes)

    @torch.no_grad()
    def classify(self, images: Tensor, *, return_map: bool = False) -> list[Sight]:
        """Classify grey images.

        Args:
            images: (B, height, width), bytes from 0 (paper) to 255 (ink)
            return_map: whether to say where it looked
        """
        if images.dim() != 3 or tuple(images.shape[1:]) != self.size:
            raise ValueError(
                f"this model sees images of {self.size[0]} × {self.size[1]} pixels, (B, "
                f"{self.size[0]}, {self.size[1]}), got {tuple(images.shape)}"
            )
        if images.dtype != torch.uint8:
            raise TypeError(f"images should be bytes, torch.uint8, got {images.dtype}")
        seen = self.model(as_input(images, self.scale), return_map=return_map)
        likely, labels = seen.logits.softmax(-1).max(-1)
        weights = seen.weights if seen.weights is not None else [None] * len(images)
        return [
            Sight(self.classes[int(label)], float(probability), weight)
            for label, probability, weight in zip(labels, likely, weights, strict=True)
        ]

    def figure(self, path: str | Path, images: Tensor, labels: Tensor | None = None) -> Path:
        """Draw images and where the model looked, as PNG or SVG; with labels, the truth too."""
        from regard.visual.figure.attended_image import attended_images

        found = self.classify(images, return_map=True)
        titles = [f"{one.label} {one.probability:.0%}" for one in found]
        if labels is not None:
            for number, label in enumerate(labels.tolist()):
                if self.classes[label] != found[number].label:
                    titles[number] += f"\n({self.classes[label]})"
        weights = torch.stack([one.weights for one in found if one.weights is not None])
        return attended_images(as_input(images), weights, titles, path)


def write_classes(run: Path, size: tuple[int, int], scale: int, classes: Sequence[str]) -> None:
    """Store what a `Seer` needs besides the weights."""
    told = {"size": list(size), "scale": scale, "classes": list(classes)}
    (run / CLASSES).write_text(json.dumps(told, ensure_ascii=False), encoding="utf-8")


def read_classes(run: Path) -> tuple[tuple[int, int], int, tuple[str, ...]]:
    """What `write_classes` stored: size, scale and classes."""
    try:
        told = json.loads((run / CLASSES).read_text(encoding="utf-8"))
        height, width = told["size"]
        return (height, width), told["scale"], tuple(told["classes"])
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{run} has no {CLASSES} in it") from error
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{run / CLASSES} is damaged: {error}") from error
