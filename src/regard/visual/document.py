"""A document with its sentences and words shaded by attention: terminal, page, figure."""

import shutil
from dataclasses import dataclass
from html import escape
from pathlib import Path

from regard.visual.color import Palette, on_color, terminal_palette
from regard.visual.display_width import display_width, printable
from regard.visual.html import html_page, write_html
from regard.visual.terminal import SHADES

STYLE = """
body { font: 17px/1.7 system-ui, "Noto Sans", "Noto Sans CJK KR", sans-serif; color: #1f2430;
  background: #fff; max-width: 46rem; margin: 2rem auto; padding: 0 1rem }
ol { list-style: none; padding: 0 }
li { display: flex; gap: .8rem; align-items: baseline }
li b { font: 13px/1.9 ui-monospace, monospace; padding: 0 .45rem; border-radius: 3px }
li p { margin: .15rem 0 }
span { border-radius: 3px; padding: .1em .05em }
span:focus { outline: 2px solid #1f2430 }
"""
WORD, SENTENCE = (47, 111, 190), (196, 66, 52)  # the blue of words, the red of sentences


@dataclass(frozen=True)
class ShadedDocument:
    """Words, and how much each of them and each sentence counts.

    >>> document = ShadedDocument([["so", " good"], ["bye"]], [[0.25, 0.75], [1.0]], [0.9, 0.1])
    >>> print(document.show(width=30, color="plain"))
    0.90 |##########| so good
                    | -- @@@@
    0.10 |#         | bye
                    | ===

    Attributes:
        sentences: the words of each sentence, with the blank before each
        word_weights: of each word in its sentence; a sentence's sum is 1
        sentence_weights: of each sentence; their sum is 1
        title: what is written above
    """

    sentences: list[list[str]]
    word_weights: list[list[float]]
    sentence_weights: list[float]
    title: str = ""

    def __post_init__(self) -> None:
        words = [len(part) for part in self.sentences]
        if words != [len(part) for part in self.word_weights] or len(words) != len(
            self.sentence_weights
        ):
            raise ValueError(
                f"a document of {len(words)} sentences, with {words[:5]} words and so on, needs a "
                "weight for each word and each sentence"
            )

    def shades(self) -> list[list[float]]:
        """How strongly each word is coloured, √(sentence) · word, the strongest being 1.

        The root lets one see the words of sentences that count little. Yang et al. 2016, fig. 5.
        """
        raw = [
            [own**0.5 * weight for weight in weights]
            for own, weights in zip(self.sentence_weights, self.word_weights, strict=True)
        ]
        most = max((shade for row in raw for shade in row), default=0.0) or 1.0
        return [[shade / most for shade in row] for row in raw]

    def show(self, *, width: int | None = None, color: Palette | None = None) -> str:
        """The document for a terminal: a bar for each sentence, its words on colours.

        Without colours, signs under the words say how much they count.
        """
        width = shutil.get_terminal_size().columns if width is None else width
        palette = terminal_palette() if color is None else color
        most = max(self.sentence_weights, default=0.0) or 1.0
        lines = [printable(self.title)] if self.title else []
        for words, shades, own in zip(
            self.sentences, self.shades(), self.sentence_weights, strict=True
        ):
            bar = ("#" if palette == "plain" else "█") * round(10 * own / most)
            front, room = f"{own:.2f} |{bar:<10}| ", max(width - 18, 8)
            for row in _wrapped(words, shades, room):
                text = "".join(
                    word if word.isspace() else _on_color(word, shade, palette)
                    for word, shade in row
                )
                lines.append((front + text).rstrip())
                front = " " * 16 + "| "
                if palette == "plain":
                    lines.append((front + "".join(_signs(*cell) for cell in row)).rstrip())
        return "\n".join(lines)

    def page(self, path: str | Path) -> None:
        """Write one offline HTML file: sentences in red on the left, words in blue."""
        rows = []
        most = max(self.sentence_weights, default=0.0) or 1.0
        for words, weights, shades, own in zip(
            self.sentences, self.word_weights, self.shades(), self.sentence_weights, strict=True
        ):
            spans = "".join(
                f'{" " if word[:1].isspace() else ""}<span tabindex="0" title="{weight:.3f} of its '
                f'sentence" style="background:rgba({_rgb(WORD)},{0.85 * shade:.2f})">'
                f"{escape(word.strip())}</span>"
                for word, weight, shade in zip(words, weights, shades, strict=True)
            )
            rows.append(
                f'<li><b style="background:rgba({_rgb(SENTENCE)},{0.85 * own / most:.2f})" '
                f'title="weight of the sentence">{own:.2f}</b><p dir="auto">{spans}</p></li>'
            )
        title = self.title or "document"
        body = (
            f"<h1>{escape(title)}</h1><p>Red: the weight of a sentence in the document. "
            "Blue: the weight of a word in its sentence.</p>\n<ol>\n" + "\n".join(rows) + "</ol>"
        )
        write_html(html_page(body, title=title, style=STYLE), path)

    def figure(self, path: str | Path, *, width: float = 8.0) -> None:
        """Write a PNG or SVG figure, `width` inches wide."""
        from regard.visual.figure.document import draw_document

        draw_document(self, path, width=width)


def _wrapped(words: list[str], shades: list[float], room: int) -> list[list[tuple[str, float]]]:
    """Lines of at most `room` columns; blanks between words are cells of their own."""
    rows: list[list[tuple[str, float]]] = [[]]
    used = 0
    for word, shade in zip(words, shades, strict=True):
        text = printable(word.strip()) if word.strip() else ""
        blank = " " if word[:1].isspace() and rows[-1] else ""
        need = len(blank) + display_width(text)
        if rows[-1] and used + need > room:
            rows.append([])
            used, blank = 0, ""
        if blank:
            rows[-1].append((" ", 0.0))
        if text:
            rows[-1].append((text, shade))
        used += len(blank) + display_width(text)
    return rows


def _on_color(word: str, shade: float, palette: Palette) -> str:
    return on_color(word, shade, palette) if shade >= 0.05 else word


def _signs(word: str, shade: float) -> str:
    sign = " " if word.isspace() else SHADES[round(shade * (len(SHADES) - 1))]
    return sign * display_width(word)


def _rgb(color: tuple[int, int, int]) -> str:
    return ",".join(map(str, color))
