import pytest
import torch
from torch import nn

from regard.layers import FeedForward


def test_it_is_equation_2_of_the_paper():
    layer = FeedForward(5, 11).double()
    x = torch.randn(2, 3, 5, dtype=torch.float64)
    hidden = x @ layer.inner.weight.T + layer.inner.bias
    expected = hidden.clamp(min=0) @ layer.outer.weight.T + layer.outer.bias
    torch.testing.assert_close(layer(x), expected)


def test_every_position_is_on_its_own():
    layer = FeedForward(5, 11)
    x = torch.randn(2, 3, 5)
    changed = x.clone()
    changed[0, 1] = 7.0
    same = torch.ones(2, 3, dtype=torch.bool)
    same[0, 1] = False
    assert torch.equal(layer(x)[same], layer(changed)[same])
    assert not torch.equal(layer(x)[0, 1], layer(changed)[0, 1])


@pytest.mark.parametrize("activation", [nn.functional.gelu, nn.PReLU(init=0.3)])
def test_the_activation_is_any_function_or_module(activation):
    layer = FeedForward(5, 11, activation=activation)
    x = torch.randn(3, 5)
    torch.testing.assert_close(layer(x), layer.outer(activation(layer.inner(x))))
    assert ("activation.weight" in layer.state_dict()) == isinstance(activation, nn.Module)


def test_dropout_falls_on_hidden_units_in_train_mode_only():
    layer = FeedForward(5, 101, dropout=0.5)
    nn.init.ones_(layer.inner.weight)
    nn.init.zeros_(layer.inner.bias)
    nn.init.ones_(layer.outer.weight)
    nn.init.zeros_(layer.outer.bias)
    x = torch.ones(7, 5)  # every hidden unit is 5, and 10 if it is kept
    outputs = layer(x)
    torch.testing.assert_close(outputs, (outputs / 10).round() * 10)
    assert len(outputs[:, 0].unique()) > 1
    assert torch.equal(outputs, outputs[:, :1].expand(7, 5))
    assert torch.equal(layer.eval()(x), torch.full((7, 5), 505.0))


def test_gradients_are_right():
    layer = FeedForward(2, 3, activation=torch.tanh).double()
    x = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, x)


def test_bad_sizes_are_errors():
    with pytest.raises(ValueError, match="hidden must be 1 or more, got 0"):
        FeedForward(5, 0)
    with pytest.raises(ValueError, match=r"dropout should be at least 0 .*got 1\.0"):
        FeedForward(5, 7, dropout=1.0)
