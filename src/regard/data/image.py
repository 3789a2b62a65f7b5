"""Grayscale images with classes: IDX files, tables, handwritten digits, generated shapes."""

import io
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.files import check_expansion, open_file, readable
from regard.data.labelled import Labelled
from regard.data.tables import Columns, cell, find_format, read_records
from regard.system.extras import with_hint

FASHION = (
    *("t-shirt", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
IMAGE_TABLES = ("parquet", "dataset", "jsonl")
SHAPES = ("square", "disc", "cross", "ring", "stripes")


class Images(NamedTuple):
    """Images of one size with labels."""

    pixels: Tensor  # (N, height, width), uint8
    labels: Tensor  # (N,)
    classes: tuple[str, ...]

    def pick(self, index: Tensor) -> "Images":
        """The images at some positions."""
        return Images(self.pixels[index], self.labels[index], self.classes)


def read_idx(
    images: str | Path, labels: str | Path, classes: Sequence[str] | None = None
) -> Images:
    """Read images and labels from two IDX files, the format of MNIST, plain or compressed.

    Args:
        images: an IDX file of bytes in three dimensions
        labels: an IDX file of bytes in one
        classes: their names; by default the numbers
    """
    pixels, numbers = _idx(images, 3), _idx(labels, 1)
    if len(pixels) != len(numbers):
        raise ValueError(
            f"{images} has {len(pixels)} images, but {labels} has {len(numbers)} labels"
        )
    most = int(numbers.max())
    names = tuple(map(str, range(most + 1))) if classes is None else tuple(classes)
    if most >= len(names):
        raise ValueError(f"{labels} has label {most}, but there are {len(names)} classes")
    return Images(pixels, numbers.long(), names)


def read_image_table(
    path: str | Path,
    *,
    image: str = "image",
    label: str = "label",
    classes: Sequence[str] | None = None,
) -> Images:
    """Read images and their classes from Parquet, a directory of `save_to_disk`, or JSON lines.

    Args:
        path: the file or directory
        image: the column of the image: the bytes of a file, as the `datasets` library stores them,
            or rows of whole numbers from 0 to 255; colours become grey
        label: the column of the class
        classes: those of other images; by default the names that occur, in alphabetical order
    """
    columns = Columns(path, {"label": label}, labels=["label"])
    both = Columns(path, {"image": image, "label": label})
    pixels: list[Tensor] = []
    names: list[str] = []
    for number, record in read_records(path, both, format=find_format(path, None, IMAGE_TABLES)):
        try:
            pixels.append(_grey(cell(record, image)))
            names += columns.texts(record)
            if pixels[-1].shape != pixels[0].shape:
                sizes = [" × ".join(map(str, one.shape)) for one in (pixels[-1], pixels[0])]
                raise ValueError(f"an image of {sizes[0]} pixels, but the first has {sizes[1]}")
        except (OSError, ValueError) as error:
            raise ValueError(f"{path}, row {number}: {error}") from error
    found = Labelled.of(zip(pixels, names, strict=True), None if classes is None else [*classes])
    return Images(torch.stack(pixels), torch.tensor(found.labels), tuple(found.classes))


def _grey(value: Any) -> Tensor:
    """An image (height, width) of bytes, of the bytes of a file, a PIL image, or numbers."""
    if isinstance(value, dict) and isinstance(value.get("bytes"), bytes):
        from PIL import Image

        value = Image.open(io.BytesIO(value["bytes"]))
    if hasattr(value, "convert"):
        value = value.convert("L")
    array = np.asarray(value)
    if array.ndim != 2 or array.dtype.kind not in "iu" or not array.size:
        raise ValueError("expected an image file, or rows of whole numbers from 0 to 255")
    if array.min() < 0 or array.max() > 255:
        raise ValueError(f"pixels should be from 0 to 255, got {array.min()} to {array.max()}")
    return torch.from_numpy(array.astype(np.uint8))


def read_fashion(folder: str | Path, split: str) -> Images:
    """Read Fashion-MNIST (Xiao et al. 2017), "train" or "test", from its four files."""
    part = {"train": "train", "test": "t10k"}[split]
    files = [
        next((path for path in (stem, stem.with_name(f"{stem.name}.gz")) if path.is_file()), stem)
        for stem in (
            Path(folder) / f"{part}-images-idx3-ubyte",
            Path(folder) / f"{part}-labels-idx1-ubyte",
        )
    ]
    if not files[0].is_file():
        raise FileNotFoundError(
            f"there is no {files[0]}[.gz]; Debian's package dataset-fashion-mnist has it in "
            "/usr/share/datasets/fashion-mnist"
        )
    return read_idx(files[0], files[1], FASHION)


def read_digits() -> Images:
    """The 1,797 handwritten digits of 8 × 8 pixels that come with scikit-learn."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        raise with_hint("the dataset digits", error) from error
    digits = load_digits()
    pixels = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    return Images(
        torch.from_numpy(pixels),
        torch.from_numpy(digits.target.astype(np.int64)),
        tuple(map(str, range(10))),
    )


def generate_images(count: int, size: int = 12, *, seed: int = 0) -> Images:
    """Draw shapes of different sizes anywhere on noisy paper.

    >>> images = generate_images(7, seed=1)
    >>> images.pixels.shape, images.pixels.dtype, images.classes[int(images.labels[0])] in SHAPES
    (torch.Size([7, 12, 12]), torch.uint8, True)

    Args:
        count: number of images
        size: height and width, 9 or more
        seed: of the images
    """
    if count < 1 or size < 9:
        raise ValueError(f"count must be 1 or more and size 9 or more, got {count} and {size}")
    rng = torch.Generator().manual_seed(seed)
    labels = torch.randint(len(SHAPES), (count,), generator=rng)
    radius = 2.5 + (size / 3 - 2.5) * torch.rand(count, 1, 1, generator=rng)
    center = radius + (size - 1 - 2 * radius) * torch.rand(2, count, 1, 1, generator=rng)
    place = torch.arange(size, dtype=torch.float32)
    y, x = place.view(1, size, 1) - center[0], place.view(1, 1, size) - center[1]
    far, near = torch.maximum(x.abs(), y.abs()), torch.minimum(x.abs(), y.abs())
    round_ = (x.square() + y.square()).sqrt()
    drawn = torch.stack(
        (
            (far <= radius).expand(count, size, size),
            round_ <= radius,
            (near < 0.8) & (far <= radius),
            (round_ <= radius) & (round_ > radius - 1.3),
            (far <= radius) & ((place.view(1, size, 1) % 2) == 0),
        )
    )  # (shapes, count, size, size)
    ink = drawn[labels, torch.arange(count)].float()
    noisy = 0.8 * ink + 0.2 * torch.rand(count, size, size, generator=rng)
    return Images((255 * noisy).to(torch.uint8), labels, SHAPES)


def split_images(
    whole: Images, test: Images | None, seed: int, *, limit: int | None, held_limit: int | None
) -> tuple[Images, Images, Images]:
    """Return images for training, for validation and for test, at random.

    A fifth is for validation; where there are no other images for test, another fifth is. Where
    there are, no more are for validation than for test.

    Args:
        limit: the largest number for training
        held_limit: the same for validation, and for test
    """
    count = len(whole.labels)
    if count < 5:
        raise ValueError(f"{count} images are too few to hold out a fifth of them")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    held = count // 5 if test is None else min(count // 5, len(test.labels))
    valid, rest = whole.pick(order[:held]), order[held:]
    if test is None:
        test, rest = whole.pick(rest[:held]), rest[held:]

    def limited(images: Images, most: int | None) -> Images:
        if most is None or most >= len(images.labels):
            return images
        draw = torch.Generator().manual_seed(seed)
        return images.pick(torch.randperm(len(images.labels), generator=draw)[:most])

    return limited(whole.pick(rest), limit), limited(valid, held_limit), limited(test, held_limit)


def as_input(pixels: Tensor, scale: int = 1) -> Tensor:
    """Scale bytes (B, h, w) to floats from 0 to 1, (B, h · scale, w · scale), interpolated.

    >>> as_input(torch.tensor([[[0, 255]]], dtype=torch.uint8), scale=2).shape
    torch.Size([1, 2, 4])
    """
    x = pixels.float() / 255
    if scale == 1:
        return x
    return F.interpolate(x.unsqueeze(1), scale_factor=scale, mode="bilinear").squeeze(1)


def moved(pixels: Tensor, most: int, draw: torch.Generator) -> Tensor:
    """Return images (B, h, w), each moved by up to `most` pixels in both directions; zeros fill in.

    >>> moved(torch.ones(2, 3, 5), 1, torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3, 5])
    """
    batch, height, width = pixels.shape
    padded = F.pad(pixels, (most, most, most, most))
    top, left = torch.randint(2 * most + 1, (2, batch, 1), generator=draw)
    rows, columns = top + torch.arange(height), left + torch.arange(width)  # (B, h), (B, w)
    return padded[torch.arange(batch).view(-1, 1, 1), rows.unsqueeze(2), columns.unsqueeze(1)]


def _idx(path: str | Path, dimensions: int) -> Tensor:
    """The bytes of an IDX file."""
    path = readable(path)
    head = 4 + 4 * dimensions
    try:
        with open_file(path) as file:
            start = file.read(head)
            if len(start) < head or start[:4] != bytes((0, 0, 8, dimensions)):
                raise ValueError(
                    f"{path} is not an IDX file of bytes in {dimensions} dimensions: it should "
                    f"begin with 0000080{dimensions}, got {start[:4].hex() or 'nothing'}"
                )
            shape = struct.unpack(f">{dimensions}I", start[4:])
            size = math.prod(shape)
            check_expansion(path, size)
            data = file.read(size + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path} is damaged or truncated: {error}") from error
    if len(data) != size:
        found = "more" if len(data) > size else f"{len(data)}"
        raise ValueError(
            f"{path} should have {size} bytes for {' × '.join(map(str, shape))}, got {found}"
        )
    if not size:
        raise ValueError(f"{path} is empty: its shape is {' × '.join(map(str, shape))}")
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(shape)
