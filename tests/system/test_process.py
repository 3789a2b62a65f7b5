"""Forked children, in which OpenMP would wait for threads that only the parent has."""

import os

import torch

from regard.system import process


def test_a_forked_child_knows_it_and_uses_one_thread():
    assert not process.in_forked_child()
    before = torch.get_num_threads()
    child = os.fork()
    if child == 0:
        good = process.in_forked_child()
        process.limit_threads_after_fork()
        os._exit(0 if good and torch.get_num_threads() == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    process.limit_threads_after_fork()
    assert torch.get_num_threads() == before
    assert not process.in_forked_child()
