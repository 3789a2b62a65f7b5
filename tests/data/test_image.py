import gzip
import struct
from pathlib import Path

import pytest
import torch

from regard.data.image import as_input, generate_images, read_digits, read_fashion, read_idx


def idx(path: Path, tensor: torch.Tensor, *, packed: bool = False) -> Path:
    head = bytes((0, 0, 8, tensor.dim())) + struct.pack(f">{tensor.dim()}I", *tensor.shape)
    data = head + bytes(tensor.flatten().tolist())
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


@pytest.fixture
def pixels() -> torch.Tensor:
    return torch.arange(2 * 3 * 5, dtype=torch.uint8).view(2, 3, 5)


@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_are_read_plain_and_gzipped(tmp_path: Path, pixels, packed) -> None:
    images = idx(tmp_path / "i", pixels, packed=packed)
    labels = idx(tmp_path / "l", torch.tensor([1, 0], dtype=torch.uint8), packed=packed)
    read = read_idx(images, labels)
    assert torch.equal(read.pixels, pixels)
    assert read.labels.tolist() == [1, 0]
    assert read.classes == ("0", "1")


def test_malformed_idx_files_are_one_sentence(tmp_path: Path, pixels) -> None:
    images = idx(tmp_path / "i", pixels)
    labels = idx(tmp_path / "l", torch.tensor([1, 0], dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"not an IDX file .* in 3 dimensions: .* got 00000801"):
        read_idx(labels, labels)
    three = idx(tmp_path / "l3", torch.tensor([1, 0, 1], dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"has 2 images, but .* has 3 labels"):
        read_idx(images, three)
    with pytest.raises(ValueError, match="has label 1, but there are 1 classes"):
        read_idx(images, labels, ["only"])
    images.write_bytes(images.read_bytes()[:-1])
    with pytest.raises(ValueError, match="should have 30 bytes for 2 × 3 × 5, got 29"):
        read_idx(images, labels)
    idx(tmp_path / "z", pixels, packed=True)
    (tmp_path / "z").write_bytes((tmp_path / "z").read_bytes()[:-10])
    with pytest.raises(ValueError, match="damaged or truncated"):
        read_idx(tmp_path / "z", labels)
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(ValueError, match="got nothing"):
        read_idx(tmp_path / "empty", labels)
    with pytest.raises(FileNotFoundError, match="dataset-fashion-mnist"):
        read_fashion(tmp_path, "train")


def test_a_file_of_no_image_is_said_to_be_empty(tmp_path: Path) -> None:
    for shape in ((0, 5, 7), (3, 0, 0)):
        path = tmp_path / "images"
        path.write_bytes(bytes((0, 0, 8, 3)) + struct.pack(">3I", *shape))
        with pytest.raises(ValueError, match=f"images is empty: its shape is {shape[0]} × "):
            read_idx(path, path)


def test_fashion_is_found_by_the_names_of_its_files(tmp_path: Path, pixels) -> None:
    idx(tmp_path / "t10k-images-idx3-ubyte.gz", pixels, packed=True)
    idx(tmp_path / "t10k-labels-idx1-ubyte", torch.tensor([9, 0], dtype=torch.uint8))
    read = read_fashion(tmp_path, "test")
    assert [read.classes[i] for i in read.labels] == ["ankle boot", "t-shirt"]


def test_the_digits_are_those_of_scikit_learn() -> None:
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    digits = read_digits()
    assert digits.pixels.shape == (1797, 8, 8)
    assert int(digits.pixels.max()) == 255
    assert digits.labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_generated_shapes_have_the_form_of_their_class() -> None:
    images = generate_images(300, 13, seed=5)
    ink = images.pixels > 127
    box = []
    for one in ink:
        rows, columns = one.any(1).nonzero(), one.any(0).nonzero()
        box.append(float(rows.max() - rows.min() + 1) * float(columns.max() - columns.min() + 1))
    filled = ink.sum((1, 2)) / torch.tensor(box)  # how much of its box a shape fills
    by_class = [filled[images.labels == label].mean() for label in range(5)]
    assert by_class[0] > 0.95  # a square fills its box
    assert 0.7 < by_class[1] < 0.95  # a disc does not quite
    assert by_class[2] < 0.6  # a cross does not at all
    assert by_class[3] < by_class[1] - 0.05  # a ring has a hole
    assert torch.equal(images.pixels, generate_images(300, 13, seed=5).pixels)


def test_input_is_from_zero_to_one_and_as_large_as_wanted() -> None:
    pixels = torch.tensor([[[0, 255], [255, 0]]], dtype=torch.uint8)
    assert torch.equal(as_input(pixels), torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]))
    large = as_input(pixels, 3)
    assert large.shape == (1, 6, 6)
    assert large[0, 0, 0] == 0
    assert large[0, 0, 5] == 1
