"""Figures of single tasks: sizes, directions and titles."""

from pathlib import Path

import torch
from matplotlib.image import imread

from regard.visual.document import ShadedDocument
from regard.visual.figure.document import draw_document
from regard.visual.figure.task_figures import attended_images, draw_reasons


def test_a_document_of_short_lines_is_a_narrow_figure(tmp_path: Path) -> None:
    widths = []
    for words in (["짧다"], ["a", *[" word"] * 30]):
        shares = [1 / len(words)] * len(words)
        draw_document(ShadedDocument([words], [shares], [1.0], "so"), tmp_path / "d.png", width=7)
        widths.append(imread(tmp_path / "d.png").shape[1] / 160)
    assert widths[0] < 2
    assert 6.5 < widths[1] < 7.5


def test_words_of_a_sentence_from_right_to_left_begin_at_the_right(tmp_path: Path) -> None:
    """The first word has all the weight: it is the darkest, at the side where one begins."""
    side = []
    for words in (["one", " two", " three"], ["אחת", " שתיים", " שלוש"]):
        draw_document(ShadedDocument([words], [[1.0, 0.0, 0.0]], [1.0]), tmp_path / "d.png")
        pixels = imread(tmp_path / "d.png")[:, :, :3]
        blue = (pixels[..., 2] - pixels[..., 0] > 0.3).any(0).nonzero()[0]
        side.append(blue.mean() / pixels.shape[1])
    assert side[0] < 0.6 < side[1]


def test_titles_that_differ_at_their_end_are_told_apart(tmp_path: Path) -> None:
    files = [tmp_path / "1.svg", tmp_path / "2.svg"]
    for part, file in enumerate(files, start=1):
        name = f"The Lord of the Rings, part {part} (2001)"
        draw_reasons(["own taste"], [name], [[0.5]], {}, file)
    assert files[0].read_bytes() != files[1].read_bytes()


def test_a_title_of_two_lines_is_written_below_itself_not_beside(tmp_path: Path) -> None:
    images, weights = torch.rand(2, 5, 7), torch.rand(2, 5, 7)
    sizes = []
    for titles in (["three 55%", "two"], ["three 55%\n(two hundred and three)", "two"]):
        attended_images(images, weights, titles, tmp_path / "a.png")
        sizes.append(imread(tmp_path / "a.png").shape[0])
    assert sizes[1] > sizes[0]
