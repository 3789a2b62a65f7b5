"""How a run went: its figures against the steps."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.ticker import MaxNLocator

from regard.training.metrics import read_metrics
from regard.visual.figure.canvas import figure, save
from regard.visual.figure.fonts import choose_fonts

INK = ("#0a58b8", "#b35900", "#00795c", "#8a3a8f", "#555d66", "#a31545")  # told apart by anybody
LINES = ("-", "--", "-.", ":")
APART = ("step", "epoch")  # what is counted, not measured


def curves(
    runs: str | Path | Mapping[str, str | Path],
    path: str | Path,
    *,
    figures: tuple[str, ...] = ("loss", "valid/"),
) -> Path:
    """Draw the figures of one run, or of several by name, from `metrics.jsonl`; as PNG or SVG.

    One panel for each figure that any run has; a run is one kind of line in all of them.

    Args:
        runs: a run directory or a metrics.jsonl, or several by what to call them
        path: the file, .png or .svg
        figures: names of figures, or the beginnings of their names

    Returns: the path

    Raises:
        FileNotFoundError: no metrics.jsonl there
        ValueError: none of the figures in any of the runs
    """
    named = runs if isinstance(runs, Mapping) else {Path(runs).stem: runs}
    found = {name: _columns(Path(run)) for name, run in named.items()}
    present = {each: None for columns in found.values() for each in columns}
    shown = [each for each in present if each.startswith(figures)]
    if not shown:
        raise ValueError(
            f"none of the figures {', '.join(figures)} in {', '.join(map(str, named.values()))}; "
            f"there are {', '.join(present) or 'none at all'}"
        )
    families, labels = choose_fonts(found)
    drawn = figure(4.2 * len(shown), 3.0)
    places = drawn.subplots(1, len(shown), squeeze=False)[0]
    for place, each in zip(places, shown, strict=True):
        for index, (label, columns) in enumerate(zip(labels, found.values(), strict=True)):
            steps, values = columns.get(each, ([], []))
            place.plot(
                steps,
                values,
                label=label,
                color=INK[index % len(INK)],
                linestyle=LINES[index % len(LINES)],
                linewidth=1.6,
                marker="." if len(steps) < 12 else None,
            )
        place.set_title(each.replace("_", " ").replace("/", ": "), fontsize=10)
        place.set_xlabel("step", fontsize=9)
        place.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        place.tick_params(labelsize=8, length=2)
        place.spines[["top", "right"]].set_visible(False)
        place.grid(alpha=0.25, linewidth=0.6)
    if len(found) > 1:
        places[0].legend(fontsize=8, frameon=False, prop={"family": families, "size": 8})
    drawn.tight_layout()
    return save(drawn, path)


def _columns(run: Path) -> dict[str, tuple[list[int], list[float]]]:
    """Steps and values of every number that a run wrote."""
    file = run / "metrics.jsonl" if run.is_dir() else run
    if not file.is_file():
        raise FileNotFoundError(f"there is no {file}: has {run} been trained?")
    columns: dict[str, tuple[list[int], list[float]]] = {}
    for line in read_metrics(file):
        for name, value in line.items():
            if name not in APART and isinstance(value, int | float) and not isinstance(value, bool):
                steps, values = columns.setdefault(name, ([], []))
                steps.append(line["step"])
                values.append(float(value))
    return columns
