"""Time and memory of attribution: by rows on any kernel, by eager attention, and by inseq.

    python -m benchmarks.attribution

A random GPT-2 of 6 layers and 8 heads; one token after a text is attributed to its tokens. Each
case runs in a process of its own, whose peak memory is measured beside that of a plain forward
pass. inseq (https://inseq.org) is left out where it is not installed.
"""

import argparse
import importlib.util
import json
import multiprocessing
import resource
import time
from collections.abc import Callable
from typing import Any

import torch

LENGTHS = (256, 1024, 2048)
REPEATS = 3


def load(implementation: str, length: int) -> Any:
    """The model, always the same."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1)
    sizes = {"vocab_size": 512, "n_embd": 256, "n_layer": 6, "n_head": 8}
    config = GPT2Config(**sizes, n_positions=length, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel._from_config(config, attn_implementation=implementation)
    return model.eval().requires_grad_(False)


def forward(length: int) -> Callable[[], Any]:
    """A forward pass alone."""
    model, ids = load("sdpa", length), _ids(length)
    return lambda: model(ids).logits[0, -1, 7]


def by_rows(length: int) -> Callable[[], Any]:
    """`attribute` on torch's fused kernel."""
    import regard

    model, ids = load("sdpa", length), _ids(length)

    def run() -> Any:
        with regard.capture(model, gradients=True) as trace:
            logits = model(ids).logits
        return regard.analysis.attribute(trace, logits[0, -1, 7], signed=True)

    return run


def eager(length: int) -> Callable[[], Any]:
    """Autograd through the weights of eager attention."""
    model, ids = load("eager", length), _ids(length)
    model.transformer.wte.weight.requires_grad_()

    def run() -> Any:
        output = model(ids, output_attentions=True)
        maps = output.attentions
        gradients = torch.autograd.grad(output.logits[0, -1, 7], maps)
        return sum((w * g).sum((0, 1, 2)) for w, g in zip(maps, gradients, strict=True)).detach()

    return run


def inseq(length: int, method: str = "attention") -> Callable[[], Any]:
    """inseq's attribution of the same token; its "attention" has no gradient."""
    import tempfile

    import inseq
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {f"w{number}": number for number in range(512)}
    raw = Tokenizer(models.WordLevel(words, unk_token="w0"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, unk_token="w0", bos_token="w0", eos_token="w0", pad_token="w0"
    )
    with tempfile.TemporaryDirectory() as folder:
        load("eager", length).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        model = inseq.load_model(
            folder, method, tokenizer=folder, model_kwargs={"attn_implementation": "eager"}
        )
    text = " ".join(f"w{number}" for number in _ids(length)[0, :-1].tolist())

    def run() -> Any:
        return model.attribute(
            text, f"{text} w7", show_progress=False, pretty_progress=False, attribute_target=False
        )

    return run


CASES: dict[str, Callable[[int], Callable[[], Any]]] = {
    "forward": forward,
    "regard, by rows": by_rows,
    "autograd, eager": eager,
    "inseq, attention": inseq,
    "inseq, input × gradient": lambda length: inseq(length, "input_x_gradient"),
}


def measure(case: str, length: int, answer: Any) -> None:
    """Put the best time and the growth of the process while the case runs."""
    run = CASES[case](length)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    answer.put((min(times), grown / 2**10))


def main() -> None:
    """Print a table, and a line of JSON for each cell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    lengths = parser.parse_args().lengths
    context = multiprocessing.get_context("spawn")
    print(f"{'case':26} {'tokens':>6} {'seconds':>8} {'MB more':>8}")
    for length in lengths:
        for case in CASES:
            if case.startswith("inseq") and importlib.util.find_spec("inseq") is None:
                continue
            answer = context.Queue()
            process = context.Process(target=measure, args=(case, length, answer))
            process.start()
            process.join()
            if process.exitcode:
                print(json.dumps({"case": case, "tokens": length, "failed": process.exitcode}))
                continue
            seconds, memory = answer.get()
            print(f"{case:26} {length:6} {seconds:8.3f} {memory:8.0f}", flush=True)


def _ids(length: int) -> torch.Tensor:
    return torch.randint(1, 512, (1, length), generator=torch.Generator().manual_seed(2))


if __name__ == "__main__":
    main()
