"""What attention costs: how many steps must follow one another, and how time grows with length."""

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import attend, attend_linear
from regard.claims.finding import Chart, Curves, Finding
from regard.core.mask import window
from regard.layers import MultiHeadAttention

DIM = 64


def attention_is_parallel(quick: bool) -> Finding:
    """The critical path and the time of a recurrent layer and of self-attention.

    The critical path is the longest chain of operations that must follow one another, counted in
    the autograd graph; it does not depend on the machine.
    """
    lengths = (32, 128) if quick else (16, 64, 256, 512)
    torch.manual_seed(1)
    cell, attention = nn.GRUCell(DIM, DIM), MultiHeadAttention(DIM, 4)

    def recurrent(x: Tensor) -> Tensor:
        state = x.new_zeros(len(x), DIM)
        for t in range(x.shape[1]):
            state = cell(x[:, t], state)
        return state

    models: dict[str, Callable[[Tensor], Tensor]] = {
        "recurrent": recurrent,
        "self-attention": attention,
    }
    depths: Curves = {name: [] for name in models}
    speeds: Curves = {name: [] for name in models}
    rows: list[tuple[str | float, ...]] = []
    for length in lengths:
        x = torch.randn(1, length, DIM)
        for name, model in models.items():
            depth = _critical_path(model(x))
            (seconds,) = _best_times([partial(model, x)], 3 if quick else 7)
            depths[name].append((length, depth))
            speeds[name].append((length, length / seconds))
            rows.append((name, length, depth, round(length / seconds)))
    grown = {name: line[-1][1] / line[0][1] for name, line in depths.items()}
    return Finding(
        ("layer", "length", "critical path", "tokens/s"),
        rows,
        grown["self-attention"] == 1 and grown["recurrent"] > 0.5 * lengths[-1] / lengths[0],
        f"from length {lengths[0]} to {lengths[-1]} the critical path grows by a factor of "
        f"{grown['recurrent']:.0f} in the recurrent layer and of {grown['self-attention']:.0f} in "
        f"self-attention; tokens/s are of this machine, threads: {torch.get_num_threads()}",
        "length",
        [Chart("critical path", depths, log=True), Chart("tokens/s", speeds, log=True)],
    )


def time_grows_with_length(quick: bool) -> Finding:
    """Seconds of full, windowed and efficient attention, and the exponent of their growth."""
    lengths = (512, 1024, 2048) if quick else (1024, 2048, 4096, 8192)
    mechanisms: dict[str, tuple[str, Callable[..., Any], float]] = {
        "full": ("O(n²)", lambda x: attend(x, x, x), 2),
        "window of 129": ("O(n·w)", lambda x: attend(x, x, x, mask=window(64, 64)), 1),
        "efficient": ("O(n)", lambda x: attend_linear(x, x, x), 1),
    }
    rows: list[tuple[str | float, ...]] = []
    curves: Curves = {name: [] for name in mechanisms}
    exponents = {}
    for name, (order, compute, _) in mechanisms.items():
        calls = [partial(compute, torch.randn(1, 4, length, DIM)) for length in lengths]
        times = _best_times(calls, 7 if quick else 5)
        curves[name] = list(zip(lengths, times, strict=True))
        (a, first), (b, last) = curves[name][0], curves[name][-1]
        exponents[name] = math.log(last / first) / math.log(b / a)
        shown = (f"{1000 * seconds:.3g} ms" for seconds in times)
        rows.append((f"{name}, {order}", *shown, round(exponents[name], 2)))
    agrees = all(abs(exponents[name] - power) < 0.4 for name, (_, _, power) in mechanisms.items())
    grown = ", ".join(f"{name} as n^{exponent:.2f}" for name, exponent in exponents.items())
    doubt = "" if agrees else "; on a busy machine times vary, so measure again when it is idle"
    return Finding(
        ("attention", *(f"n = {length:,}" for length in lengths), "exponent"),
        rows,
        agrees,
        f"time grows: {grown}{doubt}",
        "length",
        [Chart("seconds", curves, log=True)],
    )


def _critical_path(output: Tensor) -> int:
    """The number of operations on the longest path of an output's autograd graph."""
    depth: dict[object, int] = {}
    stack = [output.grad_fn]
    while stack:
        node = stack[-1]
        following = [n for n, _ in node.next_functions if n is not None]  # type: ignore[union-attr]
        waiting = [n for n in following if n not in depth]
        if waiting:
            stack.extend(waiting)
        else:
            depth[node] = 1 + max((depth[n] for n in following), default=0)
            stack.pop()
    return depth[output.grad_fn]


@torch.no_grad()
def _best_times(calls: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Seconds of the fastest of several rounds for each call, after one that warms up.

    The calls take turns, so that a busy moment of the machine slows all of them.
    """
    best = [math.inf] * len(calls)
    for round in range(rounds + 1):
        for index, compute in enumerate(calls):
            start = time.perf_counter()
            compute()
            if round:
                best[index] = min(best[index], time.perf_counter() - start)
    return best
