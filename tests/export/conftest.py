"""A small run to export, and its export."""

from pathlib import Path

import pytest

import regard
from regard.tasks.export import export


@pytest.fixture(scope="session")
def transformer_run(tmp_path_factory) -> Path:
    """A Transformer that has learned dates a little."""
    from regard.training import Silent

    run = tmp_path_factory.mktemp("export") / "dates"
    settings = ["data.count=300", "data.valid_count=20", "model.kind=transformer"]
    settings += ["model.preset=tiny", "model.layers=1", "model.dim=16", "model.heads=2"]
    settings += ["training.steps=60", "training.epochs=", "training.threads=1"]
    settings += ["training.schedule=constant", "training.warmup=0"]
    regard.train("dates", run, settings=settings, progress=Silent())
    return run


@pytest.fixture(scope="session")
def exported(transformer_run) -> Path:
    return export(transformer_run, "ctranslate2", transformer_run.with_name("exported"))
