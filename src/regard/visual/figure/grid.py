"""Every head of every attention call, side by side."""

from pathlib import Path

from matplotlib.figure import Figure

from regard.trace import Trace
from regard.visual.figure.canvas import figure, save
from regard.visual.figure.fonts import choose_fonts
from regard.visual.figure.heatmap import Colors, color_bar, label_ticks

SMALLEST, LARGEST = 0.85, 3.5  # inches of a map
TOKEN = 0.11  # inches of a token that is labelled
WIDEST = 18  # inches of the maps of one call
RESOLUTION = 64  # rows and columns of a map, at most; more are max-pooled
MOST = 400  # maps


def grid(trace: Trace, path: str | Path | None = None, *, colors: Colors = "viridis") -> Figure:
    """Draw a map for each head, a row of them per attention call, as PNG or SVG.

    All maps share one scale, from 0 to 1. Tokens are labelled where there is room for them.

    Args:
        trace: of one example
        path: a file to write, .png or .svg
        colors: "viridis" or "gray"

    Returns: the figure

    Raises:
        ValueError: a trace without calls, of a batch, or with more than 400 heads
    """
    one = one_example(trace, "a grid")
    calls = one.calls
    heads = sum(call.heads for call in calls)
    if heads > MOST:
        raise ValueError(f"a grid draws at most {MOST} heads, got {heads}; use trace.select(...)")
    across = max(call.heads for call in calls)
    longest = max(max(call.shape[-2:]) for call in calls)
    side = min(max(TOKEN * longest, SMALLEST), LARGEST, max(WIDEST / across, SMALLEST))
    is_labelled = longest * TOKEN <= side
    families, names = choose_fonts(call.name for call in calls)
    drawn = figure((side + 0.1) * across + 1.8, (side + 0.3) * len(calls) + 0.4)
    panels = drawn.subplots(len(calls), across, squeeze=False)
    for row, (call, name) in enumerate(zip(calls, names, strict=True)):
        weights = (call.map.dense() if is_labelled else call.map.pooled(RESOLUTION)).detach()
        numbers = call.provenance.get("heads", range(call.heads))
        labels = [token.replace("\n", "⏎") for side in one.labels(call) for token in side]
        for column in range(across):
            axes = panels[row, column]
            if column >= call.heads:
                axes.set_axis_off()
                continue
            image = axes.imshow(
                weights[column].float().cpu().numpy(), cmap=colors, vmin=0, vmax=1, aspect="auto"
            )
            axes.spines[:].set_linewidth(0.4)
            axes.set_title(f"head {numbers[column]}", fontsize=8, pad=3)
            axes.set_xticks([])
            axes.set_yticks([])
            if is_labelled:
                queries, keys = labels[: call.shape[-2]], labels[call.shape[-2] :]
                label_ticks(axes, queries if column == 0 else [], keys, size=5)
        style = {"rotation": 0, "ha": "right", "va": "center", "fontsize": 8}
        sides = f"{call.queries} → {call.keys}"
        panels[row, 0].set_ylabel(f"{name}\n{sides}", fontfamily=families, **style)
    drawn.tight_layout(pad=0.4, h_pad=1.2)
    color_bar(image, list(panels.flat), "weight")
    return save(drawn, path)


def one_example(trace: Trace, what: str) -> Trace:
    """The trace without its batch, which must be of one example, with at least one call."""
    if not trace.calls:
        raise ValueError(f"{what} needs a trace with at least one attention call")
    if {call.batch for call in trace.calls} == {1}:
        trace = trace.of(0)
    if any(call.batch is not None for call in trace.calls):
        raise ValueError(f"{what} draws one example of a batch; choose one with trace.of(0)")
    return trace
