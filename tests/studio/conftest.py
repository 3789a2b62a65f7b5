"""A studio on loopback, with runs of several tasks below its folders."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regard.studio import create_studio


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of attention that copies letters, and one without attention."""
    import regard
    from regard.training import Silent

    folder = tmp_path_factory.mktemp("runs")
    short = ["data.count=1600", "data.valid_count=20", "data.test_count=20", "data.sentences=20"]
    short += ["training.epochs=2", "training.lr=0.01", "training.threads=1", "training.keep=9"]
    small = ["model.hidden=24", "model.embedding=16"]
    for name, kind in (("letters", "luong"), ("without", "plain")):
        settings = [*short, *small, f"model.kind={kind}"]
        regard.train("copy", folder / name, settings=settings, progress=Silent())
    return folder


@pytest.fixture
def home(trained: Path, tmp_path: Path) -> Path:
    """A copy of the folder, to which a test may write."""
    return Path(shutil.copytree(trained, tmp_path / "runs"))


@pytest.fixture
def client(serve: Callable[[Any], Any], home: Path) -> Any:
    return serve(create_studio([], home=home))
