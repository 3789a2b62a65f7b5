"""Heads that show a pattern are found by it, and no other head is."""

import pytest
import torch

from regard.analysis import head_patterns
from regard.trace import Trace

TOKENS = ["<s>", "a", "b", "c", "a", "b", "c"]
N = len(TOKENS)


def shifted(offset: int) -> torch.Tensor:
    """Each query attends to the key at an offset, or to itself if there is none."""
    map = torch.zeros(N, N)
    for query in range(N):
        map[query, query + offset if 0 <= query + offset < N else query] = 1.0
    return map


def heads() -> torch.Tensor:
    first = torch.zeros(N, N)
    first[:, 0] = 1.0
    induction = torch.full((N, N), 1 / N)
    for query, key in ((4, 2), (5, 3), (6, 4)):
        induction[query] = torch.eye(N)[key]
    return torch.stack([shifted(-1), torch.eye(N), first, induction, torch.full((N, N), 1 / N)])


def test_each_pattern_is_found_in_the_head_that_shows_it():
    trace = Trace.of_maps({"layer": heads()}, queries=TOKENS)
    best = {each.pattern: each for each in reversed(head_patterns(trace, count=1))}
    assert {name: each.head for name, each in best.items()} == {
        "previous token": 0, "same token": 1, "first token": 2, "induction": 3,
        "widest": 4, "sharpest": 0,
    }  # fmt: skip
    for name in ("previous token", "same token", "first token", "induction"):
        assert best[name].value == pytest.approx(1.0)
    assert best["widest"].value == pytest.approx(torch.tensor(float(N)).log().item())


def test_of_cross_attention_only_the_width_is_measured_and_head_numbers_are_the_models():
    trace = Trace.of_maps({"cross": torch.rand(3, 2, N)}, queries=["x", "y"], keys=TOKENS)
    assert {each.pattern for each in head_patterns(trace)} == {"widest", "sharpest"}
    chosen = Trace.of_maps({"layer": heads()}, queries=TOKENS).select(heads=[2, 3])
    assert {each.head for each in head_patterns(chosen)} == {2, 3}


def test_without_a_repeated_token_there_is_no_induction_and_a_batch_is_an_error():
    trace = Trace.of_maps({"layer": heads()}, queries=list("abcdefg"))
    assert "induction" not in {each.pattern for each in head_patterns(trace)}
    batch = Trace.of_maps({"layer": heads()[None]}, queries=TOKENS)
    with pytest.raises(ValueError, match="one example"):
        head_patterns(batch)
