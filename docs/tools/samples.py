"""Train the sample models of `regard.samples` and store them small: `make samples`."""

import shutil
import sys
import tempfile
from pathlib import Path

import regard
from regard.samples import FOLDER
from regard.training.weights import read_tensors, write_tensors

LARGEST = 400_000  # bytes of a sample
FILES = ("config.toml", "manifest.json", "metrics.jsonl", "tokenizer*.json")
SAMPLES = {
    "dates-luong": ("dates", []),
    "dates-bahdanau": (
        "dates",
        ["model.kind=bahdanau", "model.cell=gru", "model.score=additive"],
    ),
    "dates-transformer": ("dates-transformer", ["model.hidden=128", "training.epochs=8"]),
}


def make(name: str, folder: Path) -> None:
    """Train one sample, print how many unseen dates it has right, and replace the stored run."""
    recipe, settings = SAMPLES[name]
    run = folder / name
    regard.train(recipe, out=run, settings=settings)
    weights = read_tensors(run / "model.safetensors")
    halves = {key: t.half() if t.is_floating_point() else t for key, t in weights.items()}
    write_tensors(run / "model.safetensors", halves)
    stored = FOLDER / name
    shutil.rmtree(stored, ignore_errors=True)
    stored.mkdir()
    for pattern in (*FILES, "model.safetensors"):
        for file in run.glob(pattern):
            shutil.copy(file, stored)
    size = sum(file.stat().st_size for file in stored.iterdir())
    if size > LARGEST:
        raise ValueError(f"{name} has {size:,} bytes, more than {LARGEST:,}")
    translator = regard.load(stored)
    pairs = translator.pairs("test")
    predictions = translator.translate(list(pairs.sources))
    right = sum(p.text == t for p, t in zip(predictions, pairs.targets, strict=True))
    print(f"{name}: {size:,} bytes, {right} of {len(pairs)} unseen dates")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or SAMPLES:
            make(name, Path(folder))
