"""A recurrence in plain torch, step by step: the twin of the compiled loops, to any derivative."""

import torch
from torch import Tensor

from .additive_twin import distributions


def recur(
    x: Tensor,
    first: Tensor,
    cell: Tensor,
    weight: Tensor,
    bias: Tensor,
    key: Tensor,
    value: Tensor,
    vector: Tensor,
    counts: Tensor,
    lengths: Tensor,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What `Recurrence` gives, from the same arguments."""
    steps, asked = x.shape[1], key.shape[2]
    seen = torch.arange(key.shape[1]) < lengths.unsqueeze(1)
    state, states, maps = first, [], [x.new_zeros(len(x), key.shape[1])] * steps
    for t in reversed(range(steps)) if reverse else range(steps):
        alive = (t < counts).unsqueeze(1)
        query, given = (state @ weight.t()).split([asked, len(weight) - asked], dim=-1)
        given, inputs = given + bias, x[:, t]
        if asked:
            scores = torch.tanh(query.unsqueeze(1) + key) @ vector
            maps[t] = distributions(scores, seen) * alive
            inputs = inputs + torch.bmm(maps[t].unsqueeze(1), value).squeeze(1)
        if cell.shape[1]:
            i, f, g, o = (inputs + given).chunk(4, dim=-1)
            new = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            cell = torch.where(alive, new, cell)
            new = torch.sigmoid(o) * torch.tanh(new)
        else:
            (m, r, z), (a, b, c) = given.chunk(3, dim=-1), inputs.chunk(3, dim=-1)
            n, z = torch.tanh(c + torch.sigmoid(a + r) * m), torch.sigmoid(b + z)
            new = (1 - z) * n + z * state
        state = torch.where(alive, new, state)
        states.append(state)
    states = states[::-1] if reverse else states
    return torch.stack(states, 1), state, cell, torch.stack(maps, 1)
