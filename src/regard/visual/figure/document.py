"""A document with its sentences and words shaded, as a figure."""

import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from regard.visual.figure.canvas import figure, save
from regard.visual.figure.fonts import choose_fonts

if TYPE_CHECKING:
    from regard.visual.document import ShadedDocument

SIZE, LINE, LEFT = 10, 0.26, 0.6  # points of a letter; inches of a line and of the left column
BLUES, REDS = "#2f6fbe", "#c44234"


def _is_leftwards(text: str) -> bool:
    """Whether a text is written from right to left, by its first strong letter (Annex 9, P2)."""
    strong = (unicodedata.bidirectional(char) for char in text)
    return next((kind for kind in strong if kind in ("L", "R", "AL")), "L") != "L"


def draw_document(
    document: "ShadedDocument", path: str | Path | None = None, *, width: float = 8.0
) -> Figure:
    """Draw sentences below each other, words on blue, the weight of a sentence on red.

    Args:
        document: what to draw
        path: a file to write, .png or .svg
        width: inches, at most; less if no line is so long

    Returns: the figure
    """
    words = [word.strip() for part in document.sentences for word in part if word.strip()]
    written = choose_fonts([*words, document.title])
    labels = iter(written.labels)
    style: dict[str, Any] = {
        "fontsize": SIZE,
        "fontfamily": written.families,
        "va": "baseline",
        "parse_math": False,
    }
    drawn = figure(width, 1.0)  # its height is known when the words have found their places
    renderer = drawn.canvas.get_renderer()  # type: ignore[attr-defined]
    widths: dict[str, float] = {}

    def inches(text: str) -> float:
        if text not in widths:
            box = Text(0, 0, text, figure=drawn, **style).get_window_extent(renderer)
            widths[text] = box.width / drawn.dpi
        return widths[text]

    blank = inches("a a") - inches("aa")
    # inches from where a line begins, line, word, shade, and whether its sentence goes leftwards
    placed: list[tuple[float, int, str, float, bool]] = []
    starts: list[tuple[int, float]] = []  # the first line of each sentence, and its weight
    line = 1 if document.title else 0
    for part, shades, own in zip(
        document.sentences, document.shades(), document.sentence_weights, strict=True
    ):
        starts.append((line, own))
        leftwards = _is_leftwards("".join(part))
        x = LEFT
        for word, shade in zip(part, shades, strict=True):
            x += blank if word[:1].isspace() and x > LEFT else 0.0
            if not word.strip():
                continue
            text = next(labels)
            if x > LEFT and x + inches(text) > width:
                x, line = LEFT, line + 1
            placed.append((x, line, text, shade, leftwards))
            x += inches(text)
        line += 1

    reached = [x + inches(text) for x, _, text, _, _ in placed]
    width = min(width, max(*reached, LEFT + inches(document.title)) + 0.1)
    height = line * LINE + 0.1
    drawn.set_size_inches(width, height)
    axes = drawn.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.axis("off")

    def shaded(x: float, line: int, text: str, wide: float, color: str, share: float) -> None:
        top = line * LINE + 0.03
        axes.add_patch(
            Rectangle((x, top), wide, LINE - 0.03, color=color, alpha=0.8 * share, linewidth=0)
        )
        axes.text(x, top + 0.165, text, color="white" if share > 0.75 else "#1f2430", **style)

    most = max(document.sentence_weights, default=0.0) or 1.0
    for line, own in starts:
        shaded(0.05, line, f" {own:.2f}", 0.42, REDS, own / most)
    for x, line, text, shade, leftwards in placed:
        wide = inches(text)
        shaded(LEFT + width - 0.1 - x - wide if leftwards else x, line, text, wide, BLUES, shade)
    if document.title:
        axes.text(0.05, 0.17, written.labels[-1], fontweight="bold", **style)
    return save(drawn, path)
