"""Maps of several blocks."""

import pytest

from regard.core import blocks
from tests.core.map.maps import B, H, N


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows to a block, so that small maps have several."""
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 4 * 2 * B * H * N)
