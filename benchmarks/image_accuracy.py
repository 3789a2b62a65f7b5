"""Accuracy of image classifiers on all test images, and how far each is from the first.

    python -m benchmarks.image_accuracy runs/dot runs/efficient

Runs are trained with few images for test, so that training does not wait for it; this reads all of
them, whatever `data.test_limit` is. The interval of a difference, 95 %, is over the images, since
both models see the same ones.
"""

import argparse
import time
from pathlib import Path

import torch

from regard.tasks.image import Data, ImagePredictor, read_images
from regard.training.settings import read_settings


def right(run: Path) -> torch.Tensor:
    """Whether each test image of a run's data is classified correctly, (images,)."""
    predictor = ImagePredictor.from_run(run)
    assert predictor.config is not None
    settings = {**predictor.config.data, "test_limit": None}
    *_, test = read_images(read_settings(Data, settings, "data"), predictor.seed)
    labels = [test.classes[label] for label in test.labels.tolist()]
    found = predictor.predict(test.pixels)
    return torch.tensor([one.label == label for one, label in zip(found, labels, strict=True)])


def main() -> None:
    """Print a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path)
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    first = None
    for run in wanted.runs:
        begin = time.process_time()
        found = right(run).double()
        line = f"{run}: {found.mean():.2%} of {len(found):,} images"
        if first is not None:
            differs = found - first
            margin = 1.96 * differs.std() / len(differs) ** 0.5
            line += f", {100 * differs.mean():+.2f} ± {100 * margin:.2f} points"
        print(f"{line}, {time.process_time() - begin:.0f} s", flush=True)
        first = found if first is None else first


if __name__ == "__main__":
    main()
