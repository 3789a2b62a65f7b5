"""Faithfulness compares orders; a model that copies is found faithful, noise is not."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from regard.analysis import cross_attention, faithfulness, gradients, kendall, occlusion
from regard.models import build
from tests.recorded import recorded

SOURCE = torch.tensor([5, 7, 11, 4, 2])
TARGET = torch.tensor([1, 9, 8, 7, 2])


def model_of(kind: str):
    torch.manual_seed(3)
    sizes: dict = {"source_vocabulary": 13, "target_vocabulary": 11, "hidden": 6}
    sizes |= {"dim": 12, "heads": 3, "layers": 2} if kind == "transformer" else {"embedding": 5}
    return build(kind, **sizes).eval()


numbers = st.lists(st.integers(0, 5), min_size=2, max_size=11)


@given(numbers, st.randoms(use_true_random=False))
def test_kendall_is_that_of_scipy(a, random):
    stats = pytest.importorskip("scipy.stats", reason="needs scipy")
    b = [random.randint(0, 5) for _ in a]
    expected = stats.kendalltau(a, b).statistic
    found = kendall(torch.tensor(a), torch.tensor(b))
    assert math.isnan(found) if math.isnan(expected) else found == pytest.approx(expected)


def test_kendall_of_an_order_and_its_reverse():
    a = torch.tensor([3.0, 1.0, 4.0, 1.5])
    assert kendall(a, a) == pytest.approx(1.0)
    assert kendall(a, -a) == pytest.approx(-1.0)
    nan = torch.tensor([1.0, math.nan, 3.0])
    assert math.isnan(kendall(nan, torch.arange(3.0)))
    assert math.isnan(kendall(torch.arange(3.0), nan))
    with pytest.raises(ValueError, match="two lists of one length"):
        kendall(a, a[:2])


@pytest.mark.parametrize("kind", ["transformer", "luong", "bahdanau"])
def test_occlusion_replaces_one_token_at_a_time(kind):
    model = model_of(kind)
    found = occlusion(model, SOURCE, TARGET)
    assert found.shape == (4, 5)

    def log_probability(source: torch.Tensor) -> torch.Tensor:
        features = model.decode(model.encode(source[None]), TARGET[None, :-1])
        return model.output(features).log_softmax(-1)[0, range(4), TARGET[1:]]

    changed = SOURCE.clone()
    changed[2] = 3
    with torch.no_grad():
        expected = log_probability(SOURCE) - log_probability(changed)
    assert torch.allclose(found[:, 2], expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["transformer", "luong", "bahdanau"])
def test_gradients_are_the_slopes_of_finite_differences(kind):
    model = model_of(kind).double()
    found = gradients(model, SOURCE, TARGET)
    reader: nn.Module = model.source if kind == "transformer" else model.encoder.embedding
    direction = torch.zeros(1, 5, reader.dim, dtype=torch.float64)
    slopes = []
    for axis in range(reader.dim):
        ends = []
        for step in (1e-5, -1e-5):
            move = direction.clone()
            move[0, 2, axis] = step
            hook = reader.register_forward_hook(lambda _, __, out, move=move: out + move)
            with torch.no_grad():
                features = model.decode(model.encode(SOURCE[None]), TARGET[None, :-1])
                ends.append(model.output(features).log_softmax(-1)[0, range(4), TARGET[1:]])
            hook.remove()
        slopes.append((ends[0] - ends[1]) / 2e-5)
    expected = torch.stack(slopes).norm(dim=0)
    assert torch.allclose(found[:, 2], expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("kind", ["transformer", "luong", "bahdanau"])
def test_the_map_compared_is_the_mean_over_heads(kind):
    model = model_of(kind)
    with torch.no_grad():
        memory = model.encode(SOURCE[None])
        _, maps = recorded(model, lambda: model.decode(memory, TARGET[None, :-1]))
    cross = [map for name, map in maps.items() if kind != "transformer" or "memory" in name]
    found = cross_attention(model, SOURCE, TARGET)
    assert torch.allclose(found, torch.cat(cross, 1)[0].mean(0), atol=1e-6)


def test_a_map_made_of_the_truth_is_faithful_and_noise_is_not():
    model = model_of("luong")
    truth = occlusion(model, SOURCE, TARGET)
    found = faithfulness(model, SOURCE, TARGET, weights=truth)
    assert found.occlusion == pytest.approx(1.0)
    assert found.agreement == pytest.approx(found.gradient)
    assert abs(found.occlusion_control) < 0.9
    again = faithfulness(model, SOURCE, TARGET, weights=truth)
    assert again == found
    plain = faithfulness(model, SOURCE, TARGET)
    assert -1.0 <= plain.occlusion <= 1.0


def test_what_has_no_order_is_an_error():
    model = model_of("luong")
    with pytest.raises(ValueError, match="two tokens or more"):
        faithfulness(model, SOURCE[:1], TARGET)
    with pytest.raises(ValueError, match=r"should be \(4, 5\)"):
        faithfulness(model, SOURCE, TARGET, weights=torch.zeros(5, 5))
