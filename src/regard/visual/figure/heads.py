"""Self-attention of every head of every layer, side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from regard.visual.figure.canvas import figure, save
from regard.visual.figure.fonts import choose_fonts

MOST = 40  # tokens that are labelled


def draw_heads(tokens: Sequence[str], maps: Mapping[str, Tensor], path: str | Path) -> Path:
    """Draw a row of maps for each layer, a column for each head.

    Args:
        tokens: T of them
        maps: by the name of the layer, (heads, T, T) each
        path: the file, .png or .svg
    """
    heads = max(len(map) for map in maps.values())
    side = min(max(0.11 * len(tokens), 1.4), 3.5)
    drawn = figure(heads * side + 0.8, len(maps) * (side + 0.25) + 0.4)
    panels = drawn.subplots(len(maps), heads, squeeze=False)
    written = choose_fonts([token.replace("\n", "⏎") or "␣" for token in tokens])
    for row, map in enumerate(maps.values()):
        for head in range(heads):
            axes = panels[row][head]
            if head >= len(map):
                axes.axis("off")
                continue
            axes.imshow(map[head].numpy(), cmap="viridis", vmin=0.0, vmax=1.0)
            axes.set_title(f"layer {row + 1}, head {head + 1}", fontsize=7, pad=3)
            axes.spines[:].set_visible(False)
            labelled = len(tokens) <= MOST
            places, labels = (range(len(tokens)), written.labels) if labelled else ((), ())
            style = {"fontfamily": written.families, "fontsize": 5}
            axes.set_xticks(places, labels, **style)
            axes.set_yticks(places, labels if head == 0 else [""] * len(places), **style)
            axes.tick_params(length=0, pad=1)
            for text in (*axes.get_xticklabels(), *axes.get_yticklabels()):
                text.set_parse_math(False)
    drawn.tight_layout(pad=0.4)
    return save(drawn, path)
