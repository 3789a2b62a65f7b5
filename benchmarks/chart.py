"""Time and memory of attention against its length, as a picture."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

import regard
from benchmarks.contest import as_job, extra_memory, race

HEADS, WIDTH = 8, 64
LIMIT = 4.0
"""Seconds of one pass beyond which a curve is not followed further."""


def curves() -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    def textbook(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(q @ k.transpose(-1, -2) / WIDTH**0.5, dim=-1) @ v

    def sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v)

    return {
        "textbook softmax": textbook,
        "torch SDPA": sdpa,
        "regard": lambda q, k, v: regard.attend(q, k, v),
        "regard, causal": lambda q, k, v: regard.attend(q, k, v, mask=regard.causal()),
        "regard, window ±128": lambda q, k, v: regard.attend(q, k, v, mask=regard.window(128, 128)),
        "regard, linear": lambda q, k, v: regard.attend_linear(q, k, v),
    }


def measure(longest: int) -> dict[str, list[tuple[int, float, int]]]:
    """(length, seconds, bytes) of one forward pass, for each curve."""
    found: dict[str, list[tuple[int, float, int]]] = {name: [] for name in curves()}
    length = 256
    while length <= longest:
        q, k, v = (torch.randn(1, HEADS, length, WIDTH) for _ in range(3))
        for name, attention in curves().items():
            last = found[name][-1] if found[name] else (0, 0.0, 0)
            too_large = name == "textbook softmax" and length > 16384
            if last[1] * 4 > LIMIT or too_large or (found[name] and last[0] * 2 != length):
                continue
            job = as_job(partial(attention, q, k, v), (), backward=False)
            size = extra_memory(job)
            found[name].append((length, race([job], rounds=2)[0], size))
        length *= 2
    return found


def draw(file: Path, *, longest: int) -> None:
    """Measure and draw two log-log panels side by side."""
    from matplotlib.figure import Figure

    found = measure(longest)
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, (name, points) in enumerate(found.items()):
        if not points:
            continue
        style = {"marker": "osD^vP"[number], "color": f"C{number}", "label": name}
        lengths = [point[0] for point in points]
        left.plot(lengths, [1000 * point[1] for point in points], **style)
        right.plot(lengths, [max(point[2], 2**16) / 1e6 for point in points], **style)
    for panel, label in ((left, "milliseconds, forward"), (right, "extra memory, MB")):
        panel.set(xscale="log", yscale="log", xlabel="length (queries = keys)", ylabel=label)
        panel.set_xscale("log", base=2)
        panel.grid(alpha=0.3)
    left.legend(frameon=False, fontsize=9)
    threads = torch.get_num_threads()
    figure.suptitle(f"{HEADS} heads × {WIDTH}, float32, {threads} threads")
    figure.savefig(file, dpi=130)
