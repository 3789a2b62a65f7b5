"""The diagnostics of every head as coloured tables."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from regard.analysis import diagnose
from regard.trace import Trace
from regard.visual.figure.canvas import figure, save
from regard.visual.figure.fonts import choose_fonts
from regard.visual.figure.grid import one_example

MEASURES = ("entropy", "sink", "diagonality", "previous", "next", "redundancy")
TITLES = {
    "entropy": "entropy (nats)",
    "sink": "on the first key",
    "diagonality": "diagonality",
    "previous": "on the previous key",
    "next": "on the next key",
    "redundancy": "similarity to a head",
}


def diagnostics(
    trace: Trace, path: str | Path | None = None, *, measures: Iterable[str] = MEASURES
) -> Figure:
    """Draw the diagnostics of every head, calls × heads for each measure, as PNG or SVG.

    See `regard.analysis.diagnose` for what they mean.

    Args:
        trace: of one example
        path: a file to write, .png or .svg
        measures: which, of entropy, sink, diagonality, previous, next, redundancy

    Returns: the figure

    Raises:
        ValueError: an unknown measure, or a trace that is empty or of a batch
    """
    chosen = list(measures)
    unknown = [each for each in chosen if each not in MEASURES]
    if unknown or not chosen:
        raise ValueError(f"measures are {', '.join(MEASURES)}, got {', '.join(unknown) or 'none'}")
    one = one_example(trace, "the diagnostics")
    calls, rows = one.calls, diagnose(one)
    families, names = choose_fonts(call.name for call in calls)
    across = max(call.heads for call in calls)
    high, wide = 0.32 * len(calls) + 0.9, max(0.42 * across, 1.4)
    drawn = figure(wide * len(chosen) + 1.5, high)
    places = drawn.subplots(1, len(chosen), squeeze=False)[0]
    for place, measure in zip(places, chosen, strict=True):
        table = np.full((len(calls), across), np.nan)
        place_of = {call.name: index for index, call in enumerate(calls)}
        for row in rows:
            table[place_of[row.name], row.head] = getattr(row, measure)
        largest = max(np.nanmax(table), 1e-9) if measure == "entropy" else 1.0
        place.imshow(table, cmap="viridis", vmin=0, vmax=largest, aspect="auto")
        for (i, j), value in np.ndenumerate(table):
            if np.isfinite(value):
                ink = "black" if value > 0.6 * largest else "white"
                place.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=6, color=ink)
        place.set_title(TITLES[measure], fontsize=9)
        place.set_xticks(range(across))
        place.set_xlabel("head", fontsize=8)
        place.tick_params(labelsize=7, length=0)
        place.spines[:].set_visible(False)
        place.set_yticks(range(len(calls)), names if place is places[0] else [""] * len(calls))
        for text in place.get_yticklabels():
            text.set_fontfamily(families)
    drawn.subplots_adjust(wspace=0.08)
    return save(drawn, path)
