"""For all tests: threads, hypothesis, runs of every task, and a real browser."""

import json
import multiprocessing
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
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


@pytest.fixture(scope="session")
def axe(request: pytest.FixtureRequest) -> str:
    """The code of axe-core, from the npm registry, kept in pytest's cache."""
    folder = Path(request.config.cache.mkdir("axe"))  # type: ignore[union-attr]
    file = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not file.is_file():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("axe-core is fetched by npm, which is not here")
        command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), "axe-core@4"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode:
            pytest.skip(f"axe-core could not be fetched: {json.dumps(done.stderr[-200:])}")
    return file.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def processes() -> Any:
    """A context of `multiprocessing` whose processes have imported what they need already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["regard.tasks.export", "regard.serving", "uvicorn"])
    return context


@pytest.fixture
def serve() -> Iterator[Callable[[Any], Any]]:
    """Run applications on free ports of this machine until the test ends."""
    from tests.loopback import serving

    with ExitStack() as running:
        yield lambda app: running.enter_context(serving(app))


TINY = {
    "translate": ("dates", ["data.count=40", "data.valid_count=3", "model.hidden=5"]),
    "classify": ("classify", ["data.count=40", "model.dim=5", "model.hidden=3"]),
    "pair": ("pair", ["data.count=20", "model.dim=8", "model.heads=2"]),
    "recommend": ("recommend", ["data.count=11", "data.catalogue=200", "model.dim=4"]),
    "graph": ("graph", ["data.name=generated", "data.count=50"]),
    "memory": ("memory", ["data.longest=2", "data.held_out=2", "model.slots=7", "model.hidden=5"]),
    "image": ("image", ["data.count=40", "model.dim=4", "model.heads=2", "model.layers=1"]),
    "language": ("language", ["data.count=60", "data.context=16", "model.dim=8", "model.heads=2"]),
    "hard": ("hard", ["data.count=50", "data.held_out=5", "model.dim=5"]),
}
ONE_STEP = ["training.steps=1", "training.epochs=", "training.threads=1"]
ONE_STEP += ["training.schedule=constant", "training.warmup=0"]


COPY = {
    "task": "translate",
    "data": {"name": "copy", "count": 64, "valid_count": 5, "test_count": 7, "sentences": 32},
    "model": {"kind": "luong", "embedding": 5, "hidden": 7},
    "training": {"steps": 2},
}


@pytest.fixture(scope="session")
def copy_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run directory of a small translator; do not write into it."""
    import regard
    from regard.training import Silent

    run = tmp_path_factory.mktemp("runs") / "copy"
    regard.train(COPY, run, progress=Silent())
    return run


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a small Hugging Face checkpoint of a kind; do not write into it."""
    pytest.importorskip("transformers", reason="needs transformers")
    from tests.checkpoints import write_checkpoint

    folder = tmp_path_factory.mktemp("checkpoints")

    def make(kind: str, seed: int = 1) -> Path:
        place = folder / (kind if seed == 1 else f"{kind}-{seed}")
        return place if place.exists() else write_checkpoint(kind, place, seed)

    return make


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the run directory of a task by name, trained for one step; do not write into it."""
    runs: dict[str, Path] = {}

    def make(task: str) -> Path:
        if task not in runs:
            import regard
            from regard.training import Silent

            recipe, settings = TINY[task]
            run = tmp_path_factory.mktemp("tiny") / task
            regard.train(recipe, run, settings=[*settings, *ONE_STEP], progress=Silent())
            runs[task] = run
        return runs[task]

    return make
