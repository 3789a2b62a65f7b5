"""JoeyNMT 2.3 (Kreutzer et al. 2019) trained for a few steps, in a virtual environment of its own.

It needs older packages than regard, so that it is installed apart, on request.
"""

import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

import torch

from regard.tasks import TranslateTask

PACKAGES = ("joeynmt==2.3.0", "importlib_metadata")
VENV = "also run JoeyNMT 2.3 in this virtual environment, created if missing"
SPEED = re.compile(r"Tokens per Sec:\s+(\d+)")


def tokens_per_second(
    environment: Path, task: TranslateTask, sizes: dict[str, Any], *, tokens: int, steps: int
) -> float:
    """The best speed that it reports, in target tokens per second.

    It is given the same tokens as words, so that its vocabulary is ours. Its batches hold as many
    tokens, counted in its own way, and are not sorted by length.

    Args:
        environment: the folder of its virtual environment, made if it is not there
        sizes: layers, dim, heads, hidden and dropout of the model
    """
    python = python_of(environment)
    with tempfile.TemporaryDirectory() as folder:
        _write_data(Path(folder), task)
        config = Path(folder) / "config.yaml"
        config.write_text(_config(Path(folder), sizes, tokens, steps), encoding="utf-8")
        environ = {"OMP_NUM_THREADS": str(torch.get_num_threads()), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            [str(python), "-m", "joeynmt", "train", str(config), "--skip-test"],
            capture_output=True,
            text=True,
            check=False,
            env=environ,
            cwd=folder,
        )
    speeds = [int(number) for number in SPEED.findall(done.stdout + done.stderr)]
    if not speeds:
        raise SystemExit(f"JoeyNMT did not train: {(done.stdout + done.stderr)[-2000:]}")
    return float(max(speeds))


def python_of(environment: Path) -> Path:
    """The Python of a virtual environment with JoeyNMT, made if it is not there."""
    python = environment / "bin" / "python"
    if not python.is_file():
        print(f"installing {' '.join(PACKAGES)} into {environment}", file=sys.stderr)
        venv.create(environment, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return python


def _write_data(folder: Path, task: TranslateTask) -> None:
    """The pairs, each token by its number."""
    assert task.source_tokenizer is not None
    corpora = {"train": task.train, "dev": task.valid}
    for name, pairs in corpora.items():
        for side, texts, tokenizer in (
            ("en", pairs.sources, task.source_tokenizer),
            ("de", pairs.targets, task.target_tokenizer),
        ):
            rows = (" ".join(f"t{i}" for i in tokenizer.encode(text)) for text in texts)
            (folder / f"{name}.{side}").write_text("\n".join(rows) + "\n", encoding="utf-8")
    words = [f"t{i}" for i in range(4, len(task.target_tokenizer))]
    specials = ["<unk>", "<pad>", "<s>", "</s>"]
    (folder / "vocabulary.txt").write_text("\n".join([*specials, *words]) + "\n", encoding="utf-8")


def _config(folder: Path, sizes: dict[str, Any], tokens: int, steps: int) -> str:
    layers = f"""
        type: "transformer"
        num_layers: {sizes["layers"]}
        num_heads: {sizes["heads"]}
        embeddings:
            embedding_dim: {sizes["dim"]}
            scale: True
            dropout: {sizes["dropout"]}
        hidden_size: {sizes["dim"]}
        ff_size: {sizes["hidden"]}
        dropout: {sizes["dropout"]}
        layer_norm: "post"
"""
    side = f"""
        level: "word"
        max_length: 200
        voc_file: "{folder}/vocabulary.txt"
"""
    return f"""
name: "bench"
joeynmt_version: "2.3.0"
model_dir: "{folder}/model"
use_cuda: False
fp16: False
random_seed: 1
data:
    train: "{folder}/train"
    dev: "{folder}/dev"
    dataset_type: "plain"
    src:
        lang: "en"{side}
    trg:
        lang: "de"{side}
testing:
    beam_size: 1
training:
    optimizer: "adamw"
    adam_betas: [0.9, 0.98]
    scheduling: "warmupinversesquareroot"
    learning_rate: 0.001
    learning_rate_warmup: 2000
    learning_rate_min: 1.0e-8
    clip_grad_norm: 1.0
    label_smoothing: 0.1
    loss: "crossentropy"
    batch_size: {tokens}
    batch_type: "token"
    normalization: "tokens"
    epochs: 1
    updates: {steps}
    shuffle: True
    logging_freq: {max(1, steps // 4)}
    validation_freq: {1000 * max(1, steps // 4)}
model:
    initializer: "xavier_uniform"
    embed_initializer: "xavier_uniform"
    tied_embeddings: True
    tied_softmax: True
    encoder:{layers}
    decoder:{layers}
"""
