"""`regard evaluate`: how good a trained model is on data it has not seen, and where it fails."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Beam, Device, Json, Mbr, Penalty, Run, flag, option
from regard.cli.output import sanitize, write_json
from regard.cli.predict import read_search

if TYPE_CHECKING:
    from regard.data import Pairs
    from regard.evaluation import ClassificationReport, TranslationReport
    from regard.tasks import Translator

MATRIX = 20  # classes whose confusion matrix is printed; --json has it of any number
LINE = 100  # characters of a worst case that are printed
PERCENT = ("exact", "cer", "per", "wer", "accuracy")


def evaluate(
    run: Run,
    data: Annotated[
        list[Path] | None,
        option("A file to evaluate on; translate: or two aligned. [default: test split]", "FILE"),
    ] = None,
    split: Annotated[
        str | None, option("texts, classes: test or valid. [default: test]", "SPLIT")
    ] = None,
    beam: Beam = None,
    penalty: Penalty = None,
    mbr: Mbr = None,
    temperature: Annotated[
        float | None, option("translate, --mbr: of the samples. [default: 0.7]", "X")
    ] = None,
    shown: Annotated[
        int | None, option("texts, classes: worst cases to show. [default: 5]", "N", 0)
    ] = None,
    lowercase: Annotated[bool, flag("--lowercase", "translate: ignore case in BLEU.")] = False,
    alignments: Annotated[
        Path | None,
        option("translate: gold word alignments (Pharaoh or NAACL) to score maps by.", "FILE"),
    ] = None,
    one_based: Annotated[
        bool, flag("--one-based", "Words of a Pharaoh file are counted from 1, not 0.")
    ] = False,
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

    Texts: exact match, error rates, BLEU, chrF and perplexity. Classes: accuracy, precision, recall
    and F1 of each class, and the confusion matrix. Both with 95 % confidence intervals in brackets,
    and the worst cases. Other tasks: what training measures, on the held-out data.
    A file of --data has the columns of the data of the run, unless --set names others.
    With --alignments nothing is translated: the alignment error rate, precision and recall of every
    layer's average, of the best head and of a guided one are printed.
    """
    from regard.tasks import TASKS, Predictor, evaluate_run, load
    from regard.training import read_run_config

    task = read_run_config(run).task
    settings = _file_settings(changes, data)
    if split not in (None, "test", "valid"):
        raise typer.BadParameter(f"--split is test or valid, got {split}")
    if split is not None and data:
        raise typer.BadParameter("--split is for the run's own data: leave out --data")
    if task != "translate":
        kind = TASKS[task].predictor if task in TASKS else Predictor
        classes = kind.report is not Predictor.report
        others: dict[str, Any] = {"--split": split, "--shown": shown} if not classes else {}
        others |= {
            "--beam": beam, "--penalty": penalty, "--mbr": mbr, "--temperature": temperature,
            "--lowercase": lowercase or None, "--alignments": alignments,
        }  # fmt: skip
        for name, value in others.items():
            if value is not None:
                raise typer.BadParameter(f"{name} is not an option of the task {task}")
        if classes:
            _check_file(task, data)
            path = data[0] if data else None
            report = load(run, device=device).report(
                path, split=split or "test", shown=5 if shown is None else shown, **settings
            )
            if as_json:
                return write_json(report.as_dict(), indent=2)
            return print(sanitize(_class_table(report)))
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

    if one_based and alignments is None:
        raise typer.BadParameter("--one-based is for the file of --alignments")
    model = load(run, device=device)
    if len(data or []) > 2:
        raise typer.BadParameter("give --data once, or twice for two aligned files")
    pairs = model.read(data, **settings) if data else model.pairs(split or "test")
    if alignments is not None:
        return _score_alignments(model, pairs, alignments, first=int(one_based), as_json=as_json)
    given = {"beam": beam, "penalty": penalty, "mbr": mbr, "temperature": temperature}
    search = read_search({name: value for name, value in given.items() if value is not None})
    print(f"translating {len(pairs):,} pairs", file=sys.stderr)
    report = evaluate_translator(
        model,
        pairs,
        shown=5 if shown is None else shown,
        bleu_options={"lowercase": True} if lowercase else {},
        **search.model_dump(exclude_unset=True),
    )
    if as_json:
        how = {"beam": search.beam} if mbr is None else {"mbr": mbr}
        write_json({**how, **report.as_dict()}, indent=2)
    else:
        print(sanitize(_table(report)))


def _file_settings(changes: list[str] | None, data: list[Path] | None) -> dict[str, Any]:
    from regard.training.config import parse_overrides

    tables = parse_overrides(changes or [])
    settings = tables.pop("data", {})
    if tables or (changes and not data):
        raise typer.BadParameter("--set is for keys of the table data, of the file of --data")
    return settings


