"""Small pieces, so that small inputs cross their borders."""

import pytest

from regard.paths import linear as linear_path


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 4 positions and pieces of 3 blocks at 6 heads: small inputs cross borders."""
    monkeypatch.setattr(linear_path, "BLOCK", 4)
    monkeypatch.setattr(linear_path, "ROWS", 72)
