"""Both ways to run a kernel: the compiled loops, and their torch version."""

import pytest

from regard.system import process


@pytest.fixture(params=["compiled", "torch"])
def way(request, monkeypatch):
    """The torch version runs where the loops may not, as in a forked child."""
    if request.param == "torch":
        monkeypatch.setattr(process, "_forked", True)
    else:
        pytest.importorskip("numba")
    return request.param
