"""JoeyNMT's beam search on a job of `decoding_engines`, run by the Python that JoeyNMT lives in.

    python decoding_joeynmt.py JOB_FOLDER ROUNDS

It imports nothing of regard, since JoeyNMT needs older packages.
"""

import json
import logging
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from joeynmt.model import build_model
from joeynmt.search import beam_search
from joeynmt.vocabulary import Vocabulary

SPECIAL = {0: 1, 1: 2, 2: 3, 3: 0}  # pad, begin, end, unknown: ours to theirs


def vocabulary(size):
    names = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    numbers = {"unk_id": 0, "pad_id": 1, "bos_id": 2, "eos_id": 3}
    special = SimpleNamespace(**names, **numbers, sep_token=None, sep_id=None, lang_tags=[])
    return Vocabulary([f"t{n}" for n in range(4, size)], special)


def built(job, weights):
    """A JoeyNMT model with the job's weights."""
    sizes, words = job["sizes"], vocabulary(job["model"]["target_vocabulary"])
    side = {
        "type": "transformer",
        "num_layers": sizes["layers"],
        "num_heads": sizes["heads"],
        "hidden_size": sizes["dim"],
        "ff_size": sizes["hidden"],
        "dropout": 0.0,
        "layer_norm": "post",
        "embeddings": {"embedding_dim": sizes["dim"], "scale": True, "dropout": 0.0},
    }
    tied = {"tied_embeddings": True, "tied_softmax": True}
    model = build_model({"encoder": dict(side), "decoder": dict(side), **tied}, words, words)
    for part in model.modules():
        if isinstance(part, torch.nn.LayerNorm):
            part.eps = 1e-5
    theirs = model.state_dict()
    order = [SPECIAL_INVERSE[n] if n < 4 else n for n in range(len(words))]
    new = {}
    for name in theirs:
        new[name] = theirs[name] if name.endswith(".pe") else value(name, weights, order)
    model.load_state_dict(new)
    return model.eval()


SPECIAL_INVERSE = {theirs: ours for ours, theirs in SPECIAL.items()}
PARTS = {
    "src_src_att": "attention",
    "trg_trg_att": "attention",
    "src_trg_att": "memory_attention",
    "k_layer": "key_projection",
    "v_layer": "value_projection",
    "q_layer": "query_projection",
    "output_layer": "output_projection",
    "x_layer_norm": "around_attention.norm",
    "dec_layer_norm": "around_memory_attention.norm",
    "feed_forward.layer_norm": "around_feed_forward.norm",
    "feed_forward.pwff_layer.0": "feed_forward.inner",
    "feed_forward.pwff_layer.3": "feed_forward.outer",
}


def value(name, weights, order):
    """One of their tensors from ours."""
    if name in ("src_embed.lut.weight", "trg_embed.lut.weight", "decoder.output_layer.weight"):
        return torch.from_numpy(weights["target.weight"][order])
    own = name
    for theirs, ours in sorted(PARTS.items(), key=lambda pair: -len(pair[0])):
        own = own.replace(theirs, ours)
    if ".layer_norm." in own:  # what is left is that of an encoder's attention
        own = own.replace("layer_norm", "around_attention.norm")
    return torch.from_numpy(weights[own])


@torch.no_grad()
def run(model, job):
    found = [[] for _ in job["ids"]]
    order = sorted(range(len(found)), key=lambda i: -len(job["ids"][i]))
    for start in range(0, len(order), job["sentences"]):
        index = order[start : start + job["sentences"]]
        longest = len(job["ids"][index[0]])
        source = torch.full((len(index), longest), 1)
        for row, i in zip(source, index, strict=True):
            row[: len(job["ids"][i])] = torch.tensor(job["ids"][i])
        mask = (source != 1).unsqueeze(1)
        lengths = mask.sum((1, 2))
        encoded = model(return_type="encode", src=source, src_length=lengths, src_mask=mask)
        hypotheses, _, _ = beam_search(
            model=model,
            beam_size=job["beam"],
            encoder_output=encoded[0],
            encoder_hidden=encoded[1],
            src_mask=mask,
            max_output_length=int(job["ratio"] * longest) + job["extra"],
            alpha=0.0,
            min_output_length=job["least"],
            return_prob="none",
        )
        for i, tokens in zip(index, hypotheses.tolist(), strict=True):
            found[i] = [token for token in tokens if token > 3]
    return found


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
    job = json.loads((folder / "job.json").read_text())
    torch.set_num_threads(job["threads"])
    model = built(job, np.load(folder / "weights.npz"))
    run(model, {**job, "ids": job["ids"][: job["sentences"]]})  # to warm up
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        answers = run(model, job)
        best = min(best, time.perf_counter() - begin)
    print(json.dumps({"seconds": best, "found": answers}))
