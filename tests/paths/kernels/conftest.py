"""Both ways to run a kernel: the compiled loops, and the formula."""

import pytest

from regard.system import process


@pytest.fixture(params=["compiled", "formula"])
def way(request, monkeypatch):
    """The formula runs where the loops may not, as in a forked child."""
    if request.param == "formula":
        monkeypatch.setattr(process, "_forked", True)
    else:
        pytest.importorskip("numba")
    return request.param
