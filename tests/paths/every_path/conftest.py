"""Inputs of several blocks."""

import pytest

from regard.core import blocks
from regard.paths import block_sparse, products
from tests.paths.every_path.cases import B, H, N


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block border every few rows, and the flash kernels for small maps, as for large ones."""
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 5 * B * H * N)
    monkeypatch.setattr(block_sparse, "SIZE", 4)
    monkeypatch.setattr(products, "SMALL", (1, 0))
