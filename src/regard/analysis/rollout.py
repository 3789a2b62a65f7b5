"""What a position has seen of the input after all layers."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.analysis.rows import checked


def rollout(layers: Sequence[Tensor], *, residual: float = 0.5) -> Tensor:
    """Attention rollout: the product of the layers' maps, each mixed with the way around it.

        R⁽ˡ⁾ = (r I + (1 − r) Ā⁽ˡ⁾) R⁽ˡ⁻¹⁾,  R⁽⁰⁾ = I

    Abnar & Zuidema 2020, section 3, with Ā the mean over heads and r = ½ for the residual
    connection. Rows are normalized, so that a query that saw nothing keeps itself.

    >>> swap = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
    >>> rollout([swap, swap])
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]], dtype=torch.float64)

    Args:
        layers: self-attention (heads, N, N) of each layer, the first layer first
        residual: r, the share of the residual connection, from 0 to 1

    Returns: (N, N): how much of each input each position has seen; rows sum to one
    """
    if not layers:
        raise ValueError("rollout needs the map of one layer or more")
    if not 0.0 <= residual <= 1.0:
        raise ValueError(f"residual is a share, from 0 to 1, got {residual}")
    N = layers[0].shape[-1]
    seen = torch.eye(N, dtype=torch.float64, device=layers[0].device)
    for number, layer in enumerate(layers):
        if layer.dim() != 3 or layer.shape[-2:] != (N, N):
            raise ValueError(
                f"rollout follows self-attention (heads, {N}, {N}), layer {number} is "
                f"{tuple(layer.shape)}"
            )
        mixed = (1 - residual) * checked(layer).mean(0)
        mixed = mixed + residual * torch.eye(N, dtype=torch.float64, device=layer.device)
        total = mixed.sum(-1, keepdim=True)
        mixed = torch.where(total > 0, mixed / total.clamp(min=1e-12), torch.eye(N).to(mixed))
        seen = mixed @ seen
    return seen
