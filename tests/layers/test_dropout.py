import math

import pytest
import torch
from torch import nn

from regard.layers import Dropout
from regard.layers.dropout import drop, mask


@pytest.mark.parametrize("probability", [0.01, 0.1, 0.3, 0.5, 0.9])
def test_the_share_of_zeros_is_the_probability(probability):
    torch.manual_seed(0)
    count = 500_000
    zeros = float((mask((count,), probability) == 0).double().mean())
    assert abs(zeros - probability) < 5 * math.sqrt(probability * (1 - probability) / count)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_what_is_kept_is_scaled_so_that_the_mean_stays(dtype):
    kept = drop(torch.full((11, 13), 0.7, dtype=dtype), 0.3, training=True)
    assert kept.dtype == dtype
    expected = torch.tensor(0.7, dtype=dtype) * torch.tensor(1 / 0.7, dtype=dtype)
    assert set(kept.flatten().tolist()) == {0.0, float(expected)}


def test_entries_do_not_depend_on_each_other():
    torch.manual_seed(1)
    count = 1 << 18
    first, second = ((mask((count,), 0.5) > 0).double() * 2 - 1 for _ in range(2))
    bound = 5 / math.sqrt(count)
    assert abs(float((first * second).mean())) < bound
    for lag in (1, 2, 3, 64, 127, 128, 4096):
        assert abs(float((first[lag:] * first[:-lag]).mean())) < bound
    columns = first.view(-1, 128).mean(0)  # no feature is dropped more often than another
    assert float(columns.abs().max()) < 5 / math.sqrt(count / 128)


def test_the_gradient_passes_where_the_value_does():
    x = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(3)
    y = drop(x, 0.4, training=True)
    y.sum().backward()
    assert torch.equal(x.grad == 0, y == 0)
    torch.testing.assert_close(x.grad[y != 0], torch.full_like(x.grad[y != 0], 1 / 0.6))


def test_the_same_seed_gives_the_same_mask_and_the_next_call_another():
    module, x = Dropout(0.5), torch.ones(11, 13)
    torch.manual_seed(5)
    first, next_one = module(x), module(x)
    torch.manual_seed(5)
    assert torch.equal(module(x), first)
    assert not torch.equal(first, next_one)


def test_eval_mode_and_a_probability_of_zero_change_nothing():
    x = torch.randn(3, 5)
    before = torch.get_rng_state()
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert torch.equal(torch.get_rng_state(), before)


def test_it_compiles_without_a_break():
    compiled = torch.compile(Dropout(0.5), backend="aot_eager", fullgraph=True)
    assert set(compiled(torch.ones(7, 11)).flatten().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3, 5, 7)])
def test_every_shape_is_kept(shape):
    assert drop(torch.ones(shape), 0.5, training=True).shape == shape


@pytest.mark.parametrize("probability", [-0.1, 1.0, float("nan")])
def test_invalid_probabilities_raise(probability):
    with pytest.raises(ValueError, match="dropout should be at least 0"):
        Dropout(probability)


def test_no_module_uses_the_slow_one():
    from regard.models import KINDS, build

    for kind in KINDS:
        sizes = {"vocabulary": 7} if kind == "language" else {"source_vocabulary": 7}
        if kind != "language":
            sizes["target_vocabulary"] = 7
        model = build(kind, "tiny", **sizes)
        assert not any(isinstance(module, nn.Dropout) for module in model.modules())
