"""What presets learn from 3,000 pairs: the example of docs/training.md with every kind of model.

    python -m benchmarks.presets                    # the tiny presets, a minute or two each
    python -m benchmarks.presets --only transformer
    python -m benchmarks.presets --preset small

The configuration is that of the page, with the first 3,000 pairs of Multi30k en→de, the first 300
of its validation split, and a number of steps instead of minutes. Wider Transformers have a lower
learning rate, as the page says. Prints core seconds and greedy BLEU on the validation pairs.
"""

import argparse
import re
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

import torch

from regard.data import read_dataset
from regard.evaluation import evaluate_translator
from regard.models import PRESETS
from regard.tasks import load, train

PAGE = Path(__file__).parents[1] / "docs" / "training.md"
STEPS = 900
TRANSFORMER_LR = {"tiny": 3e-3, "small": 1e-3, "base": 5e-4}


def configuration(folder: Path, kind: str, preset: str) -> dict[str, Any]:
    """The example of the page for another kind of model, with files in a folder."""
    (block,) = re.findall(
        r'```toml\n(task = "translate".*?)```', PAGE.read_text("utf-8"), re.DOTALL
    )
    config = tomllib.loads(block)
    for split, name, count in (("train", "train", 3000), ("valid", "valid", 300)):
        pairs = read_dataset("multi30k", name)[:count]
        lines = (f"{a}\t{b}\n" for a, b in zip(pairs.sources, pairs.targets, strict=True))
        file = folder / f"{split}.tsv"
        file.write_text("".join(lines), "utf-8")
        config["data"][split] = str(file)
    if kind == "transformer":
        config["training"]["lr"] = TRANSFORMER_LR[preset]
    else:
        config["model"] = {"kind": kind}
    config["model"]["preset"] = preset
    del config["training"]["minutes"]
    config["training"] |= {"steps": STEPS, "threads": 1, "evaluate_every": STEPS // 3}
    return config


def main() -> None:
    """Train the presets and print a line for each."""
    kinds = [kind for kind in PRESETS if kind != "language"]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=kinds, help="one kind of model")
    parser.add_argument("--preset", default="tiny", choices=("tiny", "small", "base"))
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16"))
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    print("| model | preset | core seconds | BLEU |\n|---|---|---|---|", flush=True)
    for kind in [wanted.only] if wanted.only else kinds:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            start = time.process_time()
            config = configuration(folder, kind, wanted.preset)
            config["training"]["precision"] = wanted.precision
            train(config, folder / "run")
            seconds = time.process_time() - start
            translator = load(folder / "run")
            report = evaluate_translator(translator, translator.pairs("valid"), shown=0)
            bleu = report.metrics["bleu"][0]
        print(f"| {kind} | {wanted.preset} | {seconds:.0f} | {bleu:.1f} |", flush=True)


if __name__ == "__main__":
    main()
