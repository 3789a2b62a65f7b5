"""Heads worth looking at: those that attend most to the previous token, to the first, and so on."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.analysis.heads import HeadSums
from regard.trace import Call, Trace

ROWS = 512  # of a map that are computed at a time
SHARES = ("previous token", "same token", "first token", "induction")
"""Patterns measured by the share of a query's weight; the others by the entropy."""


class HeadPattern(NamedTuple):
    """A head that is among the first ones in a pattern."""

    pattern: str
    name: str  # of the call
    head: int
    value: float  # the share of the weight; nats of entropy for "widest" and "sharpest"


def head_patterns(trace: Trace, *, count: int = 3) -> list[HeadPattern]:
    """The heads that show each pattern most, the strongest first.

    | pattern | mean over queries of |
    |---|---|
    | previous token | the weight on the position before |
    | same token | the weight on the query's own token, at its place and wherever else it stands |
    | first token | the weight on the first position |
    | induction | the weight on what followed earlier occurrences of the query's token (Olsson et \
al. 2022) |
    | widest, sharpest | the entropy of the row: the largest, the smallest |

    The first four are of self-attention. Induction needs a text in which a token comes again.

    >>> maps = {"self": torch.eye(3).roll(-1, 1).repeat(1, 1, 1)}
    >>> trace = Trace.of_maps(maps, queries=["a", "b", "a"])
    >>> [(each.pattern, each.value) for each in head_patterns(trace)][:2]
    [('previous token', 1.0), ('same token', 0.3333333333333333)]

    Args:
        trace: of one example: `trace.of(0)`
        count: heads of each pattern
    """
    values: dict[str, list[HeadPattern]] = {}
    for call in trace.calls:
        if call.batch is not None:
            raise ValueError("head_patterns takes a trace of one example, such as trace.of(0)")
        for pattern, numbers in _measured(trace, call).items():
            heads = call.provenance.get("heads") or range(call.heads)
            values.setdefault(pattern, []).extend(
                HeadPattern(pattern, call.name, head, value)
                for head, value in zip(heads, numbers.tolist(), strict=True)
            )
    found = []
    for pattern in (*SHARES, "widest", "sharpest"):
        sign = 1 if pattern == "sharpest" else -1
        ranked = sorted(values.get(pattern, []), key=lambda each: sign * each.value)
        found += ranked[:count]
    return found


def _measured(trace: Trace, call: Call) -> dict[str, Tensor]:
    """The number of each pattern, (heads,)."""
    M, N = call.shape[-2:]
    is_self = M == N > 0 and (call.queries == call.keys or call.keys == "prefix")
    same = after = None
    if is_self:
        tokens = trace.labels(call)[1]  # of a decoder's row, the token that it read
        same, after = _same(tokens), _after_earlier(tokens)
    sums = HeadSums(call.shape, sinks=(0,) if N else (), offsets=(-1,))
    own = continued = torch.zeros(call.heads, dtype=torch.float64)
    for start in range(0, M, ROWS):
        rows = slice(start, min(start + ROWS, M))
        weights = call.map[..., rows, :].detach().double().cpu()  # (heads, rows, N)
        sums.add(weights)
        if same is not None and after is not None:
            own = own + (weights * same[rows]).sum((-2, -1))
            continued = continued + (weights * after[rows]).sum((-2, -1))
    entropies = {"widest": sums.entropy, "sharpest": sums.entropy}
    if same is None or after is None:
        return entropies
    shares = {"previous token": sums.share(-1), "same token": own / M, "first token": sums.sink}
    repeated = int(after.any(-1).sum())
    if repeated:
        shares["induction"] = continued / repeated
    return shares | entropies


def _same(tokens: Sequence[str]) -> Tensor:
    """Whether key j is the token of query i, (N, N)."""
    numbers: dict[str, int] = {}
    ids = torch.tensor([numbers.setdefault(token, len(numbers)) for token in tokens])
    return ids[:, None] == ids


def _after_earlier(tokens: Sequence[str]) -> Tensor:
    """Whether key j follows an occurrence of the token of query i before i, (N, N)."""
    earlier = _same(tokens).tril(-1)  # key j is the token of query i, before it
    after = torch.zeros_like(earlier)
    after[:, 1:] = earlier[:, :-1]
    return after
