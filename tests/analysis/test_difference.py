"""The distance of heads is the share of the weight that moved."""

import pytest
import torch

from regard.analysis import head_differences
from regard.trace import Trace


def test_the_distance_is_the_formula_and_the_most_different_head_comes_first():
    torch.manual_seed(1)
    maps = [torch.randn(3, 5, 7).softmax(-1) for _ in range(2)]
    maps[1][1] = maps[0][1]
    traces = [
        Trace.of_maps({"cross": m}, queries=list("abcde"), keys=list("tuvwxyz")) for m in maps
    ]
    found = head_differences(*traces)
    for one in found:
        rows = [
            sum(abs(float(maps[0][one.head, i, j] - maps[1][one.head, i, j])) for j in range(7)) / 2
            for i in range(5)
        ]
        assert one.distance == pytest.approx(sum(rows) / 5, abs=1e-6)
        if one.head != 1:
            assert one.token == "abcde"[rows.index(max(rows))]
    assert [each.distance for each in found] == sorted((e.distance for e in found), reverse=True)
    assert found[-1][1:3] == (1, 0.0)


def test_traces_that_do_not_fit_are_errors():
    eye = Trace.of_maps({"self": torch.eye(3)}, queries=list("abc"))
    for other, message in (
        (Trace.of_maps({"other": torch.eye(3)}, queries=list("abc")), "same attention"),
        (Trace.of_maps({"self": torch.eye(3)}, queries=list("abd")), "other tokens"),
        (Trace.of_maps({"self": torch.eye(2)}, queries=list("ab")), "other tokens"),
        (Trace.of_maps({"self": torch.eye(3)[None, None]}, queries=list("abc")), "one example"),
    ):
        with pytest.raises(ValueError, match=message):
            head_differences(eye, other)
