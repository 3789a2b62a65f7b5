"""Decoding beside its peers: 1,000 Multi30k sentences, one Transformer, one batch size, one run.

With the weights of a trained run sentences end where they end. Without one the weights are random,
and every engine is made to write the same number of tokens for each sentence, the mean length of
the references: what is compared is the work, and that the answers are the same. The data is fetched
by `regard data get multi30k`.

python -m benchmarks.decoding --quick --only ctranslate2
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.contest import output_file, write_rows
from benchmarks.joeynmt import VENV, python_of
from regard.data import Tokenizer, read_dataset, train_tokenizers
from regard.models import PRESETS, build
from regard.tasks import Translator, load

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
    ("greedy", "regard greedy", "torch.nn, all scores"),
    ("greedy", "regard greedy", "torch.nn, no cache"),
    ("greedy", "regard greedy", "regard, no cache"),
    ("greedy", "regard greedy", "ctranslate2 greedy"),
    ("beam", "regard beam", "ctranslate2 beam"),
    ("beam, asking for maps", "regard beam maps", "regard beam"),
    ("beam", "regard beam", "joeynmt"),
)


def select(only: str) -> list[tuple[str, str, str]]:
    """The cases whose peer's name contains `only`; `ValueError` if there are none."""
    cases = [case for case in CASES if only in case[2]]
    if not cases:
        peers = ", ".join(peer for _, _, peer in CASES)
        raise ValueError(f"--only {only!r} is part of no peer's name: {peers}")
    return cases


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all engines on one job, and print a row as soon as it is measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="64 sentences, a vocabulary of 1,000, one round"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="peers whose name contains it")
    parser.add_argument("--beam", type=int, default=5, metavar="N", help="beam size")
    parser.add_argument("--sentences", type=int, default=128, metavar="N", help="in a batch")
    parser.add_argument("--run", type=Path, help="take the weights of this run of multi30k")
    parser.add_argument("--joeynmt", type=Path, metavar="VENV", help=VENV)
    parser.add_argument("--json", type=output_file, metavar="FILE", help="also write the rows here")
    options = parser.parse_args(arguments)
    try:
        cases = select(options.only)
    except ValueError as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory() as name:
        job = _job(Path(name), options)
        long = f"{job['extra']} tokens each" if options.run is None else "as long as they become"
        print(
            f"{len(job['ids'])} sentences, {long}, batches of {options.sentences}, "
            f"beam {options.beam}, Transformer-tiny, {job['threads']} threads"
        )
        done: dict[str, dict[str, Any]] = {}
        rows = []
        for case, ours, peer in cases:
            if peer == "joeynmt" and options.joeynmt is None:
                print("joeynmt: left out, give --joeynmt FOLDER for its virtual environment")
                continue
            for who in (ours, peer):
                if who not in done:
                    done[who] = _run(who, Path(name), 1 if options.quick else 3, options.joeynmt)
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
            write_rows(options.json, [asdict(row) for row in rows])
            print(
                f"{row.case:<22} {row.ours:<17} {row.seconds:8.3f} s   {row.peer:<20} "
                f"{row.peer_seconds:8.3f} s   {row.ratio:6.2f}×   {row.same:6.1%} the same",
                flush=True,
            )


def _job(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Write the job that all engines get."""
    quick, run = options.quick, options.run
    test = read_dataset("multi30k", "test")[: 64 if quick else 1000]
    model, tokenizer = _random(quick) if run is None else _trained(run)
    targets = [len(tokenizer.encode(text)) for text in test.targets]
    mean = round(sum(targets) / len(targets))
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    np.savez(folder / "weights.npz", **weights)
    job = {
        "preset": "tiny",
        "sizes": PRESETS["transformer"]["tiny"],
        "model": _options(len(tokenizer)),
        "ids": [tokenizer.encode(text) for text in test.sources],
        "least": mean if run is None else 1,  # tokens of an answer
        "ratio": 0.0 if run is None else 1.5,  # at most ratio · source + extra
        "extra": mean if run is None else 5,
        "beam": options.beam,
        "sentences": options.sentences,
        "threads": torch.get_num_threads(),
    }
    (folder / "job.json").write_text(json.dumps(job))
    return job


def _options(vocabulary: int) -> dict[str, Any]:
    words = {"source_vocabulary": vocabulary, "target_vocabulary": vocabulary}
    return {**words, "tie": "all"}


def _random(quick: bool) -> tuple[nn.Module, Tokenizer]:
    """A new model that never ends by itself, and the tokenizer of both sides."""
    pairs = read_dataset("multi30k", "train")
    tokenizer, _ = train_tokenizers(
        pairs[:2000] if quick else pairs, "bpe", "bpe", joint=True, size=1000 if quick else 8000
    )
    torch.manual_seed(1)
    model: Any = build("transformer", "tiny", **_options(len(tokenizer)))
    with torch.no_grad():
        model.target.weight[:4] = 0.0  # so that no sentence ends early
        model.target.weight[4:] *= math.sqrt(2.0)
        model.output.bias.zero_()
    return model, tokenizer


def _trained(run: Path) -> tuple[nn.Module, Tokenizer]:
    """The model of a run and its tokenizer, without the output's bias, which JoeyNMT has not."""
    translator = load(run)
    assert isinstance(translator, Translator)
    model: Any = translator.model
    like = build("transformer", "tiny", **_options(len(translator.target))).state_dict()
    if {n: t.shape for n, t in like.items()} != {n: t.shape for n, t in model.state_dict().items()}:
        raise ValueError(
            f"--run {run} should be a translation by a transformer of preset tiny with "
            'tie = "all" and norm = "post"'
        )
    with torch.no_grad():
        model.output.bias.zero_()
    return model, translator.target


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


if __name__ == "__main__":
    main()
