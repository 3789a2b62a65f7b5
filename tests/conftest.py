"""For all tests: threads, hypothesis, and a real browser."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import settings

# Two test processes on two cores: each uses its share of the threads.
if "PYTEST_XDIST_WORKER_COUNT" in os.environ:
    share = (os.cpu_count() or 1) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    torch.set_num_threads(max(1, share))

# A shared machine pauses at any moment, so no example has a deadline; the examples are the same in
# every run, so that a failure is a failure everywhere.
settings.register_profile("regard", deadline=None, derandomize=True)
settings.load_profile("regard")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make browser` runs."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium; one for all tests, since a process can drive one at a time."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()
