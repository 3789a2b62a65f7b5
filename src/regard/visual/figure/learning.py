"""How fast several runs became how good."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from regard.visual.figure.canvas import figure, save
from regard.visual.figure.curves import INK, LINES
from regard.visual.figure.fonts import lettering

MARKS = ("o", "s", "^", "D", "v", "x")


def learning(
    runs: Mapping[str, Sequence[tuple[float, float]]],
    path: str | Path,
    *,
    metric: str,
    target: float | None = None,
    against: str = "seconds of training and evaluation",
    log: bool = False,
) -> Path:
    """Draw quality against time, one line for each run, as PNG or SVG.

    Names that begin alike, up to a hyphen, share a colour and differ in their lines and marks.

    Args:
        runs: by name, seconds and quality of every evaluation
        path: the file, .png or .svg
        metric: what the quality is
        target: a quality to mark
        against: what stands in the place of seconds
        log: whether the quality's scale is logarithmic

    Returns: the path

    Raises:
        ValueError: nothing to draw
    """
    if not any(runs.values()):
        raise ValueError("none of the runs was evaluated: there is nothing to draw")
    families, labels = lettering(runs)
    drawn = figure(7.2, max(3.6, 0.24 * len(runs)))
    place = drawn.subplots()
    kinds: dict[str, list[str]] = {}
    for name in runs:
        kinds.setdefault(name.partition("-")[0], []).append(name)
    order = list(kinds)
    for label, (name, points) in zip(labels, runs.items(), strict=True):
        kind = name.partition("-")[0]
        index = kinds[kind].index(name)
        place.plot(
            [seconds for seconds, _ in points],
            [quality for _, quality in points],
            label=label,
            color=INK[order.index(kind) % len(INK)],
            linestyle=LINES[index % len(LINES)],
            marker=MARKS[index % len(MARKS)],
            markersize=3.5,
            linewidth=1.4,
        )
    if target is not None:
        place.axhline(target, color="#555d66", linewidth=0.8, linestyle=(0, (1, 3)))
    if log:
        place.set_yscale("log")
    place.set_xlabel(against, fontsize=9)
    place.set_ylabel(metric, fontsize=9)
    place.tick_params(labelsize=8, length=2)
    place.spines[["top", "right"]].set_visible(False)
    place.grid(alpha=0.25, linewidth=0.6)
    place.legend(
        loc="center left",
        bbox_to_anchor=(1.01, 0.5),
        frameon=False,
        prop={"family": families, "size": 8},
    )
    drawn.tight_layout()
    return save(drawn, path)
