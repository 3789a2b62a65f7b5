"""`regard compare`: one task, several mechanisms; a table, a chart and a JSON file."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from regard.tasks.compare import Comparison
    from regard.training import Progress

DECODERS = "plain,peeky,luong,bahdanau,gnmt,transformer"
HEAD = ("", "quality", "time to it", "time", "parameters", "tokens/s", "entropy")

ABOUT = {"quality": "accuracy of tokens", "gradient": "gradient at the first source token"}


def compare(
    task: Annotated[str, typer.Option(help="A recipe with pairs, such as dates or copy.")],
    decoders: Annotated[str, typer.Option(help="Names, with commas between them.")] = DECODERS,
    scores: Annotated[str, typer.Option(help="Of luong, bahdanau and gnmt.")] = "general",
    normalizers: Annotated[
        str, typer.Option(help="Of the same: softmax, hard or gumbel.")
    ] = "softmax",
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
            help="Such as 5,10,20,40: quality and gradient against them, of copy or reverse.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the runs; else runs/compare-TASK.", show_default=False),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", help="Else comparison.json in the folder.", show_default=False),
    ] = None,
) -> None:
    """Train a task with several decoders, scores and normalizers, and compare them.

    Runs that are in the folder already are not trained again, and unfinished ones are resumed.
    """
    from regard.tasks import find_recipe
    from regard.tasks.compare import compare as train_all
    from regard.tasks.compare import variants
    from regard.tasks.lengths import lengths
    from regard.visual.figure.learning import learning

    folder = out if out is not None else Path("runs") / f"compare-{task}"
    sizes = _names(counted or "")
    if not all(size.isdecimal() for size in sizes):
        raise typer.BadParameter(f"--lengths are whole numbers such as 5,10,20,40, got {counted}")
    try:
        recipe = find_recipe(task)
        chosen = variants(*(_names(text) for text in (decoders, scores, normalizers)))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if not chosen:
        raise typer.BadParameter("--decoders and --scores should name at least one each")
    begun: list[str] = []

    def progress(name: str) -> "Progress":
        from regard.cli.train import progress

        begun.append(name)
        print(f"{name} ({len(begun)} of {len(chosen) * len(sizes or [0])})", file=sys.stderr)
        return progress()

    written = json_file if json_file is not None else folder / "comparison.json"
    if sizes:
        points = lengths(
            task,
            recipe,
            chosen,
            folder,
            [*map(int, sizes)],
            settings=settings or [],
            progress=progress,
        )
        for what in ("quality", "gradient"):
            lines: dict[str, list[tuple[float, float]]] = {}
            for point in points:
                lines.setdefault(point.name, []).append((point.length, getattr(point, what)))
            learning(
                lines,
                folder / f"lengths-{what}.png",
                metric=ABOUT[what],
                against="letters of the source",
                log=what == "gradient",
            )
        _write(written, {"task": task, "lengths": [point._asdict() for point in points]})
        print(f"{'':<20}  length  quality    gradient")
        for name, length, value, gradient in points:
            print(f"{name:<20}  {length:>6}  {value:>7.4f}  {gradient:>10.2e}")
        print(f"charts: {folder}/lengths-*.png; JSON: {written}", file=sys.stderr)
        return
    found = train_all(
        recipe, chosen, folder, settings=settings or [], target=quality, progress=progress
    )
    curves = {row.name: row.curve for row in found.rows}
    chart = learning(curves, folder / "comparison.png", metric=found.metric, target=found.target)
    _write(written, {"task": task, **found.as_dict()})
    print(_table(found))
    print(f"chart: {chart}; JSON: {written}", file=sys.stderr)


def _write(path: Path, found: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _table(found: "Comparison") -> str:
    from regard.training.progress import duration

    rows = [HEAD]
    for row in found.rows:
        reached, speed = row.seconds_to_quality, row.tokens_per_second
        rows.append(
            (
                row.name,
                f"{row.quality:.4f}",
                "never" if reached is None else duration(reached),
                duration(row.seconds),
                f"{row.parameters:,}",
                "–" if speed is None else f"{speed:,.0f}",
                "–" if row.entropy is None else f"{row.entropy:.2f}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
    about = (
        f"quality: {found.metric} on validation data; time to it: to {found.target:.4f}; "
        "entropy: of the alignment, in nats"
    )
    return "\n".join([*lines, about])
