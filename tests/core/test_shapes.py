"""Broadcasting of shapes, against torch's."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.core.shapes import broadcast

SHAPES = st.lists(st.lists(st.sampled_from([0, 1, 2, 3]), max_size=4).map(tuple), min_size=1)


@given(SHAPES)
def test_shapes_broadcast_as_in_torch(shapes: list[tuple[int, ...]]):
    try:
        wanted = torch.broadcast_shapes(*shapes)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            broadcast(*shapes)
    else:
        assert broadcast(*shapes) == wanted
