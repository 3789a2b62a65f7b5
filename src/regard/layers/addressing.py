"""How a Neural Turing Machine decides where in its memory to look and what to change.

The five steps of Graves et al. 2014, sections 3.1 to 3.3, as pure functions. `memory` is
(..., slots, width), weights are (..., heads, slots): a head's distribution over the slots.

    content → interpolate → shift → sharpen → weights;  erase and add change the memory
"""

import torch
from torch import Tensor

from regard.core.score import cosine


def content(memory: Tensor, key: Tensor, strength: Tensor) -> Tensor:
    """Find slots by what they hold: softmax over slots of β · cos(k, M(i)). Eq. 5 and 6.

    A key or a slot of zeros is like nothing: its cosine is 0 and it gets no gradient.

    >>> memory = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    >>> content(memory, key=torch.tensor([[2.0, 0.0]]), strength=torch.tensor([[20.0]]))
    tensor([[1.0000e+00, 2.0612e-09, 2.0612e-09]])

    Args:
        memory: (..., slots, width)
        key: (..., heads, width)
        strength: β, above 0, (..., heads, 1)

    Returns: (..., heads, slots)
    """
    return torch.softmax(cosine(key, memory, strength), dim=-1)


def interpolate(found: Tensor, previous: Tensor, gate: Tensor) -> Tensor:
    """Between the slots found by content and those of the last step: g·wᶜ + (1 − g)·w. Eq. 7.

    Args:
        found: (..., heads, slots)
        previous: (..., heads, slots)
        gate: g, from 0 to 1, (..., heads, 1)
    """
    return gate * found + (1 - gate) * previous


def shift(weights: Tensor, kernel: Tensor) -> Tensor:
    """Move the focus by circular convolution: w̃(i) = Σⱼ w(j) · s(i − j), modulo slots. Eq. 8.

    >>> shift(torch.tensor([[0.0, 0.0, 1.0]]), kernel=torch.tensor([[0.0, 0.1, 0.9]]))
    tensor([[0.9000, 0.0000, 0.1000]])

    Args:
        weights: (..., heads, slots)
        kernel: s, a distribution over the moves −n … n, (..., heads, 2n + 1)
    """
    reach = kernel.shape[-1] // 2
    moved = [weights.roll(move, dims=-1) for move in range(-reach, reach + 1)]
    return (torch.stack(moved, dim=-1) * kernel.unsqueeze(-2)).sum(-1)


def sharpen(weights: Tensor, power: Tensor) -> Tensor:
    """Undo the blur of shifting: w(i)^γ / Σⱼ w(j)^γ. Eq. 9.

    The result does not change when all weights are scaled, so they are first divided by the
    largest: however high γ, the sum is never below 1. Weights that are all zero stay so.

    >>> sharpen(torch.tensor([[0.0, 0.25, 0.75]]), power=torch.tensor([[2.0]]))
    tensor([[0.0000, 0.1000, 0.9000]])

    Args:
        weights: (..., heads, slots)
        power: γ, from 1, (..., heads, 1)
    """
    largest = weights.detach().amax(dim=-1, keepdim=True)
    scaled = (weights / largest.masked_fill(largest == 0, 1.0)) ** power
    return scaled / scaled.sum(-1, keepdim=True).clamp(min=1.0)


def erase_and_add(memory: Tensor, weights: Tensor, erase: Tensor, add: Tensor) -> Tensor:
    """Write: M(i) · Πₕ (1 − wₕ(i)·eₕ) + Σₕ wₕ(i)·aₕ. Eq. 3 and 4.

    All heads erase before any adds, so their order does not matter.

    >>> erase_and_add(
    ...     memory=torch.tensor([[5.0, 5.0], [5.0, 5.0]]),
    ...     weights=torch.tensor([[1.0, 0.0]]),
    ...     erase=torch.tensor([[1.0, 0.0]]),
    ...     add=torch.tensor([[2.0, 3.0]]),
    ... )
    tensor([[2., 8.],
            [5., 5.]])

    Args:
        memory: (..., slots, width)
        weights: (..., heads, slots)
        erase: e, from 0 to 1, (..., heads, width)
        add: a, (..., heads, width)

    Returns: (..., slots, width)
    """
    for head in range(weights.shape[-2]):
        memory = memory * (1 - weights[..., head, :, None] * erase[..., head, None, :])
    return memory + weights.transpose(-1, -2) @ add
