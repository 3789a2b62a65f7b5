"""Train and test the models of docs/results.md, and print their rows.

    python -m benchmarks.results                     # all of them: hours
    python -m benchmarks.results --only dates        # those whose name contains it
    python -m benchmarks.results --only en-fr --seeds 3

Every model is trained into OUT/NAME-SEED, on one thread, and tested with a beam of five. A killed
command continues where it was; what is finished is read from OUT. Core minutes are processor time
of training, with its evaluations on the validation split; *valid* is the metric that chose the
model, of greedy search. With several seeds, cells are the mean and the range.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from regard.evaluation import evaluate_translator
from regard.recipes import load_recipe
from regard.tasks import load, train
from regard.training import read_config


class Row(NamedTuple):
    """A model of the table: what is trained, and the metrics of the test that are shown."""

    data: str
    model: str
    recipe: str
    metrics: tuple[str, ...]
    settings: tuple[str, ...] = ()


ROWS = {
    "dates-transformer": Row("dates", "Transformer, 2 + 2 layers", "dates-transformer", ("exact",)),
    "en-de": Row("Multi30k en→de", "Transformer-tiny", "multi30k", ("bleu",)),
    "en-de-post": Row(
        "Multi30k en→de", "Transformer-tiny, post-norm", "multi30k", ("bleu",),
        ("model.norm=post",),
    ),
    "en-de-rotary": Row(
        "Multi30k en→de", "Transformer-tiny, post-norm, rotary positions, 62 epochs", "multi30k",
        ("bleu",),
        ("model.norm=post", "model.position=rotary", "data.tokens=6400", "training.lr=0.005",
         "training.warmup=2000", "training.weight_decay=0", "training.precision=bfloat16",
         "training.epochs=62", "training.evaluate_every=304", "training.average=5"),
    ),
    "de-en": Row("Multi30k de→en", "Bahdanau, 256 units", "multi30k-de-en", ("bleu",)),
    "en-fr-additive": Row("Multi30k en→fr", "Luong, additive score", "multi30k-en-fr", ("bleu",)),
    "en-fr-general": Row(
        "Multi30k en→fr", "Luong, general score", "multi30k-en-fr", ("bleu",),
        ("model.score=general",),
    ),
    "en-fr-gnmt": Row("Multi30k en→fr", "GNMT, 4 + 4 layers", "multi30k-en-fr-gnmt", ("bleu",)),
    "pronounce": Row("CMUDict", "Bahdanau, 2 layers of 256", "pronounce", ("wer", "per")),
    "pronounce-448": Row(
        "CMUDict", "Bahdanau, 2 layers of 448, 20 epochs", "pronounce", ("wer", "per"),
        ("model.embedding=64", "model.hidden=448", "training.lr=0.001", "training.epochs=20",
         "training.evaluate_every=1606", "training.warmup=400", "training.precision=bfloat16"),
    ),
    "ko-en": Row("Tatoeba ko→en", "Transformer-tiny", "tatoeba", ("chrf", "bleu")),
}  # fmt: skip
"""The rows of the table by name."""

SHARES = ("exact", "wer", "per")  # printed as percentages


def result(row: Row, run: Path, seed: int) -> dict[str, Any]:
    """Return core seconds, validation and test metrics of a run; train and test what is missing."""
    notes = run.with_suffix(".json")
    found: dict[str, Any] = json.loads(notes.read_text()) if notes.is_file() else {"seconds": 0.0}
    if "test" in found:
        return found
    settings = ["training.threads=1", *row.settings, f"seed={seed}"]
    started = time.process_time()
    try:
        if run.is_dir():
            train(row.recipe, run, resume=True)
        else:
            train(row.recipe, run, settings=settings)
    finally:
        found["seconds"] += time.process_time() - started
        notes.write_text(json.dumps(found))
    metric = "bleu" if "bleu" in row.metrics else "exact"
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    found["valid"] = [line for line in lines if "finished" in line][-1][f"model/{metric}"]
    translator = load(run)
    report = evaluate_translator(translator, translator.pairs("test"), shown=0, beam=5)
    found["test"] = {name: tuple(metric) for name, metric in report.metrics.items()}
    notes.write_text(json.dumps(found))
    return found


def as_markdown(row: Row, results: Sequence[dict[str, Any]]) -> str:
    """Return a line of the table: one seed with intervals, several with mean and range."""
    minutes = _mean_and_range([found["seconds"] / 60 for found in results], 0)
    percent = "bleu" not in row.metrics
    valid = _mean_and_range([(100 if percent else 1) * found["valid"] for found in results])
    cells = []
    for name in row.metrics:
        times, unit = (100, " %") if name in SHARES else (1, "")
        values = [[times * part for part in found["test"][name]] for found in results]
        text = _mean_and_range([value for value, *_ in values])
        if len(values) == 1 and len(set(values[0])) > 1:
            text += " [{:.1f}, {:.1f}]".format(*values[0][1:])
        cells.append(f"{name.upper()} {text}{unit}")
    return f"| {row.data} | {row.model} | {minutes} | {valid} | {', '.join(cells)} |"


def _mean_and_range(values: Sequence[float], digits: int = 1) -> str:
    """
    >>> _mean_and_range([1.0]), _mean_and_range([1.0, 2.0, 6.0])
    ('1.0', '3.0 (1.0 to 6.0)')
    """
    low, mean, high = (
        f"{value:.{digits}f}" for value in (min(values), sum(values) / len(values), max(values))
    )
    return mean if len(values) == 1 else f"{mean} ({low} to {high})"


def main() -> None:
    """Print the table, a line as soon as it is known."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name contains it")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="seeds 1 to N")
    parser.add_argument("--out", type=Path, default=Path("runs/results"), help="of the runs")
    wanted = parser.parse_args()
    rows = {name: row for name, row in ROWS.items() if wanted.only in name}
    if not rows:
        parser.error(f"--only {wanted.only}: rows are {', '.join(ROWS)}")
    torch.set_num_threads(1)
    wanted.out.mkdir(parents=True, exist_ok=True)
    print("| data | model | core minutes | valid | test |\n|---|---|---|---|---|", flush=True)
    for name, row in rows.items():
        read_config(load_recipe(row.recipe), row.settings)  # a wrong setting fails before training
        seeds = range(1, wanted.seeds + 1)
        results = [result(row, wanted.out / f"{name}-{seed}", seed) for seed in seeds]
        print(as_markdown(row, results), flush=True)


if __name__ == "__main__":
    main()
