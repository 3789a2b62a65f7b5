"""Small pieces, so that small inputs cross their borders."""

import pytest

from regard.paths import linear_sweep


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 4 positions and pieces of 3 blocks at 6 heads: small inputs cross borders."""
    monkeypatch.setattr(linear_sweep, "BLOCK", 4)
    monkeypatch.setattr(linear_sweep, "SHORT", 3)
    monkeypatch.setattr(linear_sweep, "ROWS", 72)
