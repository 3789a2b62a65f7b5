"""What it costs to record a generation: memory, time, and the page that shows it.

python -m benchmarks.generation
python -m benchmarks.generation --tokens 400 --no-page

A Llama of 4 layers, width 256, 8 heads and 4 of keys and values writes some tokens with and without
`regard.capture`, in turns; the best of each counts. Memory is that of all tensors that are alive
afterwards and were not before, beside the queries, final keys and values in float32.
"""

import argparse
import gc
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import regard

LAYERS, WIDTH, HEADS, KEY_HEADS, PROMPT = 4, 256, 8, 4, 8


def model():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        intermediate_size=2 * WIDTH,
        max_position_embeddings=4096,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return LlamaForCausalLM(config).eval()


def tensors() -> dict[int, Tensor]:
    """All tensors that are alive, by id."""
    gc.collect()
    return {id(each): each for each in gc.get_objects() if type(each) is Tensor}


def timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--page", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    llama, ids = model(), torch.arange(3, 3 + PROMPT)[None]
    count = options.tokens

    def write() -> Tensor:
        chosen = {"max_new_tokens": count, "min_new_tokens": count, "do_sample": False}
        return llama.generate(ids, attention_mask=torch.ones_like(ids), **chosen)

    def record() -> regard.trace.Trace:
        with regard.capture(llama) as trace:
            write()
        return trace

    write()
    plain, recorded = [], []
    for _ in range(options.turns):
        plain.append(timed(write))
        recorded.append(timed(record))
    before = set(tensors())
    trace = record()
    new = [each for key, each in tensors().items() if key not in before]
    held = sum({t.data_ptr(): t.untyped_storage().nbytes() for t in new}.values())
    length = PROMPT + count - 1
    needed = 4 * LAYERS * length * WIDTH // HEADS * (HEADS + 2 * KEY_HEADS)
    print(f"memory: {held / 1e6:.1f} MB, {held / needed:.2f} × (queries + keys + values)")
    print(
        f"time: {min(recorded):.2f} s, {min(recorded) / min(plain):.2f} × without capture "
        f"({min(plain):.2f} s)"
    )
    print(f"maps: {[tuple(call.shape) for call in trace]}")
    if options.page:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "generation.html"
            taken = timed(lambda: trace.of(0).page(path))
            print(f"page: {path.stat().st_size / 1e6:.1f} MB, written in {taken:.1f} s")


if __name__ == "__main__":
    main()
