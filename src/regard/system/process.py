"""Forked child processes: they have none of their parent's threads, for which OpenMP would wait."""

import multiprocessing
import os
import warnings
from collections.abc import Callable, Sequence

import torch

_forked = False
_limited = True  # whether this process needs no limit, or has it already


def _after_fork() -> None:
    global _forked, _limited
    _forked, _limited = True, False


os.register_at_fork(after_in_child=_after_fork)


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

    Raises:
        ValueError, OSError: what the function raised
    """
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    count = min(len(numbers), processors)
    if count < 2:
        for number in numbers:
            work(number)
        return
    context = multiprocessing.get_context("fork")
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
