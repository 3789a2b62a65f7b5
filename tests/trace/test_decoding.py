"""The maps that capture records of a search are those that the search returns."""

import pytest
import torch

import regard
from regard.decoding import Limits, beam, greedy
from regard.models import build

SOURCE = torch.tensor([[5, 7, 11, 3, 4]])
LIMITS = Limits(ratio=1.0, extra=3)


def model_of(kind: str):
    torch.manual_seed(5)
    sizes: dict = {"source_vocabulary": 13, "target_vocabulary": 11, "hidden": 6}
    sizes |= {"dim": 12, "heads": 3, "layers": 2} if kind == "transformer" else {"embedding": 5}
    return build(kind, **sizes).eval()


@pytest.mark.parametrize("kind", ["transformer", "luong", "bahdanau", "gnmt"])
def test_greedy_search_is_stitched_to_its_own_maps(kind):
    model = model_of(kind)
    (expected,) = greedy(model, SOURCE, limits=LIMITS, return_map=True)
    with regard.capture(model) as trace:
        (found,) = greedy(model, SOURCE, limits=LIMITS)
    assert found.tokens == expected.tokens
    one = trace.stitched().of(0)
    for name, map in expected.maps.items():
        assert torch.allclose(one[name].map.dense(), map, atol=1e-5)
        assert (one[name].queries, one[name].keys) == ("target", "source")


@pytest.mark.parametrize("kind", ["transformer", "luong"])
def test_a_beam_is_seen_by_teaching_the_model_its_own_output(kind):
    model = model_of(kind)
    ((best, *_),) = beam(model, SOURCE, size=3, limits=LIMITS, return_map=True)
    before = torch.tensor([[1, *best.tokens[:-1]]])
    with regard.capture(model) as trace, torch.no_grad():
        model.decode(model.encode(SOURCE), before)
    one = trace.stitched().of(0)
    for name, map in best.maps.items():
        assert torch.allclose(one[name].map.dense(), map, atol=1e-5)
