"""Real data, where there is any."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def real_data() -> Path:
    """The data folder: REGARD_DATA, or one beside the project."""
    beside = Path(__file__).parents[3] / "shared" / "data"
    folder = Path(os.environ.get("REGARD_DATA", beside))
    if not (folder / "multi30k" / "train.en.gz").is_file():
        pytest.skip("needs real data: set REGARD_DATA to a folder that has multi30k in it")
    return folder
