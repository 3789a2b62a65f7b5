"""A trace in the terminal."""

from regard.trace import Trace
from regard.visual.color import Palette
from regard.visual.terminal import heatmap

MOST = 8  # maps


def show(trace: Trace, *, width: int | None = None, color: Palette | None = None) -> str:
    """Draw the maps of a trace as text; of several heads, their mean.

    If texts meet in it, the maps between them are drawn and no others; at most eight.

    >>> import torch
    >>> trace = Trace.of_maps({"cross": torch.eye(2)}, queries=["le", "chat"], keys=["the", "cat"])
    >>> print(show(trace, color="plain"))
    cross
         the cat
      le @@@
    chat     @@@
    0 [ .:-=+*#%@] 1

    Args:
        trace: of one example
        width, color: as for `regard.visual.heatmap`

    Raises:
        ValueError: a trace of a batch, or without calls
    """
    if trace.batch == 1:
        trace = trace.of(0)
    if not trace.calls or any(call.batch is not None for call in trace.calls):
        raise ValueError(
            "a trace is shown one example at a time, with at least one attention call; "
            "choose one with trace.of(0)"
        )
    crossing = [call for call in trace.calls if {call.queries, call.keys} == {"target", "source"}]
    parts = []
    for call in (crossing or trace.calls)[:MOST]:
        heads = f", mean of {call.heads} heads" if call.heads > 1 else ""
        mean = call.map.dense().detach().mean(0)  # (M, N)
        picture = heatmap(mean, *trace.labels(call), width=width, color=color)
        parts.append(f"{call.name}{heads}\n{picture}")
    left = len(trace.calls) - len(parts)
    if left:
        parts.append(f"and {left} more: trace.select(NAME) chooses, trace.page(FILE) shows all")
    return "\n\n".join(parts)
