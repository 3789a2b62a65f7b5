"""Local attention as a module: padding, dtypes, copies, compiling, dropout, work, errors."""

import math

import pytest
import torch
from torch import Tensor

import regard
from regard.layers import LocalAttention, PredictedCenter
from tests.layers.local.kinds import DIM, KEY, KINDS, B, double, in_chunks, monotonic


@pytest.mark.parametrize("kind", KINDS)
def test_sequences_of_a_batch_do_not_influence_each_other(kind):
    layer = KINDS[kind](2, dropout=0.5).float()
    x = torch.randn(B, 33, DIM)
    changed = x.clone()
    changed[1] = torch.randn(33, DIM) * 100
    for mask in (None, regard.lengths([33, 20, 5])):
        outputs = []
        for inputs in (x, changed):
            torch.manual_seed(1)
            outputs.append(layer(inputs, mask=mask))
        assert torch.equal(outputs[0][[0, 2]], outputs[1][[0, 2]])


@pytest.mark.parametrize("kind", KINDS)
def test_nan_in_padding_reaches_no_output_and_no_gradient(kind):
    layer = KINDS[kind](2, key_dim=KEY)
    query, key = double(B, 11, DIM), double(B, 13, KEY, seed=1)
    key[0, 5:] = math.nan
    key[2] = math.inf
    mask = regard.lengths([5, 13, 0])
    output = layer(query, key, mask=mask)
    output.sum().backward()
    torch.testing.assert_close(output, layer(query, key.nan_to_num(7.0, 7.0), mask=mask))
    assert all(p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize("make", [monotonic, in_chunks])
def test_keys_outside_of_every_window_may_hold_anything(make):
    layer = make(2)
    query, key = double(B, 3, DIM), double(B, 50, DIM, seed=1).requires_grad_()
    with torch.no_grad():
        key[:, 5:] = math.nan
    layer(query, key).sum().backward()
    assert key.grad.isfinite().all()
    assert layer.score.weight.grad.isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_falls_on_the_weights_in_train_mode_only(kind, monkeypatch):
    monkeypatch.undo()
    torch.manual_seed(0)
    layer = KINDS[kind](20, dropout=0.5)
    x, ones = double(1, 64, DIM), torch.ones(1, 64, 1, dtype=torch.float64)
    sums = layer.eval()(x, x, ones)
    torch.testing.assert_close(layer(x, x, ones), sums)
    dropped = layer.train()(x, x, ones)
    assert not torch.allclose(dropped, sums)
    mean = torch.stack([layer(x, x, ones) for _ in range(10)]).mean()
    torch.testing.assert_close(mean, sums.mean(), atol=0.05, rtol=0.0)


def test_chunks_with_dropout_and_padding_stay_off_the_reference_path():
    q, k = torch.randn(4, 8, 64, 16), torch.randn(4, 8, 64 + 2 * 16, 16)
    visible = torch.rand(4, 8, 64, 96) > 0.5
    score = regard.General(16, 16)
    for dropout in (0.0, 0.1):
        plan = regard.explain(q, k, k, score=score, mask=visible, dropout=dropout)
        assert plan.path != "reference"
    one, near = torch.randn(4, 512, 1, 16), torch.randn(4, 512, 33, 16)
    visible = torch.rand(4, 512, 1, 33) > 0.5
    for dropout in (0.0, 0.1):
        plan = regard.explain(one, near, near, score=score, mask=visible, dropout=dropout)
        assert plan.path != "reference"


@pytest.mark.parametrize("kind", KINDS)
def test_the_work_is_that_of_the_window(kind, monkeypatch):
    """Ten times the length costs ten times the multiplications, not a hundred times."""
    from torch.utils.flop_counter import FlopCounterMode

    monkeypatch.undo()

    def product(query: Tensor, key: Tensor) -> Tensor:
        return query @ key.transpose(-1, -2)

    def flops(length: int) -> int:
        layer = KINDS[kind](4, score=product, dropout=0.1)
        x = double(1, length, DIM).requires_grad_()
        with FlopCounterMode(display=False) as counter:
            layer(x).sum().backward()
        return counter.get_total_flops()

    assert 0 < flops(2000) < 11 * flops(200)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: LocalAttention(5, -1), "must be 0 or more, got -1"),
        (
            lambda: LocalAttention(5, 0, center=PredictedCenter(5)),
            "1 or more for a predicted centre, got 0",
        ),
        (lambda: LocalAttention(0, 1), "dim must be 1 or more"),
        (lambda: LocalAttention(5, 1, dropout=-0.1), "dropout should be at least 0"),
        (lambda: LocalAttention(5, 1, score="generall"), "did you mean 'general'"),
    ],
)
def test_a_bad_configuration_raises_a_helpful_error(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_bad_inputs_raises_a_helpful_error():
    layer = LocalAttention(DIM, 2)
    x = torch.randn(B, 7, DIM)
    with pytest.raises(ValueError, match=r"query should be \(batch, length, 5\), got \(7, 5\)"):
        layer(x[0])
    with pytest.raises(ValueError, match="without heads, got"):
        layer(x, mask=torch.ones(B, B, 7, 7, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"\(3, 1, 5\), got"):
        layer.step(x, layer.start(B))
