import pytest
import torch
import torch.nn.functional as F
from torch import nn

from regard.training import vocabulary_loss
from regard.training.vocabulary import CELLS

N, D, V = 7, 5, 11


def problem(dtype=torch.float64, n=N, v=V):
    generator = torch.Generator().manual_seed(2)
    features, weight, bias = (
        torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_()
        for shape in ((n, D), (v, D), (v,))
    )
    return features, weight, bias, torch.randint(v, (n,), generator=generator)


def textbook(features, weight, bias, targets, smoothing):
    scores = F.linear(features, weight, bias)
    return F.cross_entropy(scores, targets, label_smoothing=smoothing, reduction="sum")


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("rows", [1, 3, 100])
def test_value_and_gradient_are_those_of_torch(monkeypatch, smoothing, with_bias, rows):
    monkeypatch.setattr("regard.training.vocabulary.CELLS", rows * V)
    features, weight, bias, targets = problem()
    bias = bias if with_bias else None
    inputs = [x for x in (features, weight, bias) if x is not None]
    ours = vocabulary_loss(features, weight, bias, targets, label_smoothing=smoothing)
    theirs = textbook(features, weight, bias, targets, smoothing)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    for mine, other in zip(
        torch.autograd.grad(3 * ours, inputs), torch.autograd.grad(3 * theirs, inputs), strict=True
    ):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-12)


def test_a_weight_that_is_also_the_embedding_gets_both_gradients():
    _, weight, bias, targets = problem()
    ids = torch.arange(N)
    inputs = (weight, bias)
    ours = vocabulary_loss(F.embedding(ids, weight), weight, bias, targets, label_smoothing=0.1)
    theirs = textbook(F.embedding(ids, weight), weight, bias, targets, 0.1)
    for mine, other in zip(
        torch.autograd.grad(ours, inputs), torch.autograd.grad(theirs, inputs), strict=True
    ):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-12)


def test_what_is_frozen_gets_no_gradient_and_the_rest_does():
    features, weight, bias, targets = problem()
    vocabulary_loss(features, weight.detach(), bias, targets).backward()
    assert weight.grad is None
    expected = torch.autograd.grad(textbook(features, weight, bias, targets, 0.0), features)[0]
    torch.testing.assert_close(features.grad, expected)


def test_without_gradients_it_is_the_same_number():
    features, weight, bias, targets = problem()
    with torch.no_grad():
        value = vocabulary_loss(features, weight, bias, targets)
    torch.testing.assert_close(value, textbook(features, weight, bias, targets, 0.0))
    assert not value.requires_grad


def test_large_scores_stay_finite():
    features, weight, bias, targets = problem(torch.float32)
    loss = vocabulary_loss(1e4 * features, weight, bias, targets)
    loss.backward()
    assert loss.isfinite()
    assert features.grad.isfinite().all()


def test_no_row_is_no_loss():
    features, weight, bias, targets = problem()
    assert vocabulary_loss(features[:0], weight, bias, targets[:0]) == 0.0


def test_all_scores_are_never_there_at_once():
    """Between them, forward and backward hold a chunk, and the gradients."""
    n, v = 701, 5003
    assert n * v > 3 * CELLS
    features, weight, bias, targets = problem(torch.float32, n, v)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                largest = max(largest, out.numel())
            return out

    with Watch():
        vocabulary_loss(features, weight, bias, targets).backward()
    assert largest <= CELLS


def test_wrong_shapes_are_one_sentence():
    features, weight, bias, targets = problem()
    with pytest.raises(ValueError, match=r"features should be \(n, D\)"):
        vocabulary_loss(features[None], weight, bias, targets)
    with pytest.raises(ValueError, match=r"targets should be whole numbers \(7,\)"):
        vocabulary_loss(features, weight, bias, targets[:-1])


def test_a_model_trained_with_it_learns():
    torch.manual_seed(0)
    model = nn.Linear(3, 5)
    x, y = torch.eye(3), torch.tensor([4, 0, 2])
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for _ in range(50):
        optimizer.zero_grad()
        vocabulary_loss(x, model.weight, model.bias, y).backward()
        optimizer.step()
    assert torch.equal(model(x).argmax(-1), y)
