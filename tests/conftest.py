"""Two test processes on two cores: each keeps to its share of the threads."""

import os

import torch
from hypothesis import settings

if "PYTEST_XDIST_WORKER_COUNT" in os.environ:
    share = (os.cpu_count() or 1) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    torch.set_num_threads(max(1, share))

# A shared machine pauses at any moment, so no example is judged by the clock; the examples are the
# same in every run, so that a failure is a failure everywhere.
settings.register_profile("regard", deadline=None, derandomize=True)
settings.load_profile("regard")
