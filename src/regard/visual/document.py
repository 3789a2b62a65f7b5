"""A document with its sentences and words shaded by attention, in a terminal."""

import shutil
from dataclasses import dataclass
from itertools import accumulate, pairwise

from regard.trace import Trace
from regard.visual.color import Palette, on_color, terminal_palette
from regard.visual.display_width import display_width, printable
from regard.visual.terminal import SHADES


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

    @classmethod
    def from_trace(cls, trace: Trace) -> "ShadedDocument":
        """Return the document of a trace of the task classify."""
        weights = trace["words"].map.dense()[0]  # (sentences, words)
        ends = [*accumulate(trace.about["sentence_lengths"], initial=0)]
        words, spans = trace.tokens["word"], list(pairwise(ends))
        if ends[-1] != len(words) or len(spans) != len(weights) or sorted(ends) != ends:
            raise ValueError(f"sentence_lengths do not fit {len(words)} words: {ends[:5]}")
        return cls(
            [words[start:end] for start, end in spans],
            [row[start:end].tolist() for row, (start, end) in zip(weights, spans, strict=True)],
            trace["sentences"].map[0, 0].tolist(),
            str(trace.about.get("title", "")),
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
