"""What a forked child must do before it computes."""

import os

import torch

_process = os.getpid()


def limit_threads_after_fork() -> None:
    """In a forked child, go on with one thread: OpenMP waits for threads only the parent has."""
    global _process
    if not torch.compiler.is_compiling() and os.getpid() != _process:
        _process = os.getpid()
        torch.set_num_threads(1)
