"""`regard evaluate`: how good a trained model is on data it has not seen, and where it fails."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.data import Pairs
    from regard.evaluation import TranslationReport
    from regard.tasks import Translator

PERCENT = ("exact", "cer", "per", "wer", "accuracy")


def evaluate(
    run: Annotated[Path, typer.Argument(help="What regard train has written.")],
    data: Annotated[
        list[Path] | None,
        typer.Option(
            help="A file of pairs, or two aligned ones by --data twice; else the test split."
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="Of the run's own data: test or valid.")] = "test",
    beam: Annotated[int, typer.Option(min=1, help="1 is greedy.")] = 5,
    penalty: Annotated[float, typer.Option(min=0.0, help="Of a beam's length.")] = 0.6,
    shown: Annotated[int, typer.Option(min=0, help="Worst sentences and confusions to show.")] = 5,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="BLEU without case.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Measure a run: exact match, error rates, BLEU, chrF, perplexity; what fits its task.

    The numbers in brackets hold 95 % of what other sentences like these would give.
    """
    from regard.tasks import evaluate_run, load
    from regard.training import read_run_config

    if split not in ("test", "valid"):
        raise typer.BadParameter(f"--split is test or valid, got {split}")
    if read_run_config(run).task != "translate":
        if data:
            raise ValueError("--data is for runs of the task translate")
        metrics = evaluate_run(run)
        width = max(map(len, metrics))
        rows = [f"{name:<{width}}{value:>10.4f}" for name, value in metrics.items()]
        print(json.dumps({"metrics": metrics}, indent=2) if as_json else "\n".join(rows))
        return
    from regard.evaluation import evaluate_translator

    model = load(run)
    pairs = _pairs(model, data, split)
    how = {"lowercase": True} if lowercase else {}
    print(f"translating {len(pairs):,} pairs", file=sys.stderr)
    found = evaluate_translator(
        model, pairs, shown=shown, bleu_options=how, beam=beam, penalty=penalty
    )
    if as_json:
        print(json.dumps({"beam": beam, **found.as_dict()}, ensure_ascii=False, indent=2))
    else:
        print(_table(found))


def _pairs(translator: "Translator", data: list[Path] | None, split: str) -> "Pairs":
    from regard.data import read_aligned, read_pairs

    if data and len(data) == 2:
        return read_aligned(*data)
    if data:
        if len(data) > 2:
            raise typer.BadParameter("give --data once, or twice for two aligned files")
        return read_pairs(data[0])
    return translator.pairs(split)


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
        lines += ["", "worst"]
        for mistake, source in zip(found.worst, found.worst_sources, strict=True):
            lines.append(f"  {source}")
            lines.append(f"    wrote   {mistake.prediction}")
            lines.append(f"    wanted  {mistake.reference}")
    if found.confusions:
        lines += ["", "most often"]
        for edit, count in found.confusions:
            wanted, written = edit.reference or "nothing", edit.prediction or "nothing"
            lines.append(f"  {count:>5} ×  {wanted} → {written}")
    return "\n".join(lines)
