"""Local attention step by step is the pass over the whole sequence."""

import pytest
import torch

import regard
from tests.layers.local.kinds import DIM, KEY, KINDS, B, double, monotonic


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("score", [None, regard.Location(DIM, 23)], ids=["general", "location"])
@pytest.mark.parametrize("kind", KINDS)
def test_steps_equal_the_causal_pass(kind, score, grad):
    layer = KINDS[kind](3, score=score)
    x = double(B, 23, DIM)
    with torch.set_grad_enabled(grad):
        full = layer(x, mask=regard.causal())
        state, outputs = layer.start(B), []
        for t in range(x.shape[1]):
            y, state = layer.step(x[:, t : t + 1], state)
            outputs.append(y)
    torch.testing.assert_close(torch.cat(outputs, 1), full)


def test_a_monotonic_past_does_not_grow_beyond_the_window():
    layer = monotonic(2)
    state = layer.start(B)
    with torch.no_grad():
        for t in range(100):
            _, state = layer.step(double(B, 1, DIM, seed=t), state)
    assert state.buffers[0].shape[1] <= 16
    assert state.tensors[0].shape[1] == 3


@pytest.mark.parametrize("kind", KINDS)
def test_steps_over_a_memory_equal_the_full_pass_under_beam_reordering(kind):
    layer = KINDS[kind](2, key_dim=KEY)
    sentences, beams, N = 2, 3, 11
    memory, lengths = double(sentences, N, KEY, seed=1), torch.tensor([N, 6])
    state = layer.start(sentences * beams, memory, regard.lengths(lengths))
    wide = memory.repeat_interleave(beams, 0)
    mask = regard.lengths(lengths.repeat_interleave(beams))
    generator = torch.Generator().manual_seed(0)
    history = double(sentences * beams, 0, DIM)
    for t in range(N + 3):
        x = double(sentences * beams, 1, DIM, seed=10 + t)
        history = torch.cat([history, x], 1)
        full, map = layer(history, wide, mask=mask, return_map=True)
        (y, row), state = layer.step(x, state, return_map=True)
        torch.testing.assert_close(y, full[:, -1:])
        torch.testing.assert_close(row.dense(), map[..., -1:, :])
        own = torch.randint(beams, (sentences, beams), generator=generator)
        index = (own + beams * torch.arange(sentences)[:, None]).flatten()
        state, history = state.reorder(index), history[index]
    assert state.tensors[0].data_ptr() == memory.data_ptr() or state.visible is not None


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_may_be_stepped_twice(kind):
    layer = KINDS[kind](2)
    x = double(B, 4, DIM)
    with torch.no_grad():
        _, shared = layer.step(x[:, :1], layer.start(B))
        once, _ = layer.step(x[:, 1:2], shared)
        layer.step(x[:, 2:3], shared)
        again, _ = layer.step(x[:, 1:2], shared)
    assert torch.equal(once, again)
