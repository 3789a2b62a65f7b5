"""Forked child processes: they have none of their parent's threads, for which OpenMP would wait."""

import os

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
