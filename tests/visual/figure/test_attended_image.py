"""Images with what was looked at on them: a title may have two lines."""

from pathlib import Path

import torch
from matplotlib.image import imread

from regard.visual.figure.attended_image import attended_images


def test_a_title_of_two_lines_is_written_below_itself_not_beside(tmp_path: Path) -> None:
    images, weights = torch.rand(2, 5, 7), torch.rand(2, 5, 7)
    sizes = []
    for titles in (["three 55%", "two"], ["three 55%\n(two hundred and three)", "two"]):
        path = attended_images(images, weights, titles, tmp_path / "a.png")
        sizes.append(imread(path).shape[0])
    assert sizes[1] > sizes[0]
