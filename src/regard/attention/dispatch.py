"""The one way of every attention call: edit, choose, zero what is hidden, compute, notify.

`attend` and its relatives, and each layer that computes attention itself, make a `Request` and
hand it to `dispatch` with what computes it. A step that is quicker than making a request hands over
a function that makes it, for edits and maps only. ARCHITECTURE.md lists the calls that go around.
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from regard.attention import observer
from regard.attention.record import CallRecord
from regard.core.lower import freeze
from regard.core.map import AttentionMap
from regard.core.request import Request
from regard.paths.additive import with_kernel
from regard.paths.choice import PATHS, choose
from regard.system.process import limit_threads_after_fork


class Attended(NamedTuple):
    """The context, and the map that made it."""

    output: Tensor
    map: AttentionMap

    def __repr__(self) -> str:
        sizes = ", ".join(map(str, self.output.shape))
        return f"Attended(output=Tensor({sizes}), map={self.map!r})"

    def _repr_html_(self) -> str:
        return self.map._repr_html_()


class Computation(NamedTuple):
    """How a request is computed.

    `combine` maps rows of the map to rows of the output, as `compute` does; None if that cannot be
    repeated, because of dropout that the request does not contain.
    """

    path: str
    compute: Callable[[Request], Tensor]
    map: Callable[[Request], AttentionMap]
    combine: Callable[[Request, Tensor, slice], Tensor] | None
    zeroes_hidden: bool = False  # whether `compute` keeps hidden NaN out; else dispatch zeroes them
    features: int | None = None  # of a map (..., features, M, N), if there is one for each
    weights: Callable[[], Tensor] | None = None  # the weights that `compute` made, if it did


def map_of(request: Request) -> AttentionMap:
    """The lazy map of a request: with the noise, mask and parameters that made the output."""
    held = with_kernel(freeze(request.zero_hidden()))

    def scores(rows: slice) -> Tensor:
        bias = None if held.bias is None else held.bias[..., rows, :]
        return held.scores(held.query[..., rows, :], bias)

    def weights(rows: slice) -> Tensor:
        return held.weights(scores(rows), rows).to(request.value.dtype)

    return request.lazy_map(weights, scores)


def weigh(request: Request, weights: Tensor, rows: slice) -> Tensor:
    """Dropout of the weights, times the values."""
    output = request.apply_dropout(weights, rows) @ request.value.to(weights.dtype)
    return request.edited(output, rows)


def by_path(request: Request, path: str = "auto") -> Computation:
    """The computation of a request by the path that the rules choose, or by one given by name."""
    name, _ = choose(request, path)
    compute, _, zeroes_hidden = PATHS[name]
    return Computation(name, compute, map_of, weigh, zeroes_hidden(request))


def dispatch(
    request: Request | Callable[[], Request],
    computation: Callable[[Request], Computation] | Computation,
    *,
    inputs: tuple[Tensor, Tensor, Tensor] | None = None,
    return_map: bool = False,
) -> Tensor | Attended:
    """Compute a request, and notify observers of it as one call.

    Args:
        request: with queries (..., M, Dq), keys (..., N, Dk) and values (..., N, Dv); or what makes
            it, if `compute` does not need it
        computation: how to compute it, or what decides that from the request as observers edited it
        inputs: query, key and value of a request that is yet to be made

    Returns: the output (..., M, Dv), or `Attended(output, map)`
    """
    limit_threads_after_fork()
    listening = observer.observers() if observer.observing else ()
    if not isinstance(request, Request):
        assert isinstance(computation, Computation)
        assert inputs is not None
        if not observer.any_edits(listening):
            output = computation.compute(None)  # type: ignore[arg-type]
            if listening:
                query, key, value = inputs
                shape = (*query.shape[:-1], key.shape[-2])
                named = (("query", query), ("key", key), ("value", value))
                observer.notify(
                    listening, _record(request, value, output, shape, computation, named)
                )
            return Attended(output, computation.map(request().retained())) if return_map else output
        request, computation = request(), by_path  # `compute` does not know of edits
    if listening:
        request = observer.edit_request(listening, request)
    request = request.seeded()
    chosen = computation if isinstance(computation, Computation) else computation(request)
    if not chosen.zeroes_hidden:
        request = request.zero_hidden()
    if listening:
        with observer.unobserved():
            output = _expanded(chosen.compute(request), request)
        output = request.edited(output, request.rows)
        features = () if chosen.features is None else (chosen.features,)
        shape = (*request.leading, *features, *request.size)
        record = _record(request, request.value, output, shape, chosen)
        record.has_batch = request.has_batch
        observer.notify(listening, record)
    else:
        output = _expanded(chosen.compute(request), request)
    return Attended(output, chosen.map(request.retained())) if return_map else output


def _expanded(output: Tensor, request: Request) -> Tensor:
    """The output with all leading dimensions: a score may ignore those of the keys."""
    if output.shape[:-2] == request.leading:
        return output
    return output.expand(*request.leading, *output.shape[-2:]).contiguous()


def _record(
    source: Request | Callable[[], Request],
    value: Tensor,
    output: Tensor,
    shape: tuple[int, ...],
    chosen: Computation,
    tensors: tuple[tuple[str, Tensor], ...] = (),
) -> CallRecord:
    weights = None if chosen.weights is None else chosen.weights()
    return CallRecord(
        value,
        output,
        shape,
        chosen.path,
        source,
        chosen.map,
        chosen.combine,
        tensors=tensors,
        weights=weights,
    )
