"""One map from the steps of a decoder."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.core.map import AttentionMap
from regard.trace.call import Call, Inputs


def stitched(calls: Sequence[Call]) -> list[Call]:
    """The calls with those of one module under one another, in the order they came.

    A decoder that goes step by step asks once for each token: a row at a time, and to its own past
    with one more key at a time. Key j is position j in all of them, so that rows are filled up with
    zeros at their end.

    >>> steps = [Call("self", torch.ones(1, 1, 1)), Call("self#2", torch.full((1, 1, 2), 0.5))]
    >>> stitched(steps)[0].map.dense()
    tensor([[[1.0000, 0.0000],
             [0.5000, 0.5000]]])

    Raises:
        ValueError: if the calls of a module are not of one batch and number of heads: beams, or
            sentences that were finished and left
    """
    modules: dict[str, list[Call]] = {}
    for call in calls:
        modules.setdefault(call.name.partition("#")[0], []).append(call)
    return [_joined(name, steps) for name, steps in modules.items()]


def _joined(name: str, steps: list[Call]) -> Call:
    first = steps[0]
    leading = {step.shape[:-2] for step in steps}
    if len(leading) > 1:
        shapes = ", ".join(str(tuple(shape)) for shape in sorted(leading))
        raise ValueError(
            f"the calls of {name!r} are of different batches {shapes}, so they are not the steps "
            "of one decoder; decode one sentence at a time, and to see a beam, decode its output "
            "again by teacher forcing"
        )
    if len(steps) == 1:
        return first
    width = max(step.shape[-1] for step in steps)
    ends = list(accumulate(step.shape[-2] for step in steps))
    shape = (*first.shape[:-2], ends[-1], width)

    def rows(read: Callable[[Call, slice], Tensor]) -> Callable[[slice], Tensor]:
        def some(which: slice) -> Tensor:
            parts = []
            for step, end in zip(steps, ends, strict=True):
                begin = end - step.shape[-2]
                low, high = max(which.start, begin) - begin, min(which.stop, end) - begin
                if low < high:
                    part = read(step, slice(low, high))
                    parts.append(F.pad(part, (0, width - part.shape[-1])))
            return torch.cat(parts, dim=-2) if parts else torch.zeros(*shape[:-2], 0, width)

        return some

    scored = all(step.map._scores is not None for step in steps)
    map = AttentionMap(
        rows(lambda step, some: step.map[..., some, :]),
        rows(lambda step, some: step.map.scores[..., some, :]) if scored else None,
        shape,
    )
    about = {**first.provenance, "steps": len(steps)}
    about.pop("error", None)
    made_of = _made_of([step.made_of for step in steps])
    return replace(
        first, name=name, map=map, provenance=about, made_of=made_of, checked=lambda: _worst(steps)
    )


def _made_of(steps: list[Callable[[], Inputs] | None]) -> Callable[[], Inputs] | None:
    """The queries of all steps under one another; None unless they ask the same keys.

    Steps that ask a memory have keys of one shape; those that ask their own past do not.
    """
    known = [step for step in steps if step is not None]
    if len(known) < len(steps) or len({step().key.shape for step in known}) > 1:
        return None
    query = torch.cat([step().query for step in known], dim=-2)
    return lambda: known[0]()._replace(query=query)


def _worst(steps: list[Call]) -> float | None:
    """The largest error of the steps, None if one of them is unknown."""
    errors = [step.verify() for step in steps]
    known = [error for error in errors if error is not None]
    return max(known) if len(known) == len(errors) else None
