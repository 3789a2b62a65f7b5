"""`regard evaluate`: how good a trained model is on data it has not seen, and where it fails."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Beam, Device, Json, Mbr, Penalty, Run, flag, option
from regard.cli.output import sanitize, write_json

if TYPE_CHECKING:
    from regard.data import Pairs
    from regard.evaluation import TranslationReport
    from regard.tasks import Translator

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
    mbr: Mbr = None,
    temperature: Annotated[
        float | None, option("translate, --mbr: of the samples. [default: 0.7]", "X")
    ] = None,
    shown: Annotated[
        int | None, option("translate: worst cases to show. [default: 5]", "N", 0)
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

    Texts: exact match, error rates, BLEU, chrF and perplexity, with 95 % confidence intervals in
    brackets, and the worst cases. Other tasks: what training measures, on the held-out data.
    A file of --data has the columns of the data of the run, unless --set names others.
    With --alignments nothing is translated: the alignment error rate, precision and recall of every
    layer's average, of the best head and of a guided one are printed.
    """
    from regard.tasks import evaluate_run, load
    from regard.training import read_run_config

    task = read_run_config(run).task
    settings = _file_settings(changes, data)
    if task != "translate":
        given = {
            "--split": split, "--beam": beam, "--penalty": penalty, "--mbr": mbr,
            "--temperature": temperature,
            "--shown": shown, "--lowercase": lowercase or None, "--alignments": alignments,
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

    if one_based and alignments is None:
        raise typer.BadParameter("--one-based is for the file of --alignments")
    if split not in (None, "test", "valid"):
        raise typer.BadParameter(f"--split is test or valid, got {split}")
    if split is not None and data:
        raise typer.BadParameter("--split is for the run's own data: leave out --data")
    model = load(run, device=device)
    if len(data or []) > 2:
        raise typer.BadParameter("give --data once, or twice for two aligned files")
    pairs = model.read(data, **settings) if data else model.pairs(split or "test")
    if alignments is not None:
        return _score_alignments(model, pairs, alignments, first=int(one_based), as_json=as_json)
    if mbr is not None and (beam is not None or penalty is not None):
        raise typer.BadParameter("--beam and --penalty are for searching, not for --mbr")
    if temperature is not None and mbr is None:
        raise typer.BadParameter("--temperature needs --mbr")
    searching = {"beam": beam or 5, "penalty": 0.6 if penalty is None else penalty}
    sampling = {} if temperature is None else {"temperature": temperature}
    print(f"translating {len(pairs):,} pairs", file=sys.stderr)
    report = evaluate_translator(
        model,
        pairs,
        shown=5 if shown is None else shown,
        bleu_options={"lowercase": True} if lowercase else {},
        **(searching if mbr is None else {"mbr": mbr, "sampling": sampling}),
    )
    if as_json:
        how = {"beam": searching["beam"]} if mbr is None else {"mbr": mbr}
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


def _measure_file(
    run: Path, task: str, data: list[Path], settings: dict[str, Any], device: str
) -> dict[str, float]:
    from regard.tasks import TASKS, Predictor, load

    if TASKS[task].predictor.evaluate is Predictor.evaluate:
        raise typer.BadParameter(f"a run of the task {task} is evaluated on its own data alone")
    if len(data) > 1:
        raise typer.BadParameter("two aligned files are for the task translate: give --data once")
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
