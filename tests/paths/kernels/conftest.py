"""Both ways to run a kernel: the compiled loops, and their twin in torch."""

import pytest

from regard.paths.kernels import compile as compiling


@pytest.fixture(params=["compiled", "twin"])
def way(request, monkeypatch):
    """The twin runs where the loops may not, as in a forked child."""
    if request.param == "twin":
        monkeypatch.setitem(compiling._state, "forked", True)
    else:
        pytest.importorskip("numba")
    return request.param
