"""How much memory a layer takes at its peak."""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PROCESS = Path("/proc/self")


@pytest.fixture
def peak_memory() -> Callable:
    """A context that gives a function: by how many bytes memory grew at its peak.

    It is measured by the system, so memory of compiled kernels counts too.
    """
    if not sys.platform.startswith("linux"):
        pytest.skip("peak memory is measured on Linux only")

    def status(name: str) -> int:
        text = (PROCESS / "status").read_text()
        return 1024 * int(text.split(f"{name}:")[1].split()[0])

    @contextmanager
    def measured() -> Iterator[list[int]]:
        gc.collect()
        (PROCESS / "clear_refs").write_text("5")  # the peak starts again from here
        before, peak = status("VmRSS"), []
        yield peak
        peak.append(status("VmHWM") - before)

    return measured
