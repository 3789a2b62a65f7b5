"""Images: the class of each, by attention over its pixels or patches."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from regard.core.map import AttentionMap
from regard.data import fingerprint
from regard.data.datasets import data_folder
from regard.data.files import format_of
from regard.data.image import (
    IMAGE_TABLES,
    Images,
    as_input,
    generate_images,
    moved,
    read_digits,
    read_fashion,
    read_idx,
    read_image_table,
    split_images,
)
from regard.data.labelled import Labelled
from regard.data.tables import is_saved_dataset
from regard.evaluation import ClassificationReport
from regard.models.image import ImageClassifier
from regard.tasks.classification import (
    Classification,
    class_report,
    classification_loss,
    classification_metrics,
)
from regard.tasks.predictor import Predictor, check_inputs, field, whole_number
from regard.tasks.run import load_json, load_model
from regard.tasks.settings import Count, NoLoss
from regard.trace import Call, Trace
from regard.training import Config, Loss, Settings, read_settings, stored_file
from regard.training.processes import shared
from regard.training.run_directory import read_run_config

IMAGES = "images.json"  # in a run directory
DEBIAN = Path("/usr/share/datasets/fashion-mnist")
BATCH = 64  # images that a predictor reads at a time


class Data(Settings):
    """The table `[data]`."""

    name: Literal["shapes", "digits", "fashion"] | None = Field(
        None, description="generated shapes (the default), scikit-learn's digits, Fashion-MNIST"
    )
    folder: str | None = Field(None, description="of the four files of Fashion-MNIST")
    images: str | None = Field(
        None,
        description="or an IDX file of images; or a table with their classes: .parquet, .jsonl, or "
        "a directory of save_to_disk",
    )
    labels: str | None = Field(None, description="IDX file of the labels of images")
    image: str = Field("image", description="of a table: the column of the image")
    label: str = Field("label", description="of a table: the column of the class")
    test_images: str | None = Field(None, description="by default a fifth is for test")
    test_labels: str | None = Field(None, description="IDX file of the labels of test_images")
    count: Count = Field(2000, description="shapes to generate")
    limit: Count | None = Field(None, description="the largest number of images for training")
    test_limit: Count | None = Field(None, description="the same for validation, and for test")
    scale: Count = Field(1, description="factor by which images are enlarged, smoothly")
    shift: int = Field(
        0, ge=0, description="largest number of pixels by which a training image is moved"
    )
    rows: Count = Field(64, description="images of a batch")

    @model_validator(mode="after")
    def _one_source(self) -> "Data":
        for one, other in (("images", "labels"), ("test_images", "test_labels")):
            images, labels = getattr(self, one), getattr(self, other)
            if images is not None and _is_table(images):
                if labels is not None:
                    raise ValueError(f"{one} is a table, which has the classes: leave out {other}")
            elif (images is None) != (labels is None):
                raise ValueError(f"{one} and {other} belong together: give both files")
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
    dim: Count = Field(64, description="width of the layers")
    heads: Count = Field(4, description="number of attention heads")
    hidden: Count | None = Field(None, description="of feed-forward networks; 2 · dim if not given")
    layers: Count = Field(3, description="number of layers")
    attention: Literal["efficient", "dot"] = Field(
        "efficient", description="linear or quadratic in the number of patches"
    )
    region: Count | None = Field(None, description="side in patches; pools patches to regions")
    dropout: float = Field(0.1, ge=0, lt=1, description="of embeddings and layers")


class ImagePredictor(Predictor):
    """A classifier of grey images, with its classes: a run of the task image.

    An input is an image (height, width) of bytes, 0 (paper) to 255 (ink).

    >>> predictor = ImagePredictor(ImageClassifier((8, 8), 2), (8, 8), 1, ("cat", "dog"))
    >>> (one,) = predictor.classify(torch.zeros(1, 8, 8, dtype=torch.uint8))
    >>> one.label in ("cat", "dog")
    True

    Args:
        model: an `ImageClassifier`
        size: height and width of the images, before they are enlarged
        scale: factor by which they are enlarged for the model
        classes: their names
        config: of the run
    """

    task: ClassVar[str] = "image"

    def __init__(
        self,
        model: nn.Module,
        size: tuple[int, int],
        scale: int,
        classes: Sequence[str],
        config: Config | None = None,
    ) -> None:
        self.model, self.size, self.scale = model.eval(), size, scale
        self.classes, self.config = tuple(classes), config

    @classmethod
    def from_run(cls, directory: str | Path, device: str = "cpu") -> "ImagePredictor":
        """Load a run directory of the task image."""
        config = read_run_config(directory)
        size, scale, classes = _load_sizes(Path(directory))
        options = read_settings(Model, config.model, "model")
        build = partial(_build, size, scale, classes, options)
        return cls(load_model(build, directory, device), size, scale, classes, config)

    def classify(self, images: Tensor | Sequence[Tensor]) -> list[Classification]:
        """Classify images (B, height, width) of bytes; the same as `predict`."""
        return self.predict(images)

    @torch.no_grad()
    def predict(self, inputs: Tensor | Sequence[Tensor]) -> list[Classification]:
        """Classify images (height, width) of bytes, 0 (paper) to 255 (ink)."""
        check_inputs(inputs, "images")
        return [
            Classification.of(logits, self.classes)
            for start in range(0, len(inputs), BATCH)
            for logits in self.model(self._batch(inputs[start : start + BATCH])).logits
        ]

    @torch.no_grad()
    def trace(self, input: Tensor, *, label: str | None = None) -> Trace:
        """Return the weights of the patches of an image.

        Args:
            input: an image (height, width) of bytes
            label: its true class, for the title
        """
        found = self.model(self._batch([input]), return_map=True)
        predicted = Classification.of(found.logits[0], self.classes)
        weights = found.weights[0].cpu()  # (rows, columns)
        rows, columns = weights.shape
        patches = [f"{row + 1},{column + 1}" for row in range(rows) for column in range(columns)]
        title = f"{predicted.label} {predicted.probability:.0%}"
        about = {
            "task": self.task,
            "title": title if label in (None, predicted.label) else f"{title}\n({label})",
            "grid": [rows, columns],
            "pixels": input.tolist(),
            **predicted._asdict(),
        }
        calls = [Call("patches", AttentionMap.of(weights.reshape(1, 1, -1)), "image", "patch")]
        return Trace(calls, {"image": [predicted.label], "patch": patches}, about)

    def parse(self, record: str | Mapping[str, Any]) -> Tensor:
        """Return an image: of a file, the N-th of the test images, or `pixels` of a JSON object."""
        if not isinstance(record, str):
            return self._image(np.asarray(field(record, "pixels", kind=list)), "pixels")
        if Path(record).is_file():
            from PIL import Image

            with Image.open(record) as opened:
                return self._image(255 - np.asarray(opened.convert("L")), record)
        number = whole_number(
            record, "an image is a file, or a test image by its number, which", 10**6
        )
        images = self.examples(number)
        if len(images) < number:
            raise ValueError(f"there are {len(images)} test images, got number {number}")
        return images[-1]

    def examples(self, count: int, split: str = "test") -> list[Tensor]:
        """Return images of a split of the run's data."""
        train, valid, test = read_images(self.data_settings(Data), self.seed)
        return list({"train": train, "valid": valid, "test": test}[split].pixels[:count])

    def report(
        self,
        path: str | Path | None = None,
        *,
        split: str = "test",
        shown: int = 5,
        **settings: Any,
    ) -> ClassificationReport:
        """Return how well the images of a split of the run's data are classified."""
        if path is not None or settings:
            raise ValueError("a run of the task image is evaluated on its own data alone")
        _, valid, test = read_images(self.data_settings(Data), self.seed)
        images = {"valid": valid, "test": test}[split]
        examples = Labelled([*images.pixels], images.labels.tolist(), list(images.classes))
        return class_report(self, examples, self.classes, shown)

    def _image(self, pixels: np.ndarray, name: str) -> Tensor:
        whole = (
            pixels.dtype.kind in "iu" and pixels.size and 0 <= pixels.min() <= pixels.max() < 256
        )
        if pixels.shape != self.size or not whole:
            height, width = self.size
            raise ValueError(
                f"{name}: expected {height} × {width} whole numbers from 0 to 255, got "
                f"{' × '.join(map(str, pixels.shape))} of {pixels.dtype}"
            )
        return torch.from_numpy(pixels.astype(np.uint8))

    def _batch(self, images: Tensor | Sequence[Tensor]) -> Tensor:
        for image in images:
            if tuple(image.shape) != self.size:
                raise ValueError(
                    f"this model reads images of {self.size[0]} × {self.size[1]} pixels, (B, "
                    f"{self.size[0]}, {self.size[1]}), got {(len(images), *image.shape)}"
                )
            if image.dtype != torch.uint8:
                raise TypeError(f"images should be bytes, torch.uint8, got {image.dtype}")
        pixels = images if isinstance(images, Tensor) else torch.stack([*images])
        return as_input(pixels, self.scale).to(self.device)


