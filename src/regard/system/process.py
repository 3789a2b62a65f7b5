"""Forked child processes: they have none of their parent's threads, for which OpenMP would wait."""

import warnings
from collections.abc import Callable, Sequence

import torch

from regard.system.posix import after_fork, fork_context, processors

_forked = False
_limited = True  # whether this process needs no limit, or has it already


def _after_fork() -> None:
    global _forked, _limited
    _forked, _limited = True, False


after_fork(_after_fork)


def in_forked_child() -> bool:
    """Whether this process was forked after regard was imported."""
    return _forked


def limit_threads_after_fork() -> None:
    """Make torch use a single thread in a forked child."""
    global _limited
    if not torch.compiler.is_compiling() and not _limited:
        _limited = True
        torch.set_num_threads(1)


def in_processes(work: Callable[[int], None], numbers: Sequence[int]) -> None:
    """Call a function for each number, in as many forked processes as there are processors.

    On a system that cannot fork, this process does all of it.

    Raises:
        ValueError, OSError: what the function raised
    """
    context = fork_context()
    count = min(len(numbers), processors())
    if context is None or count < 2:
        for number in numbers:
            work(number)
        return
    failures = context.SimpleQueue()

    def run(own: Sequence[int]) -> None:
        try:
            for number in own:
                work(number)
        except (ValueError, OSError) as error:
            failures.put((isinstance(error, ValueError), str(error)))

    children = [context.Process(target=run, args=(numbers[n::count],)) for n in range(count)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that there are threads
        for child in children:
            child.start()
    for child in children:
        child.join()
    if not failures.empty():
        wrong_value, message = failures.get()
        raise ValueError(message) if wrong_value else OSError(message)
    if any(child.exitcode for child in children):
        raise OSError("a process ended before its work was done")
