"""All the numbers about all the heads of a trace, in one table."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from regard.analysis.diagonal import diagonality, next_share, previous_share
from regard.analysis.entropy import entropy
from regard.analysis.redundancy import redundancy
from regard.analysis.sink import sink_mass
from regard.trace import Trace


class HeadDiagnostics(NamedTuple):
    """What a head does, in numbers."""

    name: str
    head: int
    entropy: float  # nats
    sink: float  # share of the weight on the sinks
    diagonality: float  # 1 on the diagonal, 0 as uniform attention
    previous: float  # share of the weight on the token before
    next: float  # share of the weight on the token after
    redundancy: float  # 1 if another head of the layer does the same; 0 for a single head


def diagnose(trace: Trace, *, sinks: Sequence[int] = (0,)) -> list[HeadDiagnostics]:
    """A row for each head of a trace of one example.

    >>> import torch
    >>> trace = Trace.of_maps({"self": torch.eye(3).repeat(2, 1, 1)}, queries=list("abc"))
    >>> diagnose(trace)[1].diagonality, diagnose(trace)[1].redundancy
    (1.0, 1.0)

    Args:
        trace: of one example: `trace.of(0)`
        sinks: positions of keys that mean nothing, such as [CLS] and [SEP]
    """
    found = []
    for call in trace.calls:
        if call.batch is not None:
            raise ValueError("diagnose takes a trace of one example, such as trace.of(0)")
        weights: Tensor = call.map.dense()
        N = call.shape[-1]
        alike = redundancy(weights) if call.heads > 1 else weights.new_zeros(1)
        columns = (
            entropy(weights),
            sink_mass(weights, [sink for sink in sinks if -N <= sink < N]),
            diagonality(weights),
            previous_share(weights),
            next_share(weights),
            alike,
        )
        for head in range(call.heads):
            found.append(HeadDiagnostics(call.name, head, *(float(c[head]) for c in columns)))
    return found
