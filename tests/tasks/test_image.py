"""Classification of images: learning, splits, augmentation, settings."""

import struct
from pathlib import Path

import pytest
import torch

from regard.data.image import Images, generate_images, moved
from regard.recipes import load_recipe
from regard.tasks import load
from regard.tasks.image import Data, ImageTask, Model, read_images
from regard.training import read_config, read_settings, train
from regard.visual.views import figure


@pytest.mark.slow
@pytest.mark.parametrize("options", [["model.attention=dot"], ["model.region=3"], []])
def test_it_learns_shapes_and_the_run_opens_again(tmp_path: Path, options: list[str]) -> None:
    small = ["data.count=1000", "model.dim=32", "model.layers=2", "training.epochs=12"]
    config = read_config(load_recipe("image"), [*small, "model.dropout=0.0", *options])
    task = ImageTask.from_config(config)
    metrics = train(task, config, tmp_path / "run").metrics
    assert metrics["accuracy"] > 0.6  # a fifth by chance
    predictor = load(tmp_path / "run")
    found = predictor.classify(task.test.pixels)
    right = [
        one.label == predictor.classes[int(label)]
        for one, label in zip(found, task.test.labels, strict=True)
    ]
    assert sum(right) / len(right) == pytest.approx(metrics["test_accuracy"])
    pairs = zip(task.valid.pixels[:7], task.valid.labels[:7], strict=True)
    traces = [predictor.trace(image, label=predictor.classes[int(y)]) for image, y in pairs]
    assert traces[0].about["grid"] == [6, 6]
    assert float(traces[0]["patches"].map.dense().sum()) == pytest.approx(1, abs=1e-5)
    figure(traces, tmp_path / "seen.png")
    assert (tmp_path / "seen.png").stat().st_size > 5000
    assert torch.equal(predictor.parse("3"), task.test.pixels[2])
    with pytest.raises(ValueError, match=r"images of 12 × 12 pixels, .* got \(1, 28, 28\)"):
        predictor.classify(torch.zeros(1, 28, 28, dtype=torch.uint8))
    with pytest.raises(TypeError, match=r"bytes, torch\.uint8, got torch\.float32"):
        predictor.classify(torch.zeros(1, 12, 12))


def task_of(**data) -> ImageTask:
    images = generate_images(23, seed=3)
    return ImageTask(images, images, images, Data(**{"rows": 7} | data), Model(dim=8, layers=1))


def test_an_epoch_has_every_image_once_and_repeats_itself() -> None:
    task = task_of()
    labels = torch.cat([task.batch(2, step)[1] for step in range(task.steps(2))])
    assert sorted(labels.tolist()) == sorted(task.train.labels.tolist())
    shifted = task_of(shift=2)
    assert torch.equal(shifted.batch(1, 2)[0], shifted.batch(1, 2)[0])
    assert not torch.equal(shifted.batch(1, 2)[0], task.batch(1, 2)[0])


def test_no_image_is_in_two_splits() -> None:
    parts = read_images(Data(count=101), 3)
    assert [len(part.labels) for part in parts] == [61, 20, 20]
    seen = [{bytes(image.numpy()) for image in part.pixels} for part in parts]
    assert len(set.union(*seen)) == 101
    limited = read_images(Data(count=101, limit=7, test_limit=5), 3)
    assert [len(part.labels) for part in limited] == [7, 5, 5]
    with pytest.raises(ValueError, match="3 images are too few"):
        read_images(Data(count=3), 3)


def test_images_for_test_may_be_in_files_of_their_own(tmp_path: Path) -> None:
    for name, count in (("train", 23), ("test", 3)):
        images = generate_images(count, seed=count)
        (tmp_path / f"{name}.images").write_bytes(
            bytes((0, 0, 8, 3)) + struct.pack(">3I", count, 12, 12) + bytes(images.pixels.numpy())
        )
        (tmp_path / f"{name}.labels").write_bytes(
            bytes((0, 0, 8, 1)) + struct.pack(">I", count) + bytes(images.labels.tolist())
        )
    train, valid, test = read_images(
        Data(
            images=str(tmp_path / "train.images"),
            labels=str(tmp_path / "train.labels"),
            test_images=str(tmp_path / "test.images"),
            test_labels=str(tmp_path / "test.labels"),
        ),
        1,
    )
    assert [len(part.labels) for part in (train, valid, test)] == [20, 3, 3]
    assert torch.equal(test.pixels, generate_images(3, seed=3).pixels)


def test_an_image_is_moved_whole_and_at_most_so_far() -> None:
    pixels = torch.zeros(50, 7, 11, dtype=torch.uint8)
    pixels[:, 3, 5] = 9
    found = moved(pixels, 2, torch.Generator().manual_seed(1))
    assert torch.equal(found.sum((1, 2)), torch.full((50,), 9))
    places = found.flatten(1).argmax(1)
    assert set((places // 11).tolist()) == {1, 2, 3, 4, 5}
    assert set((places % 11).tolist()) == {3, 4, 5, 6, 7}


def test_images_are_enlarged_for_the_model() -> None:
    task = task_of(scale=2)
    images, _ = task.batch(0, 0)
    assert images.shape == (7, 24, 24)
    assert task.build()(images).logits.shape == (7, 5)
    assert "576 patches" in task.describe()


def test_bad_tables_and_sizes_are_clear_errors() -> None:
    with pytest.raises(ValueError, match="images and labels belong together"):
        read_settings(Data, {"images": "x"}, "data")
    with pytest.raises(ValueError, match="give either name, or images"):
        read_settings(Data, {"name": "digits", "images": "x", "labels": "y"}, "data")
    with pytest.raises(ValueError, match="test_images need images and labels to train on"):
        read_settings(Data, {"test_images": "x", "test_labels": "y"}, "data")
    with pytest.raises(ValueError, match="folder is where the files of name=fashion are"):
        read_settings(Data, {"folder": "fashion-mnist"}, "data")
    with pytest.raises(ValueError, match=r"unknown key loss\.smooth"):
        ImageTask.from_config(
            read_config({"task": "image", "loss": {"smooth": 1}, "training": {"steps": 1}})
        )
    small, large = generate_images(7, 12), generate_images(7, 13)
    with pytest.raises(ValueError, match="training are 12 × 12 pixels, those for test 13 × 13"):
        ImageTask(small, small, Images(*large), Data(), Model())
    with pytest.raises(ValueError, match="those for validation 13 × 13"):
        ImageTask(small, large, small, Data(), Model())
