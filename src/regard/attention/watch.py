"""Who is told of attention while it happens: a trace that records it, an edit that changes it.

Nobody is, as a rule, and then a call pays for one look at `watching`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from regard.core.map import AttentionMap
from regard.core.request import Request

watching = 0
"""How many watchers there are, in any thread."""

_watchers: ContextVar[tuple["Watcher", ...]] = ContextVar("watchers", default=())
_lock = Lock()


class Report(NamedTuple):
    """A call of attention that happened, by reference: nothing is computed for it.

    `combine` takes the map's rows to the output's rows, as the call did: None if that cannot be
    repeated, since torch's own dropout came between.
    """

    value: Tensor  # (..., N, Dv)
    output: Tensor | None  # what the call gave, (..., M, Dv); None if it only wrote
    shape: tuple[int, ...]  # of the map, (..., M, N)
    path: str
    request: Request | Callable[[], Request] | None  # or what makes it; None if there was none
    map: Callable[[Request | None], AttentionMap]
    combine: Callable[[Request | None, Tensor, slice], Tensor] | None
    part: str = ""  # of the module: one step of a memory reads and writes
    tensors: tuple[tuple[str, Tensor], ...] = ()  # what a request yet to be made is made of


class Watcher(Protocol):
    """What is told of calls, and may change what they ask."""

    edits: bool

    def asked(self, request: Request) -> Request: ...

    def attended(self, report: Report) -> None: ...


def watchers() -> tuple[Watcher, ...]:
    """Who watches here; a compiled graph is not watched."""
    if not watching or torch.compiler.is_compiling():
        return ()
    return _watchers.get()


def edited(told: tuple[Watcher, ...]) -> bool:
    """Whether one of them changes calls."""
    return any(watcher.edits for watcher in told)


def asked(told: tuple[Watcher, ...], request: Request) -> Request:
    """The request as the watchers want it."""
    for watcher in told:
        request = watcher.asked(request) if watcher.edits else request
    return request


def tell(told: tuple[Watcher, ...], report: Report) -> None:
    """A call happened."""
    for watcher in told:
        watcher.attended(report)


def attended(
    told: tuple[Watcher, ...],
    request: Request,
    output: Tensor,
    path: str,
    map: Callable[[Request], AttentionMap],
) -> None:
    """A request was answered by weights · values."""
    shape = (*request.leading, request.queries, request.keys)
    tell(told, Report(request.value, output, shape, path, request, map, weigh))  # type: ignore


def weigh(request: Request | None, weights: Tensor, rows: slice) -> Tensor:
    """The outputs that a request makes from rows of its map."""
    assert request is not None
    return request.dropped(weights, rows) @ request.value.to(weights.dtype)


def whole(
    compute: Callable[[Request], Tensor],
    request: Request,
    *,
    path: str,
    map: Callable[[Request], AttentionMap],
    drops: bool,
) -> Tensor:
    """Compute a request by parts that nobody is told of, and tell of it as one call.

    Args:
        compute: the request to its output
        path: what to call the way in which it is computed
        map: the request to its map
        drops: whether there is dropout that the request does not know of
    """
    told = watchers()
    if not told:
        return compute(request)
    request = asked(told, request)
    with _told_to(()):
        output = compute(request)
    shape = (*request.leading, request.queries, request.keys)
    combine = None if drops else weigh
    tell(told, Report(request.value, output, shape, path, request, map, combine))  # type: ignore
    return output


@contextmanager
def watch(watcher: Watcher) -> Iterator[None]:
    """Tell a watcher of all calls in this thread until the block ends."""
    global watching
    with _lock:
        watching += 1
    try:
        with _told_to((*_watchers.get(), watcher)):
            yield
    finally:
        with _lock:
            watching -= 1


@contextmanager
def _told_to(told: tuple[Watcher, ...]) -> Iterator[None]:
    before = _watchers.get()
    _watchers.set(told)
    try:
        yield
    finally:
        _watchers.set(before)
