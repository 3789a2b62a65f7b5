"""Images: the class of each, by attention over its pixels or patches."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from regard.data import fingerprint
from regard.data.datasets import data_folder
from regard.data.image import (
    Images,
    as_input,
    generate_images,
    read_digits,
    read_fashion,
    read_idx,
)
from regard.models.image import ImageClassifier
from regard.tasks.run import load_weights
from regard.tasks.seer import Seer, read_classes, write_classes
from regard.training import Loss
from regard.training.config import Config
from regard.training.run_directory import read_run_config
from regard.training.settings import Settings, read_settings

Count = Annotated[int, Field(ge=1)]
FASHION = Path("fashion-mnist")  # below the data folder
DEBIAN = Path("/usr/share/datasets/fashion-mnist")


class Data(Settings):
    """The table `[data]`."""

    name: Literal["shapes", "digits", "fashion"] | None = Field(
        None, description="generated shapes (the default), scikit-learn's digits, Fashion-MNIST"
    )
    folder: str | None = Field(None, description="of the four files of Fashion-MNIST")
    images: str | None = Field(None, description="or an IDX file of images")
    labels: str | None = Field(None, description="and one of their labels")
    test_images: str | None = Field(None, description="by default a fifth is for test")
    test_labels: str | None = None
    count: Count = Field(2000, description="shapes to generate")
    limit: Count | None = Field(None, description="use only so many images for training")
    test_limit: Count | None = Field(
        None, description="and so many for validation, and as many for test"
    )
    scale: Count = Field(1, description="how many times larger images are made, smoothly")
    shift: int = Field(0, ge=0, description="pixels by which a training image is moved, at most")
    rows: Count = Field(64, description="images of a batch")

    @model_validator(mode="after")
    def _one_source(self) -> "Data":
        if (self.images is None) != (self.labels is None):
            raise ValueError("images and labels belong together: give both files")
        if (self.test_images is None) != (self.test_labels is None):
            raise ValueError("test_images and test_labels belong together: give both files")
        if self.name is not None and self.images is not None:
            raise ValueError("give either name, or images and labels")
        if self.test_images is not None and self.images is None:
            raise ValueError("test_images need images and labels to train on: give those too")
        if self.folder is not None and self.name != "fashion":
            raise ValueError("folder is where the files of name=fashion are: give that name")
        return self


class Model(Settings):
    """The table `[model]`."""

    patch: Count = Field(1, description="side of a patch in pixels, after scaling")
    dim: Count = 64
    heads: Count = 4
    hidden: Count | None = Field(None, description="of feed-forward networks; 2 · dim if not given")
    layers: Count = 3
    attention: Literal["efficient", "dot"] = "efficient"
    region: Count | None = Field(None, description="side in patches; pools patches to regions")
    dropout: float = Field(0.1, ge=0, lt=1)


class ImageTask:
    """The task of images.

    Args:
        train: what to learn from
        valid: what to choose the model by
        test: what nothing is chosen by
        data: how they are given to the model
        model: sizes, and which attention
        seed: of the order of images, and of how they are moved
    """

    unit = "images"
    metric = "accuracy"
    larger_is_better = True

    def __init__(
        self,
        train: Images,
        valid: Images,
        test: Images,
        data: Data,
        model: Model,
        seed: int = 1,
    ) -> None:
        for part, images in (("validation", valid), ("test", test)):
            if train.pixels.shape[1:] != images.pixels.shape[1:]:
                raise ValueError(
                    f"images for training are {_size(train)} pixels, those for {part} "
                    f"{_size(images)}"
                )
        self.train, self.valid, self.test = train, valid, test
        self.data, self.model, self.seed = data, model, seed

    @classmethod
    def from_config(cls, config: Config, run: Path | None = None) -> "ImageTask":
        """The task of a configuration; a run keeps the names of its classes."""
        data = read_settings(Data, config.data, "data")
        model = read_settings(Model, config.model, "model")
        read_settings(Settings, config.loss, "loss")  # there is nothing to set
        return cls(*read_images(data, config.seed), data, model, config.seed)

    @classmethod
    def open(cls, run: Path) -> Seer:
        """What `regard.load` gives for a run of this task."""
        size, scale, classes = read_classes(run)
        model = read_settings(Model, read_run_config(run).model, "model")
        return Seer(load_weights(_build(size, scale, classes, model), run), size, scale, classes)

    def build(self) -> nn.Module:
        """A fresh classifier for images of this size."""
        height, width = self.train.pixels.shape[1:]
        return _build((height, width), self.data.scale, self.train.classes, self.model)

    def steps(self, epoch: int) -> int:
        """How many batches the epoch has."""
        return -(-len(self.train.labels) // self.data.rows)

    def batch(self, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        """Images and labels of the epoch's order, each image moved a little if that is wanted."""
        draw = torch.Generator().manual_seed(self.seed * 100_003 + epoch)
        order = torch.randperm(len(self.train.labels), generator=draw)
        chosen = self.train.pick(order[step * self.data.rows : (step + 1) * self.data.rows])
        pixels = chosen.pixels
        if self.data.shift:
            draw = torch.Generator().manual_seed((self.seed * 100_003 + epoch) * 100_003 + step)
            pixels = moved(pixels, self.data.shift, draw)
        return as_input(pixels, self.data.scale), chosen.labels

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Loss:
        """Cross entropy, summed."""
        images, labels = batch
        return Loss(F.cross_entropy(model(images).logits, labels, reduction="sum"), len(labels))

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Loss and accuracy of the validation images, and accuracy of the test images."""
        figures = self._figures(model, self.valid)
        return {**figures, "test_accuracy": self._figures(model, self.test)["accuracy"]}

    def _figures(self, model: nn.Module, images: Images) -> dict[str, float]:
        loss, right, count = 0.0, 0, len(images.labels)
        rows = self.data.rows
        parts = zip(images.pixels.split(rows), images.labels.split(rows), strict=True)
        for pixels, labels in parts:
            logits = model(as_input(pixels, self.data.scale)).logits
            loss += float(F.cross_entropy(logits, labels, reduction="sum"))
            right += int((logits.argmax(-1) == labels).sum())
        return {"loss": loss / count, "accuracy": right / count}

    def write(self, run: Path) -> None:
        """Store the size of the images and the names of the classes."""
        height, width = self.train.pixels.shape[1:]
        write_classes(run, (height, width), self.data.scale, self.train.classes)

    def fingerprint(self) -> dict[str, str]:
        """Fingerprints of the data."""
        return {"train": fingerprint(self.train), "valid": fingerprint(self.valid)}

    def describe(self) -> str:
        """Statistics of the images, for people."""
        height, width = self.train.pixels.shape[1:]
        scale, patch = self.data.scale, self.model.patch
        tokens = (height * scale // patch) * (width * scale // patch)
        return (
            f"{len(self.train.labels):,} images of {height} × {width} pixels for training, "
            f"{len(self.valid.labels):,} for validation, {len(self.test.labels):,} for test; "
            f"{tokens:,} patches each\n"
            f"{len(self.train.classes)} classes: {', '.join(self.train.classes)}"
        )


def read_images(data: Data, seed: int) -> tuple[Images, Images, Images]:
    """Images for training, for validation and for test of a table `[data]`.

    A fifth is for validation; where there are no other images for test, another fifth is. Where
    there are, no more are for validation than for test.
    """
    test: Images | None = None
    if data.images is not None and data.labels is not None:
        whole = read_idx(data.images, data.labels)
        if data.test_images is not None and data.test_labels is not None:
            test = read_idx(data.test_images, data.test_labels, whole.classes)
    elif data.name == "fashion":
        folder = _fashion(data.folder)
        whole, test = read_fashion(folder, "train"), read_fashion(folder, "test")
    elif data.name == "digits":
        whole = read_digits()
    else:
        whole = generate_images(data.count, seed=seed)
    count = len(whole.labels)
    if count < 5:
        raise ValueError(f"{count} images are too few to hold a fifth of them out")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    held = count // 5 if test is None else min(count // 5, len(test.labels))
    valid, rest = whole.pick(order[:held]), order[held:]
    if test is None:
        test, rest = whole.pick(rest[:held]), rest[held:]
    return (
        _limited(whole.pick(rest), data.limit, seed),
        _limited(valid, data.test_limit, seed),
        _limited(test, data.test_limit, seed),
    )


def moved(pixels: Tensor, most: int, draw: torch.Generator) -> Tensor:
    """Images (B, h, w), each moved by up to `most` pixels in both directions, zeros moving in.

    >>> moved(torch.ones(2, 3, 5), 1, torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3, 5])
    """
    batch, height, width = pixels.shape
    padded = F.pad(pixels, (most, most, most, most))
    top, left = torch.randint(2 * most + 1, (2, batch, 1), generator=draw)
    rows, columns = top + torch.arange(height), left + torch.arange(width)  # (B, h), (B, w)
    return padded[torch.arange(batch).view(-1, 1, 1), rows.unsqueeze(2), columns.unsqueeze(1)]


def _build(
    size: tuple[int, int], scale: int, classes: Sequence[str], model: Model
) -> ImageClassifier:
    large = size[0] * scale, size[1] * scale
    return ImageClassifier(large, len(classes), **model.model_dump())


def _fashion(folder: str | None) -> Path:
    if folder is not None:
        return Path(folder)
    own = data_folder() / FASHION
    return own if own.is_dir() or not DEBIAN.is_dir() else DEBIAN


def _limited(images: Images, limit: int | None, seed: int) -> Images:
    if limit is None or limit >= len(images.labels):
        return images
    draw = torch.Generator().manual_seed(seed)
    return images.pick(torch.randperm(len(images.labels), generator=draw)[:limit])


def _size(images: Images) -> str:
    return " × ".join(map(str, images.pixels.shape[1:]))
