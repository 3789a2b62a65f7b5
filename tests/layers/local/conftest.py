"""Small chunks, so that small inputs cross their borders."""

import pytest

from regard.core import blocks
from regard.layers import windows
from regard.paths import choice


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Borders of chunks and blocks every few rows, so that small inputs cross several."""
    monkeypatch.setattr(windows, "CHUNK", 5)
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 2000)
    monkeypatch.setattr(choice, "TINY", 0)
