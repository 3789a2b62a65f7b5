"""`regard compare`: one task, several mechanisms; a table, a chart and a JSON file."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from regard.tasks.compare import Row
    from regard.tasks.compare_lengths import Point
    from regard.training import Progress

DECODERS = "plain,peeky,luong,bahdanau,gnmt,transformer"
SHOWN = (  # of a point, what to call it, whether on a logarithmic scale
    ("quality", "accuracy of tokens", False),
    ("gradient", "gradient at the first source token", True),
    ("tokens_per_second", "tokens/s in training, of a batch", True),
    ("tokens_per_second_alone", "tokens/s in training, of one sentence", True),
)


def compare(
    recipe: Annotated[
        str,
        typer.Argument(metavar="RECIPE|CONFIG.toml", help="Text pairs, such as dates or copy."),
    ],
    decoders: Annotated[str, typer.Option(help="Names, with commas between them.")] = DECODERS,
    scores: Annotated[str, typer.Option(help="Of luong, bahdanau and gnmt.")] = "general",
    normalizers: Annotated[
        str, typer.Option(help="Of the same: softmax, sparsemax, entmax15, hard or gumbel.")
    ] = "softmax",
    encoders: Annotated[
        str, typer.Option(help="Attention in the encoder of the transformer: dot or efficient.")
    ] = "dot",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Such as training.epochs=1; for all."),
    ] = None,
    quality: Annotated[
        float | None,
        typer.Option(help="To take the time to; else nine tenths of the best.", show_default=False),
    ] = None,
    counted: Annotated[
        str | None,
        typer.Option(
            "--lengths",
            help="Such as 5,10,20,40: quality, gradient and speed against them; copy or reverse.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the runs; else runs/compare-NAME.", show_default=False),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", help="Else comparison.json in the folder.", show_default=False),
    ] = None,
) -> None:
    """Train a task with several decoders, scores, normalizers and encoders, and compare them.

    Runs that are in the folder already are not trained again, and unfinished ones are resumed.
    """
    from regard.cli.compare_tables import lengths_table, table
    from regard.recipes import resolve_recipe
    from regard.tasks.compare import compare as train_all
    from regard.tasks.compare_lengths import compare_lengths
    from regard.tasks.variants import variants
    from regard.training.config import load_toml
    from regard.visual.figure.lines import Panel, learning, panels

    sizes = _names(counted or "")
    if not all(size.isdecimal() for size in sizes):
        raise typer.BadParameter(f"--lengths are whole numbers such as 5,10,20,40, got {counted}")
    try:
        task, source = resolve_recipe(recipe)
        chosen = variants(*(_names(text) for text in (decoders, scores, normalizers, encoders)))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if not all(_names(text) for text in (decoders, scores, normalizers, encoders)):
        raise typer.BadParameter("--decoders and what they are made with should name at least one")
    tables = load_toml(source) if isinstance(source, Path) else source
    folder = out if out is not None else Path("runs") / f"compare-{task}"
    begun: list[str] = []

    def progress(name: str) -> "Progress":
        from regard.cli.train import progress

        begun.append(name)
        print(f"{name} ({len(begun)} of {len(chosen) * len(sizes or [0])})", file=sys.stderr)
        return progress()

    written = json_file if json_file is not None else folder / "comparison.json"
    how: dict[str, Any] = {"settings": settings or [], "progress": progress}
    rows: Sequence[Row | Point]
    if sizes:
        rows = compare_lengths(task, tables, chosen, folder, [*map(int, sizes)], **how)
        _write(written, {"task": task, "lengths": [point._asdict() for point in rows]})
        print(lengths_table(rows))
        shown = [Panel(about, _lines(rows, what), log) for what, about, log in SHOWN]
        chart = panels(shown, folder / "lengths.png", against="letters of the source")
    else:
        found = train_all(tables, chosen, folder, target=quality, **how)
        rows = found.rows
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
    """Length and value of every variant, but where it has none."""
    lines: dict[str, list[tuple[float, float]]] = {point.name: [] for point in points}
    for point in points:
        value = getattr(point, what)
        if value is not None:
            lines[point.name].append((point.length, value))
    return lines


def _write(path: Path, found: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
