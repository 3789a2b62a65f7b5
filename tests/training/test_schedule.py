import math

import pytest
import torch

from regard.training import Training
from regard.training.schedule import learning_rate, times_lowered


def rates(count, **options):
    options = Training(steps=count, **options)
    return [learning_rate(options, step, last=count) for step in range(1, count + 1)]


def test_inverse_sqrt_is_equation_3_of_the_paper():
    width, warmup = 512, 7
    paper = [width**-0.5 * min(t**-0.5, t * warmup**-1.5) for t in range(1, 32)]
    ours = rates(31, schedule="inverse_sqrt", warmup=warmup, lr=(width * warmup) ** -0.5)
    assert ours == pytest.approx(paper, rel=1e-12)


@pytest.mark.parametrize("schedule", ["constant", "inverse_sqrt", "cosine", "plateau"])
def test_every_schedule_rises_to_its_height_and_never_above(schedule):
    found = rates(31, schedule=schedule, warmup=5, lr=0.3)
    assert found[:5] == pytest.approx([0.06, 0.12, 0.18, 0.24, 0.3])
    assert max(found) == pytest.approx(0.3)


def test_cosine_is_torchs():
    parameter = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=0.3)
    peer = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=13)
    expected = []
    for _ in range(13):
        optimizer.step()
        peer.step()
        expected.append(peer.get_last_lr()[0])
    assert rates(13, schedule="cosine", lr=0.3) == pytest.approx(expected, abs=1e-12)
    after = Training(steps=13, schedule="cosine", lr=0.3)
    assert learning_rate(after, 17, last=13) == 0.0


def test_plateau_is_torchs():
    scores = [1, 3, 2, 3, 3, 2, 4, 4, 4, 4, 4, 5, 1, 1, 1, 1]
    parameter = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    peer = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode="max", factor=0.5, patience=1, threshold=0
    )
    options = Training(steps=99, schedule="plateau", lr=1.0, lower_by=0.5, lower_after=2)
    for count, score in enumerate(scores, start=1):
        peer.step(score)
        lowered = times_lowered(scores[:count], options.lower_after)
        assert learning_rate(options, 1, lowered=lowered) == peer.get_last_lr()[0]
    assert times_lowered(scores, 2) == math.log2(1 / peer.get_last_lr()[0]) > 3
