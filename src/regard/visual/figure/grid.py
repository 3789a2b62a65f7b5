"""Every head of every layer, small."""

from pathlib import Path

from regard.trace import Call, Trace
from regard.visual.figure.canvas import figure, save
from regard.visual.figure.fonts import choose_fonts
from regard.visual.figure.heatmap import Colors

CELL = 0.85  # inches
RESOLUTION = 64  # rows and columns of a small map, at most; more are max-pooled
MOST = 400  # maps


def grid(trace: Trace, path: str | Path, *, colors: Colors = "viridis") -> Path:
    """Draw layers × heads of small maps, a row per attention call, as PNG or SVG.

    The scale of each is from 0 to 1.

    Args:
        trace: of one example
        path: the file, .png or .svg
        colors: "viridis" or "gray"

    Returns: the path

    Raises:
        ValueError: a trace without calls, of a batch, or with more than 400 heads
    """
    calls = one_example(trace, "a grid")
    heads = sum(call.heads for call in calls)
    if heads > MOST:
        raise ValueError(f"a grid draws at most {MOST} heads, got {heads}; see trace.select(...)")
    across = max(call.heads for call in calls)
    families, names = choose_fonts(call.name for call in calls)
    drawn = figure(CELL * across + 1.5, CELL * len(calls) + 0.4)
    axes = drawn.subplots(len(calls), across, squeeze=False)
    for row, (call, name) in enumerate(zip(calls, names, strict=True)):
        pooled = call.map.pooled(RESOLUTION).detach().float().cpu().numpy()  # (heads, ≤ 64, ≤ 64)
        numbers = call.provenance.get("heads", range(call.heads))
        for column in range(across):
            place = axes[row, column]
            place.set_xticks([])
            place.set_yticks([])
            if column >= call.heads:
                place.set_axis_off()
                continue
            place.imshow(pooled[column], cmap=colors, vmin=0, vmax=1, aspect="auto")
            place.spines[:].set_linewidth(0.4)
            if row == 0 or calls[row - 1].heads <= column:
                place.set_title(f"head {numbers[column]}", fontsize=8, pad=3)
        axes[row, 0].set_ylabel(
            name, rotation=0, ha="right", va="center", fontsize=9, fontfamily=families
        )
    drawn.subplots_adjust(wspace=0.08, hspace=0.12)
    return save(drawn, path)


def one_example(trace: Trace, what: str) -> list[Call]:
    """The calls of a trace that can be drawn: of one example, and at least one."""
    if not trace.calls:
        raise ValueError(f"{what} needs a trace with at least one attention call")
    if {call.batch for call in trace.calls} == {1}:
        trace = trace.of(0)
    if any(call.batch is not None for call in trace.calls):
        raise ValueError(f"{what} draws one example of a batch; choose one with trace.of(0)")
    return trace.calls