def _save_sizes(run: Path, images: Images, scale: int) -> None:
    size, classes = list(images.pixels.shape[1:]), list(images.classes)
    sizes = {"size": size, "scale": scale, "classes": classes}
    (run / IMAGES).write_text(json.dumps(sizes, ensure_ascii=False), encoding="utf-8", newline="\n")


def _load_sizes(run: Path) -> tuple[tuple[int, int], int, tuple[str, ...]]:
    """The size of the images of a run, their scale, and their classes."""
    sizes = load_json(run / IMAGES)
    try:
        (height, width), scale, classes = sizes["size"], sizes["scale"], sizes["classes"]
        if not all(isinstance(number, int) and number > 0 for number in (height, width, scale)):
            raise ValueError("size and scale should be whole numbers from 1 on")
        if not all(isinstance(name, str) for name in classes):
            raise ValueError("classes should be names")
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{run / IMAGES} is damaged: {error}") from error
    return (height, width), scale, tuple(classes)


class ImageTask:
    """Images with a class.

    Args:
        train: images to train on
        valid: images that choose the best model
        test: images that nothing is chosen by
        data: how they are given to the model
        model: sizes, and which attention
        seed: of the order of images, and of how they are moved
    """

    predictor = ImagePredictor
    tables = (("data", Data), ("model", Model))
    unit = "images"
    metric = "accuracy"
    larger_is_better = True

    def __init__(
        self, train: Images, valid: Images, test: Images, data: Data, model: Model, seed: int = 1
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
        """Make the task of a configuration; with `run`, checked against what that run has seen."""
        read_settings(NoLoss, config.loss, "loss")
        data = read_settings(Data, config.data, "data")
        model = read_settings(Model, config.model, "model")
        task = cls(*read_images(data, config.seed), data, model, config.seed)
        if run is not None and stored_file(run, IMAGES):
            size, _, classes = _load_sizes(run)
            if size != tuple(task.train.pixels.shape[1:]) or classes != task.train.classes:
                raise ValueError(f"the size or the classes of the images are not those of {run}")
        return task

    def build(self) -> nn.Module:
        """Build a fresh classifier for images of this size."""
        height, width = self.train.pixels.shape[1:]
        return _build((height, width), self.data.scale, self.train.classes, self.model)

    def steps(self, epoch: int) -> int:
        """Return how many batches the epoch has."""
        return -(-len(self.train.labels) // self.data.rows)

    def batch(self, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        """Return images and labels in the order of the epoch, moved a little with `shift`."""
        draw = torch.Generator().manual_seed(self.seed * 100_003 + epoch)
        order = torch.randperm(len(self.train.labels), generator=draw)
        chosen = self.train.pick(order[step * self.data.rows : (step + 1) * self.data.rows])
        pixels = chosen.pixels
        if self.data.shift:
            draw = torch.Generator().manual_seed((self.seed * 100_003 + epoch) * 100_003 + step)
            pixels = moved(pixels, self.data.shift, draw)
        return as_input(pixels, self.data.scale), chosen.labels

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Loss:
        """Return the cross entropy, summed."""
        images, labels = batch
        return classification_loss(model(images).logits, labels)

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Return loss and accuracy of the validation images, and accuracy of the test images."""
        valid = classification_metrics(self._logits(model, self.valid))
        test = classification_metrics(self._logits(model, self.test))
        return {**valid, "test_accuracy": test["accuracy"]}

    def _logits(self, model: nn.Module, images: Images) -> Iterator[tuple[Tensor, Tensor]]:
        rows = self.data.rows
        parts = zip(images.pixels.split(rows), images.labels.split(rows), strict=True)
        for pixels, labels in shared(parts, model):
            yield model(as_input(pixels, self.data.scale)).logits, labels

    def write(self, run: Path) -> None:
        """Store the size of the images and the names of the classes."""
        _save_sizes(run, self.train, self.data.scale)

    def fingerprint(self) -> dict[str, str]:
        """Return fingerprints of the data."""
        return {"train": fingerprint(self.train), "valid": fingerprint(self.valid)}

    def describe(self) -> str:
        """Return statistics of the images, for people."""
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
    """Return images for training, for validation and for test of a table `[data]`."""
    test: Images | None = None
    if data.images is not None:
        whole = _read(data, data.images, data.labels)
        if data.test_images is not None:
            test = _read(data, data.test_images, data.test_labels, whole.classes)
    elif data.name == "fashion":
        folder = _fashion(data.folder)
        whole, test = read_fashion(folder, "train"), read_fashion(folder, "test")
    elif data.name == "digits":
        whole = read_digits()
    else:
        whole = generate_images(data.count, seed=seed)
    return split_images(whole, test, seed, limit=data.limit, held_limit=data.test_limit)


def _read(
    data: Data, images: str, labels: str | None, classes: Sequence[str] | None = None
) -> Images:
    if labels is not None:
        return read_idx(images, labels, classes)
    return read_image_table(images, image=data.image, label=data.label, classes=classes)


def _is_table(path: str) -> bool:
    return is_saved_dataset(path) or format_of(path) in IMAGE_TABLES


def _build(
    size: tuple[int, int], scale: int, classes: Sequence[str], model: Model
) -> ImageClassifier:
    large = size[0] * scale, size[1] * scale
    return ImageClassifier(large, len(classes), **model.model_dump())


def _fashion(folder: str | None) -> Path:
    if folder is not None:
        return Path(folder)
    own = data_folder() / "fashion-mnist"
    return own if own.is_dir() or not DEBIAN.is_dir() else DEBIAN


def _size(images: Images) -> str:
    return " × ".join(map(str, images.pixels.shape[1:]))
