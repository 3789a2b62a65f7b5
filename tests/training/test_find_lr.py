"""The learning rate range test: its rates, its losses, its end and its suggestion."""

import numpy as np
import pytest
import torch

from regard.training.find_lr import HIGHEST, LOWEST, STEPS, find_lr, smoothed, suggest
from regard.training.random_state import seed_all


def test_losses_are_those_of_adam_with_growing_rates(largest, configure):
    """Against torch's own AdamW and clipping on the same batches, and the mean written out."""
    config = configure(steps=1, clip=0.5, weight_decay=0.1, threads=1)
    task = largest()
    found = find_lr(task, config)
    seed_all(config.seed)
    model = task.build()
    parameters = list(model.parameters())
    matrices = [p for p in parameters if p.dim() > 1]
    vectors = [p for p in parameters if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-9)
    batches = [(epoch, step) for epoch in range(3) for step in range(task.steps(epoch))]
    losses = []
    rates = np.geomspace(LOWEST, HIGHEST, STEPS)
    for (epoch, step), rate in zip(batches, rates, strict=False):
        for group in optimizer.param_groups:
            group["lr"] = float(rate)
        loss = task.loss(model, task.batch(epoch, step))
        optimizer.zero_grad()
        (loss.total / loss.count).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()
        losses.append(loss.total.item() / loss.count)
    for n, (rate, mean) in enumerate(found.points[: len(losses)]):
        ages = 0.9 ** np.arange(n, -1, -1)
        assert rate == pytest.approx(rates[n])
        assert mean == pytest.approx((ages * losses[: n + 1]).sum() / ages.sum(), rel=1e-4)


def test_a_sweep_ends_when_it_diverges_and_suggests_less_than_that(largest, configure):
    class Steep(largest):
        """A model whose loss explodes when a weight leaves [−1.5, 1.5]."""

        def loss(self, model, batch):
            found = super().loss(model, batch)
            outside = sum((p.abs() - 1.5).clamp(min=0).sum() for p in model.parameters())
            return found._replace(total=found.total + 100 * len(batch) * outside)

    found = find_lr(Steep(), configure(steps=1, clip=0.0))
    rates = [rate for rate, _ in found.points]
    assert len(rates) < STEPS
    assert rates[-1] < HIGHEST
    assert LOWEST < found.suggestion < rates[-1]


def test_a_loss_that_is_no_number_ends_the_sweep(largest, configure):
    assert find_lr(largest(poison=[0, 0]), configure(steps=1)).points == []
    found = find_lr(largest(poison=[0, 3]), configure(steps=1))
    assert len(found.points) == 3


def test_nothing_is_suggested_where_the_loss_does_not_fall():
    assert suggest([]) is None
    assert suggest([(1e-4, 1.0), (1e-3, 0.99), (1e-2, 3.0)]) is None
    assert suggest([(1e-4, 1.0), (1e-3, 0.9), (1e-2, 3.0)]) == 0.0001


def test_smoothing_forgets_the_past_by_a_tenth_at_each_step():
    losses = [5.0, 1.0, 4.0]
    expected = (0.81 * 5 + 0.9 * 1 + 4) / (0.81 + 0.9 + 1)
    assert smoothed(losses)[2] == pytest.approx(expected)
