import copy

import pytest
import torch
from torch import nn

from regard.training import Training
from regard.training.optimizer import AdamW


def small():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.LayerNorm(7), nn.Linear(7, 3))


def options(**given):
    return Training(steps=1, betas=(0.8, 0.95), eps=1e-8, **given)


@pytest.mark.parametrize("clip", [0.0, 0.3, 1e6])
def test_it_is_torchs_adamw_of_the_mean_loss_with_clipping(clip):
    ours, theirs = small(), small()
    optimizer = AdamW(ours, options(clip=clip, weight_decay=0.1))
    matrices = [p for p in theirs.parameters() if p.dim() > 1]
    vectors = [p for p in theirs.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    peer = torch.optim.AdamW(groups, lr=0.01, betas=(0.8, 0.95), eps=1e-8)
    for step in range(31):
        x = torch.randn(11, 5, generator=torch.Generator().manual_seed(step))
        ours(x).pow(2).sum().backward()
        norm = optimizer.step(0.01, count=11)
        (theirs(x).pow(2).sum() / 11).backward()
        expected = nn.utils.clip_grad_norm_(theirs.parameters(), clip or float("inf"))
        peer.step()
        peer.zero_grad()
        assert norm == pytest.approx(expected.item(), rel=1e-5)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, atol=1e-6, rtol=1e-5)
        assert mine.grad is None


def test_a_parameter_without_a_gradient_keeps_still():
    model = small()
    before = copy.deepcopy(model.state_dict())
    optimizer = AdamW(model, options(weight_decay=0.5))
    model[0].weight.sum().backward()
    optimizer.step(0.1, count=1)
    changed = {name for name, now in model.state_dict().items() if not now.equal(before[name])}
    assert changed == {"0.weight"}


def test_frozen_parameters_are_left_out():
    model = small()
    model[0].requires_grad_(False)
    assert set(AdamW(model, options()).parameters) == {"2.weight", "2.bias", "3.weight", "3.bias"}
    with pytest.raises(ValueError, match="no parameters to train"):
        AdamW(model.requires_grad_(False), options())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_changes_nothing(bad):
    model = small()
    before = copy.deepcopy(model.state_dict())
    optimizer = AdamW(model, options())
    (model[3].bias * bad).sum().backward()
    assert not optimizer.step(0.1, count=1) < float("inf")
    assert all(now.equal(before[name]) for name, now in model.state_dict().items())
    assert all(not tensor.any() for tensor in optimizer.tensors().values())


def test_its_state_goes_into_another_one_to_the_bit():
    first = small()
    optimizer = AdamW(first, options())

    def step(model, optimizer, number):
        model(torch.full((2, 5), float(number))).sum().backward()
        optimizer.step(0.1, count=2)

    step(first, optimizer, 1)
    second = copy.deepcopy(first)
    other = AdamW(second, options())
    other.load_tensors({name: tensor.clone() for name, tensor in optimizer.tensors().items()})
    step(first, optimizer, 2)
    step(second, other, 2)
    assert all(a.equal(b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_the_state_of_another_model_is_refused():
    state = AdamW(small(), options()).tensors()
    with pytest.raises(ValueError, match="of another model"):
        AdamW(nn.Linear(5, 7), options()).load_tensors(state)


@pytest.mark.parametrize("name", ["_fused_adamw_", "_foreach_add_"])
def test_without_the_private_kernel_of_torch_the_public_function_does_the_same(monkeypatch, name):
    fused, public = small(), small()
    for model in (fused, public):
        if model is public:
            monkeypatch.delattr(torch, name)
        optimizer = AdamW(model, options(weight_decay=0.1, clip=0.3))
        for step in range(7):
            x = torch.randn(11, 5, generator=torch.Generator().manual_seed(step))
            model(x).pow(2).sum().backward()
            optimizer.step(0.01, count=11)
        assert all(step == 7 for step in optimizer.steps.values())
    for one, other in zip(fused.parameters(), public.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)
