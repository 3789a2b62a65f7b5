"""Inputs of several blocks."""

import pytest

from regard.core import blocks
from regard.paths import block_sparse
from tests.paths.every_path.cases import B, H, N


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block border every few rows, so that small inputs cross several."""
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 5 * B * H * N)
    monkeypatch.setattr(block_sparse, "SIZE", 4)
