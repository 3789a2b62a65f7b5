"""Those who decode the same job: regard, plain loops, CTranslate2, and JoeyNMT elsewhere.

Each runs in a process of its own, since two OpenMP runtimes in one process disturb each other. A
job is a folder with `job.json` and the weights as `weights.npz`, which any torch can read.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.plain_transformer import plain_model
from regard.data.batch import BOS, EOS
from regard.decoding import Limits, batched, beam, greedy
from regard.decoding.batched import by_length, padded
from regard.models import Transformer, build

Answers = list[list[int]]
Engine = Callable[[], Answers]


def model_of(folder: Path, job: dict[str, Any]) -> Transformer:
    """The job's Transformer with its weights."""
    model = build("transformer", job["preset"], **job["model"])
    weights = np.load(folder / "weights.npz")
    model.load_state_dict({name: torch.from_numpy(weights[name]) for name in weights.files})
    assert isinstance(model, Transformer)
    return model.eval()


def ours(model: Transformer, job: dict[str, Any], *, size: int, maps: bool = False) -> Answers:
    """regard: greedy for a beam of 1."""
    limits = Limits(job["ratio"], job["extra"])
    search = greedy if size == 1 else partial(beam, size=size, penalty=0.0)
    options = {"sentences": job["sentences"], "limits": limits, "return_map": maps}
    found: Any = batched(search, model, job["ids"], **options)
    best = [one if size == 1 else one[0] for one in found]
    return [_until_end(one.tokens) for one in best]


def torch_loop(model: Transformer, job: dict[str, Any], *, every: bool = False) -> Engine:
    """Greedy search without a cache, with torch's own layers.

    With `every` as one writes it first: the model is called as in training, which gives the scores
    after every token, and the last ones are taken. Without, it reads the last token's alone.
    """
    plain = plain_model(model, **job["sizes"]).eval()

    def decode(memory: Tensor, hidden: Tensor, target: Tensor) -> Tensor:
        features = plain.decode(memory, hidden, target)
        return plain.output(features)[:, -1] if every else plain.output(features[:, -1])

    return partial(_loop, job, plain.encode, decode)


def own_loop(model: Transformer, job: dict[str, Any]) -> Engine:
    """The same loop with regard's layers."""

    def encode(source: Tensor, lengths: Tensor) -> tuple[Any, ...]:
        return (model.encode(source, lengths),)

    def decode(memory: Any, target: Tensor) -> Tensor:
        return model.output(model.decode(memory, target)[:, -1])

    return partial(_loop, job, encode, decode)


@torch.inference_mode()
def _loop(
    job: dict[str, Any],
    encode: Callable[[Tensor, Tensor], tuple[Any, ...]],
    decode: Callable[..., Tensor],
) -> Answers:
    """Without a cache: `decode` gets the whole target again for the logits after its last token."""
    found: Answers = [[] for _ in job["ids"]]
    for index, source, lengths in _batches(job):
        most = int(job["ratio"] * source.shape[1]) + job["extra"]
        memory = encode(source, lengths)
        target = torch.full((len(index), 1), BOS)
        ended = torch.zeros(len(index), 1, dtype=torch.bool)
        while target.shape[1] <= most and not ended.all():
            logits = decode(*memory, target)
            logits[:, : BOS + 1] = -torch.inf
            best = logits.argmax(-1, keepdim=True)
            target, ended = torch.cat((target, best), 1), ended | (best == EOS)
        for i, tokens in zip(index, target[:, 1:].tolist(), strict=True):
            found[i] = _until_end(tokens)
    return found


def _until_end(tokens: Sequence[int]) -> list[int]:
    """What comes before the end."""
    return list(takewhile(lambda token: token != EOS, tokens))


def ctranslate2(folder: Path, job: dict[str, Any], *, size: int) -> Engine:
    """CTranslate2 in float32 with the same weights and threads."""
    from ctranslate2 import Translator

    from regard.export.ctranslate2 import token_of, write_ctranslate2

    path = folder / "ctranslate2"
    path.mkdir(exist_ok=True)
    write_ctranslate2(model_of(folder, job), path)
    threads = {"inter_threads": 1, "intra_threads": torch.get_num_threads()}
    translator = Translator(str(path), compute_type="float32", **threads)
    sources = [[token_of(number) for number in ids] for ids in job["ids"]]
    numbers = {token_of(number): number for number in range(job["model"]["target_vocabulary"])}

    def run() -> Answers:
        found: Answers = [[] for _ in sources]
        for index, source, _ in _batches(job):
            best = translator.translate_batch(
                [sources[i] for i in index],
                beam_size=size,
                length_penalty=0,
                max_decoding_length=int(job["ratio"] * source.shape[1]) + job["extra"],
            )
            for i, one in zip(index, best, strict=True):
                found[i] = [numbers[token] for token in one.hypotheses[0]]
        return found

    return run


def _batches(job: dict[str, Any]) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    lengths = [len(ids) for ids in job["ids"]]
    for index in by_length(lengths, job["sentences"], 1 << 30):
        source, counts = padded([job["ids"][i] for i in index])
        yield index, source, counts


def engine(name: str, folder: Path) -> Engine:
    """An engine by name, ready to run."""
    job = json.loads((folder / "job.json").read_text())
    torch.set_num_threads(job["threads"])
    if name.startswith("ctranslate2"):
        return ctranslate2(folder, job, size=1 if "greedy" in name else job["beam"])
    model = model_of(folder, job)
    engines: dict[str, Engine] = {
        "regard greedy": partial(ours, model, job, size=1),
        "regard beam": partial(ours, model, job, size=job["beam"]),
        "regard beam maps": partial(ours, model, job, size=job["beam"], maps=True),
        "torch.nn, all scores": torch_loop(model, job, every=True),
        "torch.nn, no cache": torch_loop(model, job),
        "regard, no cache": own_loop(model, job),
    }
    return engines[name]


def timed(run: Engine, rounds: int) -> dict[str, Any]:
    """The best of some rounds in seconds, after one to warm up, and what was found."""
    found, best = run(), float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return {"seconds": best, "found": found}


if __name__ == "__main__":
    print(json.dumps(timed(engine(sys.argv[1], Path(sys.argv[2])), int(sys.argv[3]))))
