"""`regard compare`: several mechanisms on one task; a table, a chart and a JSON file."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Set, file_option, option
from regard.cli.output import check_output
from regard.cli.train import recipe_names

if TYPE_CHECKING:
    from regard.tasks.compare import Comparison
    from regard.tasks.compare_lengths import Point
    from regard.training import Progress

DECODERS = "plain,peeky,attention,luong,bahdanau,gnmt,transformer"
SHOWN = (  # of a point, what to call it, whether on a logarithmic scale
    ("quality", "accuracy of tokens", False),
    ("gradient", "gradient at the first source token", True),
    ("tokens_per_second", "tokens/s in training, of a batch", True),
    ("tokens_per_second_alone", "tokens/s in training, of one sentence", True),
)


def compare(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE|CONFIG.toml",
            help="Text pairs, such as dates or copy.",
            autocompletion=recipe_names,
        ),
    ],
    decoders: Annotated[str, option("With commas between them.", "NAMES")] = DECODERS,
    scores: Annotated[
        str | None,
        option("Scores of luong, bahdanau and gnmt. [default: the own score of each]", "NAMES"),
    ] = None,
    normalizers: Annotated[
        str,
        option("Of the same: softmax, sparsemax, entmax15, sigmoid, sink, hard, gumbel.", "NAMES"),
    ] = "softmax",
    encoders: Annotated[str, option("Of the transformer: dot, efficient.", "NAMES")] = "dot",
    settings: Set = None,
    quality: Annotated[
        float | None, option("Measure the time to this. [default: 0.9 of the best]", "X")
    ] = None,
    counted: Annotated[
        str | None,
        option(
            "copy and reverse: quality, gradient and speed by length of the source.",
            "N,N,...",
            name="--lengths",
        ),
    ] = None,
    out: Annotated[
        Path | None, option("Directory of the runs. [default: runs/compare-NAME]", "DIR")
    ] = None,
    json_file: Annotated[
        Path | None, file_option("[default: comparison.json in the directory]", name="--json")
    ] = None,
) -> None:
    """Train several mechanisms on one task: a table and a chart.

    Runs that are in the directory already are not trained again; unfinished ones are resumed.
    """
    import matplotlib  # noqa: F401  # now, not after the training

    from regard.recipes import resolve_recipe
    from regard.tasks.compare import compare as train_all
    from regard.tasks.compare_lengths import compare_lengths
    from regard.tasks.variants import variants
    from regard.training.config import load_toml
    from regard.visual.figure.lines import Panel, learning, panels

    given = (decoders, scores, normalizers, encoders)
    sizes = _names(counted or "")
    if not all(size.isdecimal() for size in sizes):
        raise typer.BadParameter(f"--lengths are whole numbers such as 5,10,20,40, got {counted}")
    try:
        task, source = resolve_recipe(recipe)
        chosen = variants(*(_names(text or "") for text in given))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if not all(_names(text) for text in given if text is not None):
        raise typer.BadParameter("--decoders and what they are made with should name at least one")
    tables = load_toml(source) if isinstance(source, Path) else source
    folder = out if out is not None else Path("runs") / f"compare-{task}"
    begun: list[str] = []

    def progress(name: str) -> "Progress":
        from regard.cli.train import progress

        begun.append(name)
        print(f"{name} ({len(begun)} of {len(chosen) * len(sizes or [0])})", file=sys.stderr)
        return progress()

    check_output(folder)
    written = json_file if json_file is not None else folder / "comparison.json"
    check_output(written, option="--json")
    how: dict[str, Any] = {"settings": settings or [], "progress": progress}
    try:
        if sizes:
            rows: Any = compare_lengths(task, tables, chosen, folder, [*map(int, sizes)], **how)
        else:
            found = train_all(tables, chosen, folder, target=quality, **how)
            rows = found.rows
    except KeyboardInterrupt as error:
        print(f"regard: {error}", file=sys.stderr)
        raise typer.Exit(130) from error
    if sizes:
        _write(written, {"task": task, "lengths": [point._asdict() for point in rows]})
        print(lengths_table(rows))
        shown = [Panel(about, _lines(rows, what), log) for what, about, log in SHOWN]
        chart = folder / "lengths.png"
        panels(shown, chart, against="letters of the source")
    else:
        _write(written, {"task": task, **found.as_dict()})
        print(table(found))
        curves = {row.name: row.curve for row in rows}
        chart = folder / "comparison.png"
        if any(curves.values()):
            learning(curves, chart, metric=found.metric, target=found.target)
    for row in rows:
        if row.diverged:
            print(f"{row.name} diverged: {row.diverged}", file=sys.stderr)
    if all(row.diverged for row in rows):
        raise RuntimeError("all models diverged: lower training.lr or raise training.warmup")
    print(f"chart: {chart}; JSON: {written}", file=sys.stderr)


def _lines(points: "Sequence[Point]", what: str) -> dict[str, list[tuple[float, float]]]:
    """Return length and value of every variant, where it has one."""
    lines: dict[str, list[tuple[float, float]]] = {point.name: [] for point in points}
    for point in points:
        value = getattr(point, what)
        if value is not None:
            lines[point.name].append((point.length, value))
    return lines


def _write(path: Path, found: dict[str, Any]) -> None:
    from regard.core.files import atomic_file

    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as part:
        part.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def table(found: "Comparison") -> str:
    """Return a row for each variant, and a line about the columns."""
    return "\n".join([*_aligned(found.cells()), found.caption])


def lengths_table(points: Sequence["Point"]) -> str:
    """Return a row for every variant at every length, and a line about the columns."""
    from regard.tasks.compare import format_quality

    order = list(dict.fromkeys(point.name for point in points))
    rows: list[Sequence[str]] = [("", "length", "quality", "gradient", "tokens/s", "alone")]
    for point in sorted(points, key=lambda point: (order.index(point.name), point.length)):
        rows.append(
            (
                point.name,
                str(point.length),
                format_quality(point.quality),
                f"{point.gradient:.2e}",
                f"{point.tokens_per_second:,.0f}",
                f"{point.tokens_per_second_alone:,.0f}",
            )
        )
    about = (
        "quality: accuracy of tokens; gradient: at the first source token, untrained; tokens/s: "
        "forward and backward, of a batch; alone: of one sentence"
    )
    return "\n".join([*_aligned(rows), about])


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as text, names to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
