"""How differently the heads of two models attend on one input."""

from typing import NamedTuple

from regard.analysis.heads import checked
from regard.trace import Trace


class HeadDifference(NamedTuple):
    """How differently a head attends in two traces."""

    name: str  # of the call
    head: int
    distance: float  # mean over queries, from 0 to 1
    token: str  # the query whose weights differ most


def head_differences(first: Trace, second: Trace) -> list[HeadDifference]:
    """The heads of two models on one input, the most different one first.

        d = ½ Σⱼ |w⁽¹⁾ᵢⱼ − w⁽²⁾ᵢⱼ|, averaged over the queries i

    0 means equal maps, 1 no key in common: the share of the weight that moved (total variation).

    >>> import torch
    >>> base = Trace.of_maps({"self": torch.eye(2)}, queries=["a", "b"])
    >>> tuned = Trace.of_maps({"self": torch.tensor([[1.0, 0.0], [0.5, 0.5]])}, queries=["a", "b"])
    >>> head_differences(base, tuned)
    [HeadDifference(name='self', head=0, distance=0.25, token='b')]

    Args:
        first, second: of one example each, of models of one shape and the same tokens

    Raises:
        ValueError: traces of a batch, of other calls, or of other tokens
    """
    if any(call.batch is not None for trace in (first, second) for call in trace.calls):
        raise ValueError("head_differences takes traces of one example, such as trace.of(0)")
    if first.names != second.names:
        other = sorted(set(first.names) ^ set(second.names))[:3]
        raise ValueError(
            f"the models do not have the same attention, so heads cannot be compared: one alone "
            f"has {other}"
        )
    found = []
    for one, two in zip(first.calls, second.calls, strict=True):
        tokens = first.labels(one)
        if one.shape != two.shape or tokens != second.labels(two):
            raise ValueError(
                f"{one.name!r} has other tokens in the two traces, {tuple(one.shape)} and "
                f"{tuple(two.shape)}: compare models with one tokenizer, on one input"
            )
        if not one.shape[-2]:
            continue
        change = checked(one.map.dense()) - checked(two.map.dense())
        rows = change.abs().sum(-1) / 2  # (heads, M)
        for head, (own, distance) in enumerate(zip(rows, rows.mean(-1).tolist(), strict=True)):
            number = (one.provenance.get("heads") or range(one.heads))[head]
            token = tokens[0][int(own.argmax())]
            found.append(HeadDifference(one.name, number, distance, token))
    return sorted(found, key=lambda each: -each.distance)
