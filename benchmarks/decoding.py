"""Decoding beside its peers: 1,000 Multi30k sentences, one Transformer, one batch size, one run.

The weights are random, so every engine is made to write the same number of tokens for each
sentence, the mean length of the references: what is compared is the work, and that the answers are
the same.
"""

import json
import math
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.joeynmt import python_of
from benchmarks.plain_transformer import PlainTransformer, same_model
from regard.data import read_recipe, train_tokenizers
from regard.models import PRESETS, Transformer, build

ROOT = Path(__file__).parents[1]


@dataclass
class Row:
    """One line of the answer; `ratio` is peer_seconds / seconds, `same` the share of answers."""

    case: str
    ours: str
    peer: str
    seconds: float
    peer_seconds: float
    ratio: float
    same: float


CASES = (
    ("greedy", "regard greedy", "torch.nn, no cache"),
    ("greedy", "regard greedy", "regard, no cache"),
    ("greedy", "regard greedy", "ctranslate2 greedy"),
    ("beam", "regard beam", "ctranslate2 beam"),
    ("beam, asking for maps", "regard beam maps", "regard beam"),
    ("beam", "regard beam", "joeynmt"),
)


def main(
    *,
    quick: bool = False,
    json_file: Path | None = None,
    joeynmt: Path | None = None,
    beam: int = 5,
    sentences: int = 64,
    only: str = "",
) -> list[Row]:
    """Run all engines on one job and print the rows.

    Args:
        quick: 64 sentences, a vocabulary of 1,000, one round
        json_file: where the rows go as well
        joeynmt: a virtual environment for JoeyNMT 2.3, made if need be
        beam: size of the beams
        sentences: in a batch
        only: cases whose peer's name contains this
    """
    cases = [case for case in CASES if only in case[2]]
    if not cases:
        peers = ", ".join(peer for _, _, peer in CASES)
        raise ValueError(f"--only {only} is part of no peer's name: {peers}")
    with tempfile.TemporaryDirectory() as name:
        job = _job(Path(name), quick=quick, beam=beam, sentences=sentences)
        print(
            f"{len(job['ids'])} sentences, {job['length']} tokens each, batches of {sentences}, "
            f"beam {beam}, Transformer-tiny, {job['threads']} threads"
        )
        done: dict[str, dict[str, Any]] = {}
        rows = []
        for case, ours, peer in cases:
            if peer == "joeynmt" and joeynmt is None:
                print("joeynmt: left out, give --joeynmt FOLDER for its virtual environment")
                continue
            for who in (ours, peer):
                if who not in done:
                    done[who] = _run(who, Path(name), 1 if quick else 3, joeynmt)
            mine, theirs = done[ours], done[peer]
            pairs = zip(mine["found"], theirs["found"], strict=True)
            row = Row(
                case,
                ours,
                peer,
                mine["seconds"],
                theirs["seconds"],
                theirs["seconds"] / mine["seconds"],
                float(np.mean([a == b for a, b in pairs])),
            )
            rows.append(row)
            print(
                f"{row.case:<22} {row.ours:<17} {row.seconds:8.3f} s   {row.peer:<18} "
                f"{row.peer_seconds:8.3f} s   {row.ratio:6.2f}×   {row.same:6.1%} the same"
            )
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    return rows


def _job(folder: Path, *, quick: bool, beam: int, sentences: int) -> dict[str, Any]:
    """Write the job that all engines get."""
    pairs = read_recipe("multi30k", "train")
    tokenizer, _ = train_tokenizers(
        pairs[:2000] if quick else pairs, "bpe", "bpe", joint=True, size=1000 if quick else 8000
    )
    test = read_recipe("multi30k", "test")[: 64 if quick else 1000]
    targets = [len(tokenizer.encode(text)) for text in test.targets]
    torch.manual_seed(1)
    words = {"source_vocabulary": len(tokenizer), "target_vocabulary": len(tokenizer)}
    options: dict[str, Any] = {**words, "tie": "all"}
    sizes = PRESETS["transformer"]["tiny"]
    plain = PlainTransformer(len(tokenizer), **sizes)
    with torch.no_grad():
        plain.embedding.weight[:4] = 0.0  # so that nobody ever prefers to end
        plain.embedding.weight[4:] *= math.sqrt(2.0)
        plain.output.bias.zero_()
    model = build("transformer", "tiny", **options)
    assert isinstance(model, Transformer)
    for name, own in (("plain", plain), ("weights", same_model(plain, model))):
        arrays = {key: tensor.numpy() for key, tensor in own.state_dict().items()}
        np.savez(folder / f"{name}.npz", **arrays)
    job = {
        "preset": "tiny",
        "sizes": sizes,
        "model": options,
        "ids": [tokenizer.encode(text) for text in test.sources],
        "length": round(sum(targets) / len(targets)),
        "beam": beam,
        "sentences": sentences,
        "threads": torch.get_num_threads(),
    }
    (folder / "job.json").write_text(json.dumps(job))
    return job


def _run(who: str, folder: Path, rounds: int, joeynmt: Path | None) -> dict[str, Any]:
    """One engine in a process of its own."""
    if who == "joeynmt":
        script = str(ROOT / "benchmarks" / "decoding_joeynmt.py")
        assert joeynmt is not None
        # -I: neither this folder, which has a joeynmt.py of its own, nor PYTHONPATH
        command = [str(python_of(joeynmt)), "-I", script, str(folder), str(min(rounds, 1))]
    else:
        module = "benchmarks.decoding_engines"
        command = [sys.executable, "-m", module, who, str(folder), str(rounds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"{who} failed: {last}")
    return json.loads(done.stdout.strip().splitlines()[-1])
