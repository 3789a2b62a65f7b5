"""`regard evaluate`: how good a trained model is on data it has not seen, and where it fails."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Beam, Device, Json, Penalty, Run, flag, option
from regard.cli.output import sanitize, write_json

if TYPE_CHECKING:
    from regard.evaluation import TranslationReport

PERCENT = ("exact", "cer", "per", "wer", "accuracy")


def evaluate(
    run: Run,
    data: Annotated[
        list[Path] | None,
        option("A file to evaluate on; translate: or two aligned. [default: test split]", "FILE"),
    ] = None,
    split: Annotated[
        str | None, option("translate: test or valid. [default: test]", "SPLIT")
    ] = None,
    beam: Beam = None,
    penalty: Penalty = None,
    shown: Annotated[
        int | None, option("translate: worst cases to show. [default: 5]", "N", 0)
    ] = None,
    lowercase: Annotated[bool, flag("--lowercase", "translate: ignore case in BLEU.")] = False,
    changes: Annotated[
        list[str] | None,
        option(
            "A setting of --data, such as data.label=stars; repeatable.", "KEY=VALUE", name="--set"
        ),
    ] = None,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Measure a run by the metrics that fit its task.

    Texts: exact match, error rates, BLEU, chrF and perplexity, with 95 % confidence intervals in
    brackets, and the worst cases. Other tasks: what training measures, on the held-out data.
    A file of --data has the columns of the data of the run, unless --set names others.
    """
    from regard.tasks import evaluate_run, load
    from regard.training import read_run_config

    task = read_run_config(run).task
    settings = _file_settings(changes, data)
    if task != "translate":
        given = {
            "--split": split, "--beam": beam, "--penalty": penalty,
            "--shown": shown, "--lowercase": lowercase or None,
        }  # fmt: skip
        for name, value in given.items():
            if value is not None and value != []:
                raise typer.BadParameter(f"{name} is an option of the task translate, not {task}")
        metrics = (
            _measure_file(run, task, data, settings, device)
            if data
            else evaluate_run(run, device=device)
        )
        if as_json:
            return write_json({"metrics": metrics}, indent=2)
        width = max(map(len, metrics))
        for name, value in metrics.items():
            print(f"{name:<{width}}{value:>10.4f}")
        return
    from regard.evaluation import evaluate_translator

    if split not in (None, "test", "valid"):
        raise typer.BadParameter(f"--split is test or valid, got {split}")
    if split is not None and data:
        raise typer.BadParameter("--split is for the run's own data: leave out --data")
    model = load(run, device=device)
    if len(data or []) > 2:
        raise typer.BadParameter("give --data once, or twice for two aligned files")
    pairs = model.read(data, **settings) if data else model.pairs(split or "test")
    print(f"translating {len(pairs):,} pairs", file=sys.stderr)
    report = evaluate_translator(
        model,
        pairs,
        shown=5 if shown is None else shown,
        bleu_options={"lowercase": True} if lowercase else {},
        beam=beam or 5,
        penalty=0.6 if penalty is None else penalty,
    )
    if as_json:
        write_json({"beam": beam or 5, **report.as_dict()}, indent=2)
    else:
        print(sanitize(_table(report)))


def _file_settings(changes: list[str] | None, data: list[Path] | None) -> dict[str, Any]:
    from regard.training.config import parse_overrides

    tables = parse_overrides(changes or [])
    settings = tables.pop("data", {})
    if tables or (changes and not data):
        raise typer.BadParameter("--set is for keys of the table data, of the file of --data")
    return settings


def _measure_file(
    run: Path, task: str, data: list[Path], settings: dict[str, Any], device: str
) -> dict[str, float]:
    from regard.tasks import TASKS, Predictor, load

    if TASKS[task].predictor.evaluate is Predictor.evaluate:
        raise typer.BadParameter(f"a run of the task {task} is evaluated on its own data alone")
    if len(data) > 1:
        raise typer.BadParameter("two aligned files are for the task translate: give --data once")
    return load(run, device=device).evaluate(data[0], **settings)


def _table(found: "TranslationReport") -> str:
    lines = [f"{found.sources:,} sources, {found.pairs:,} pairs"]
    for name, metric in found.metrics.items():
        share = name in PERCENT
        value, low, high = (100 * x if share else x for x in metric)
        unit = " %" if share else ""
        sure = f"  [{low:.2f}, {high:.2f}]" if low != high else ""
        lines.append(f"{name:<12}{value:>8.2f}{unit:<2}{sure}")
    lines += [f"{name}: {signature}" for name, signature in found.signatures.items()]
    if found.worst:
        lines += ["", "worst cases"]
        for mistake, source in zip(found.worst, found.worst_sources, strict=True):
            lines.append(f"  {source}")
            lines.append(f"    prediction  {mistake.prediction}")
            lines.append(f"    reference   {mistake.reference}")
    if found.confusions:
        lines += ["", "most frequent errors"]
        for edit, count in found.confusions:
            expected, got = edit.reference or "nothing", edit.prediction or "nothing"
            lines.append(f"  {count:>5} ×  {expected} → {got}")
    return "\n".join(lines)
