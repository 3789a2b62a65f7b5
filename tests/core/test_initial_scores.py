"""What scores are before training: spread out, centred, not saturated."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

import regard


@pytest.mark.parametrize("d", [16, 64, 257])
def test_dividing_by_the_root_of_d_keeps_the_variance_at_one(d: int) -> None:
    torch.manual_seed(0)
    query, key = torch.randn(300, d), torch.randn(300, d)
    assert float(regard.ScaledDot()(query, key).var()) == pytest.approx(1, rel=0.1)
    assert float(regard.Dot()(query, key).var()) == pytest.approx(d, rel=0.1)


PARAMETRIC: dict[str, Callable[[int, int], nn.Module]] = {
    "general": regard.General,
    "biased_general": regard.BiasedGeneral,
    "activated_general": regard.ActivatedGeneral,
    "additive": lambda q, k: regard.Additive(q, k, 128),
    "concat": lambda q, k: regard.Concat(q, k, 128),
    "location": lambda q, k: regard.Location(q, 100),
}


@pytest.mark.parametrize("name", PARAMETRIC)
def test_initial_weights_are_random_and_centred_and_biases_zero(name: str) -> None:
    torch.manual_seed(0)
    module, other = PARAMETRIC[name](96, 160), PARAMETRIC[name](96, 160)
    for key, tensor in module.state_dict().items():
        if key == "bias":
            assert torch.count_nonzero(tensor) == 0
            continue
        assert not torch.equal(tensor, other.state_dict()[key])
        assert abs(float(tensor.mean())) < 4 * float(tensor.std()) / math.sqrt(tensor.numel())


@pytest.mark.parametrize("dim", [8, 32, 512])
@pytest.mark.parametrize("name", PARAMETRIC)
def test_untrained_scores_tell_keys_apart_but_saturate_nothing(name: str, dim: int) -> None:
    torch.manual_seed(0)
    scores = PARAMETRIC[name](dim, dim)(torch.randn(50, dim), torch.randn(60, dim))
    assert 0.25 < float(scores.detach().std(dim=-1).mean()) < 2.0


def test_a_cosine_begins_with_the_sharpness_it_was_given() -> None:
    assert regard.Cosine(5.0).beta.item() == 5.0
    assert regard.Cosine().beta.requires_grad
