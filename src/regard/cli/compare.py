"""`regard compare`: several mechanisms trained on one task, or two models reading one text."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Set, file_option, option
from regard.cli.output import check_output, sanitize
from regard.cli.predict import check_given
from regard.cli.train import recipe_names

if TYPE_CHECKING:
    from regard.tasks.compare import Comparison
    from regard.training import Progress

SHOWN = 12  # heads of two models
DECODERS = "plain,peeky,attention,luong,bahdanau,gnmt,transformer"


def compare(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE|CONFIG.toml|MODEL",
            help="Text pairs, such as dates or copy; or a checkpoint or run.",
            autocompletion=recipe_names,
        ),
    ],
    others: Annotated[
        list[str] | None,
        typer.Argument(metavar="OTHER TEXT", help="MODEL: the other model, and what both read."),
    ] = None,
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
    out: Annotated[
        Path | None,
        option("Directory of the runs. [default: runs/compare-NAME] MODEL: FILE.html.", "DIR"),
    ] = None,
    json_file: Annotated[
        Path | None, file_option("[default: comparison.json in the directory]", name="--json")
    ] = None,
    generate: Annotated[
        int | None, option("MODEL: let it write up to N tokens.", "N", 1, 10**6)
    ] = None,
) -> None:
    """Train several mechanisms on one task: a table and a chart.

    Runs that are in the directory already are not trained again; unfinished ones are resumed.

    With MODEL OTHER TEXT: list the heads that attend most differently in two models, such as a
    fine-tuned one and the one it was made of; --out FILE.html shows both.
    """
    if others:
        if len(others) != 2:
            raise typer.BadParameter("two models are compared by MODEL OTHER TEXT")
        return _compare_models(Path(recipe), Path(others[0]), others[1], generate, out)
    import matplotlib  # noqa: F401  # now, not after the training

    from regard.recipes import resolve_recipe
    from regard.tasks.compare import compare as train_all
    from regard.tasks.variants import variants
    from regard.training.config import load_toml
    from regard.visual.figure.lines import learning

    given = (decoders, scores, normalizers, encoders)
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
        print(f"{name} ({len(begun)} of {len(chosen)})", file=sys.stderr)
        return progress()

    check_output(folder)
    written = json_file if json_file is not None else folder / "comparison.json"
    check_output(written, option="--json")
    try:
        found = train_all(
            tables, chosen, folder, settings=settings or [], target=quality, progress=progress
        )
    except KeyboardInterrupt as error:
        print(f"regard: {error}", file=sys.stderr)
        raise typer.Exit(130) from error
    _write(written, {"task": task, **found.as_dict()})
    print(table(found))
    curves = {row.name: row.curve for row in found.rows}
    chart = folder / "comparison.png"
    if any(curves.values()):
        learning(curves, chart, metric=found.metric, target=found.target)
    for row in found.rows:
        if row.diverged:
            print(f"{row.name} diverged: {row.diverged}", file=sys.stderr)
    if all(row.diverged for row in found.rows):
        raise RuntimeError("all models diverged: lower training.lr or raise training.warmup")
    print(f"chart: {chart}; JSON: {written}", file=sys.stderr)


def _compare_models(
    first: Path, second: Path, text: str, generate: int | None, out: Path | None
) -> None:
    """Print the heads of two models that differ most on one text, and write a page of both."""
    from regard.analysis import head_differences
    from regard.tasks import load
    from regard.visual.views import page

    if out is not None:
        if out.suffix.lower() != ".html":
            raise typer.BadParameter(f"--out of two models should be FILE.html, got {out.name}")
        check_output(out)
    models = [load(each) for each in (first, second)]
    options: dict[str, Any] = {} if generate is None else {"generate": generate}
    for model in models:
        check_given(model, options, "trace")
    traces = [models[0].trace(models[0].parse(text), **options)]
    if "written" in traces[0].about:
        options["written"] = traces[0].about["written"]
    traces.append(models[1].trace(models[1].parse(text), **options))
    rows = [("attention", "head", "distance", "most at")]
    for one in head_differences(*traces)[:SHOWN]:
        rows.append((one.name, str(one.head), f"{one.distance:.3f}", sanitize(one.token)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(map(str.ljust, row, widths)).rstrip())
    if out is not None:
        names = [first.name, second.name]
        names = names if names[0] != names[1] else [str(first), str(second)]
        out.parent.mkdir(parents=True, exist_ok=True)
        page(dict(zip(names, traces, strict=True)), out)
        print(out)


def _write(path: Path, found: dict[str, Any]) -> None:
    from regard.system.files import atomic_file

    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as part:
        part.write_text(
            json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n"
        )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def table(comparison: "Comparison") -> str:
    """Return a row for each variant, names to the left, and a line about the columns."""
    rows = comparison.cells()
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
    return "\n".join([*aligned, comparison.caption])