def _check_file(task: str, data: list[Path] | None) -> None:
    from regard.tasks import TASKS, Predictor

    if data and TASKS[task].predictor.evaluate is Predictor.evaluate:
        raise typer.BadParameter(f"a run of the task {task} is evaluated on its own data alone")
    if data and len(data) > 1:
        raise typer.BadParameter("two aligned files are for the task translate: give --data once")


def _measure_file(
    run: Path, task: str, data: list[Path], settings: dict[str, Any], device: str
) -> dict[str, float]:
    from regard.tasks import load

    _check_file(task, data)
    return load(run, device=device).evaluate(data[0], **settings)


def _score_alignments(
    model: "Translator", pairs: "Pairs", file: Path, *, first: int, as_json: bool
) -> None:
    from regard.analysis import read_alignments
    from regard.data.files import text_lines
    from regard.tasks.alignment_scores import score_alignments

    try:
        gold = read_alignments((line for _, line in text_lines(file)), len(pairs), first=first)
        found = score_alignments(model, pairs, gold)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
    if as_json:
        return write_json({"alignments": [each.as_dict() for each in found]}, indent=2)
    sure, possible = (sum(map(len, kind)) for kind in zip(*gold, strict=True))
    print(f"{len(pairs):,} pairs, {sure:,} sure links of {possible:,} possible ones\n")
    names = [f"{kind}, {name}" for kind, name, *_ in found]
    names = [
        name if each.head is None else f"{name}, head {each.head}"
        for name, each in zip(names, found, strict=True)
    ]
    width = max(map(len, names))
    print(f"{'':<{width}}    AER  precision  recall  shift")
    for name, each in zip(names, found, strict=True):
        aer, precision, recall = (f"{100 * rate:.1f} %" for rate in each.score)
        print(f"{name:<{width}}{aer:>9}{precision:>9}{recall:>9}{each.shift:>5}")


def _class_table(report: "ClassificationReport") -> str:
    from regard.visual.display_width import display_width, pad

    lines = [f"{report.count:,} examples, {len(report.classes)} classes"]
    for name, (value, low, high) in report.metrics.items():
        scale, unit = (1, "") if name == "loss" else (100, " %")
        interval = f"[{scale * low:.2f}, {scale * high:.2f}]"
        lines.append(f"{name:<10}{scale * value:>8.2f}{unit:<2}  {interval}")
    width = max(10, *(display_width(name) for name in report.classes))
    head = "".join(f"{name:>10}{'':<17}" for name in ("precision", "recall", "F1"))
    lines += ["", f"{'class':<{width}}{head}examples"]
    for name, scores in report.scores.items():
        cells = "".join(
            f"{100 * value:>8.2f} %{f'[{100 * low:.2f}, {100 * high:.2f}]':>17}"
            for value, low, high in scores[:3]
        )
        lines.append(f"{pad(name, width)}{cells}{scores.examples:>8,}")
    if len(report.classes) <= MATRIX:
        lines += ["", "confusion matrix: a row for each true class, a column for each prediction"]
        cell = max(5, *(len(f"{number:,}") + 2 for number in report.confusion.ravel()))
        numbers = range(1, len(report.classes) + 1)
        lines.append(" " * (width + 4) + "".join(f"{number:>{cell}}" for number in numbers))
        for number, name, row in zip(numbers, report.classes, report.confusion, strict=True):
            counts = "".join(f"{count:>{cell},}" for count in row)
            lines.append(f"{number:>3} {pad(name, width)}{counts}")
    if report.worst:
        lines += ["", "worst cases"]
    for wrong in report.worst:
        shown = wrong.text if len(wrong.text) <= LINE else f"{wrong.text[: LINE - 1]}…"
        lines.append(f"  {wrong.label} was taken for {wrong.prediction} ({wrong.probability:.0%})")
        lines.append(f"    {shown}")
    return "\n".join(lines)


def _table(report: "TranslationReport") -> str:
    lines = [f"{report.sources:,} sources, {report.pairs:,} pairs"]
    for name, metric in report.metrics.items():
        share = name in PERCENT
        value, low, high = (100 * x if share else x for x in metric)
        unit = " %" if share else ""
        sure = f"  [{low:.2f}, {high:.2f}]" if low != high else ""
        lines.append(f"{name:<12}{value:>8.2f}{unit:<2}{sure}")
    lines += [f"{name}: {signature}" for name, signature in report.signatures.items()]
    if report.worst:
        lines += ["", "worst cases"]
        for mistake, source in zip(report.worst, report.worst_sources, strict=True):
            lines.append(f"  {source}")
            lines.append(f"    prediction  {mistake.prediction}")
            lines.append(f"    reference   {mistake.reference}")
    if report.confusions:
        lines += ["", "most frequent errors"]
        for edit, count in report.confusions:
            expected, got = edit.reference or "nothing", edit.prediction or "nothing"
            lines.append(f"  {count:>5} ×  {expected} → {got}")
    return "\n".join(lines)
