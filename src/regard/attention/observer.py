"""Observers of attention: a trace that records calls, an edit that changes them.

An observer sees every attention call made in its own thread between `observe(observer)` and the
end of the block. Without one, a call costs one look at `observing`.

>>> import regard
>>> x = torch.randn(2, 3, 4)
>>> with record() as calls:
...     output = regard.attend(x, x, x)
>>> [(call.path, call.shape) for call in calls]
[('reference', (2, 3, 3))]
>>> torch.allclose(calls[0].map.dense() @ x, output, atol=1e-6)
True
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import wraps
from threading import Lock
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar

import torch
from torch import nn

from regard.attention.record import CallRecord
from regard.core.request import Request

observing = 0
"""The number of active observers, in all threads."""

_observers: ContextVar[tuple["Observer", ...]] = ContextVar("observers", default=())
calling_module: ContextVar[nn.Module | None] = ContextVar("calling_module", default=None)
"""The module that is making attention calls now; None outside of methods with `@observed`."""

_lock = Lock()


class Observer(Protocol):
    """Receives attention calls, and may change their requests before they run."""

    edits: bool
    """Whether `edit` changes requests; then no call takes a shortcut around it."""
    gradients: bool
    """Whether it needs gradients of outputs; then each output is the one that the model uses."""

    def edit(self, request: Request) -> Request:
        """Return the request to compute instead; called only if `edits`."""
        ...

    def reject(self, reason: str) -> None:
        """Raise if the current call should be edited, which its code does not support."""
        ...

    def notify(self, call: CallRecord) -> None:
        """Receive a finished call."""
        ...


class Recorder:
    """An observer that keeps every call, in order."""

    edits = False
    gradients = False

    def __init__(self) -> None:
        self.calls: list[CallRecord] = []

    def edit(self, request: Request) -> Request:
        return request

    def reject(self, reason: str) -> None: ...

    def notify(self, call: CallRecord) -> None:
        self.calls.append(call)


def observers() -> tuple[Observer, ...]:
    """The observers of this thread; none inside a compiled graph."""
    return _observers.get() if observing and not _compiling() else ()


def _compiling() -> bool:
    """Whether Python code is compiled; while a graph is exported it runs as it is."""
    return torch.compiler.is_compiling() and not torch.compiler.is_exporting()


def any_edits(listening: tuple[Observer, ...]) -> bool:
    """Whether one of the observers changes requests."""
    return any(observer.edits for observer in listening)


def any_gradients(listening: tuple[Observer, ...]) -> bool:
    """Whether one of the observers needs gradients."""
    return any(observer.gradients for observer in listening)


def edit_request(listening: tuple[Observer, ...], request: Request) -> Request:
    """The request after the edits of all observers."""
    for observer in listening:
        request = observer.edit(request) if observer.edits else request
    return request


def reject_edit(listening: tuple[Observer, ...], reason: str) -> None:
    """Raise if an observer would edit this call, whose code cannot be edited."""
    for observer in listening:
        if observer.edits:
            observer.reject(reason)


def notify(listening: tuple[Observer, ...], call: CallRecord) -> None:
    """Notify observers of a finished call, with the module that made it."""
    call.module = calling_module.get()
    for observer in listening:
        observer.notify(call)


Module = TypeVar("Module", bound=nn.Module)
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Value = TypeVar("Value")


def observed(
    method: Callable[Concatenate[Module, Arguments], Result],
) -> Callable[Concatenate[Module, Arguments], Result]:
    """Decorate a method of an attention module: observers learn which module made its calls.

    Torch's hooks run for `forward` only, and switch some of torch's fast paths off.
    """

    @wraps(method)
    def call(self: Module, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if not observing or _compiling():
            return method(self, *args, **kwargs)
        token = calling_module.set(self)
        try:
            return method(self, *args, **kwargs)
        finally:
            calling_module.reset(token)

    # a code object of its own: torch.compile limits the number of graphs for each
    call.__code__ = call.__code__.replace(co_name=method.__name__)  # type: ignore[attr-defined]
    return call


class _Set(Generic[Value]):
    """Sets a context variable inside a block; quicker than a generator."""

    def __init__(self, variable: ContextVar[Value], value: Value) -> None:
        self.variable, self.value = variable, value

    def __enter__(self) -> None:
        self.before = self.variable.get()
        self.variable.set(self.value)

    def __exit__(self, *_: object) -> None:
        self.variable.set(self.before)


def calling(module: nn.Module | None) -> AbstractContextManager[None]:
    """Attribute the calls inside the block to a module."""
    return _Set(calling_module, module)


def unobserved(instead: tuple[Observer, ...] = ()) -> AbstractContextManager[None]:
    """Notify no one, or others, of the calls inside the block: parts of an observed call."""
    return _Set(_observers, instead)


@contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """Notify an observer of all calls in this thread until the block ends."""
    global observing
    with _lock:
        observing += 1
    try:
        with unobserved((*_observers.get(), observer)):
            yield
    finally:
        with _lock:
            observing -= 1


@contextmanager
def record() -> Iterator[list[CallRecord]]:
    """Record the calls of this thread, in order, until the block ends."""
    recorder = Recorder()
    with observe(recorder):
        yield recorder.calls
