"""Korean to English from 5,160 pairs, with a start from other pairs. Zoph et al. 2016.

    python -m benchmarks.transfer                    # into runs/transfer; continues where it was

The parent is trained on Python's documentation in Korean and English (its short passages), captions
in German and English, and thrice the training pairs of Tatoeba, all with one vocabulary. The child
starts from its weights (`training.init`) and is trained on the pairs of Tatoeba alone. Validation
and test are those of the recipe `tatoeba`, which splits by the English sentence: the Korean one of
27 of 317 test pairs is also in a training pair, with another translation. Their sentences are not
in the documentation and the captions. Data is read from REGARD_DATA. Prints the metrics of both
models on both splits, with a beam of five; OUT/test_unseen.tsv has the other 290 test pairs.
"""

import argparse
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from regard.data import read_dataset
from regard.data.datasets import data_folder
from regard.data.readers import read_table
from regard.evaluation import evaluate_translator
from regard.tasks import load, train

LONGEST = 160  # characters of a passage of the documentation

CONFIG: dict[str, Any] = {
    "task": "translate",
    "data": {
        **{"joint": True, "vocabulary": 6000, "tokens": 4000, "metric": "bleu"},
        **{"source_tokenizer": "bpe", "target_tokenizer": "bpe"},
    },
    "model": {
        **{"kind": "transformer", "preset": "tiny", "norm": "pre", "tie": "all"},
        **{"attention_dropout": 0.0, "dropout": 0.2},
    },
    "loss": {"label_smoothing": 0.1},
    "training": {
        **{"epochs": 8, "lr": 0.004, "schedule": "cosine", "warmup": 600, "threads": 1},
        **{"precision": "bfloat16"},
    },
}

CHILD = (
    "data.tokens=1000",
    "model.dropout=0.3",
    "training.epochs=30",
    "training.lr=0.001",
    "training.warmup=200",
    "training.average=3",
)


def write_pairs(path: Path, pairs: Iterable[tuple[str, str]]) -> None:
    """A file of pairs, one in a line; a tab in a text becomes a space."""
    lines = ("\t".join(" ".join(text.split()) for text in pair) + "\n" for pair in pairs)
    path.write_text("".join(lines), "utf-8")


def prepare(folder: Path) -> None:
    """Write the training pairs of both models, and the splits of Tatoeba."""
    own = {split: list(read_dataset("tatoeba", split)) for split in ("train", "valid", "test")}
    for split, pairs in own.items():
        write_pairs(folder / f"{split}.tsv", pairs)
    seen = {source for source, _ in own["train"]}
    write_pairs(folder / "test_unseen.tsv", (pair for pair in own["test"] if pair[0] not in seen))
    held_out = {text for split in ("valid", "test") for pair in own[split] for text in pair}
    file = data_folder() / "python_docs_ko_en" / "pairs.tsv.gz"
    documentation = {
        pair: None
        for pair in read_table(file, format="tsv", source=2, target=1)
        if 8 <= len(pair[1]) <= LONGEST
        and any("가" <= letter <= "힣" for letter in pair[0])
        and not held_out.intersection(pair)
    }
    captions = list(read_dataset("multi30k-de-en", "train"))
    write_pairs(folder / "parent.tsv", [*(3 * own["train"]), *documentation, *captions])


def trained(config: dict[str, Any], run: Path, settings: Iterable[str]) -> float:
    """Train a run, or what is missing of it; returns its core minutes, of this call alone."""
    began = time.process_time()
    if not run.is_dir():
        train(config, run, settings=settings)
    elif not (run / "model.safetensors").is_file() or "finished" not in _last(run):
        train(config, run, resume=True)
    return (time.process_time() - began) / 60


def _last(run: Path) -> dict[str, Any]:
    *_, last = (run / "metrics.jsonl").read_text("utf-8").splitlines()
    return json.loads(last)


def main() -> None:
    """Train both models and print their metrics."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/transfer"), help="of both runs")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    wanted.out.mkdir(parents=True, exist_ok=True)
    prepare(wanted.out)
    files = {split: str(wanted.out / f"{split}.tsv") for split in ("valid", "test")}
    init = wanted.out / "parent"
    for name, file, settings in (
        ("parent", "parent.tsv", ()),
        ("child", "train.tsv", (f"training.init={init}", *CHILD)),
    ):
        data = {**CONFIG["data"], **files, "train": str(wanted.out / file)}
        minutes = trained({**CONFIG, "data": data}, wanted.out / name, settings)
        translator = load(wanted.out / name)
        for split in ("valid", "test"):
            found = evaluate_translator(translator, translator.pairs(split), shown=0, beam=5)
            scores = [
                "{} {:.1f} [{:.1f}, {:.1f}]".format(key, *found.metrics[key])
                for key in ("chrf", "bleu")
            ]
            print(f"{name}, {split}: {', '.join(scores)}; {minutes:.0f} core minutes", flush=True)


if __name__ == "__main__":
    main()
