"""AdamW, the gradient it gets, and its state under the names of the parameters."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from regard.training.config import Training


def adamw(model: nn.Module, options: Training) -> torch.optim.AdamW:
    """AdamW (Loshchilov & Hutter 2019) in which only matrices decay, in one fused pass."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise ValueError("the model has no parameters to train")
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": options.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    fused = all(p.is_floating_point() for p in parameters)
    return torch.optim.AdamW(
        groups, lr=options.lr, betas=options.betas, eps=options.eps, fused=fused
    )


def settle_gradient(parameters: Iterable[Tensor], count: int, clip: float) -> float:
    """Turn gradients of a summed loss into those of its mean, with a bounded norm.

    g ← g / n · min(1, clip / |g / n|), in one pass. Pascanu et al. 2013, algorithm 1.

    >>> p = torch.zeros(2, requires_grad=True)
    >>> (p * torch.tensor([6.0, 8.0])).sum().backward()
    >>> round(settle_gradient([p], count=2, clip=1.0), 4), p.grad
    (5.0, tensor([0.6000, 0.8000]))

    Args:
        count: n, what the loss was summed over
        clip: the greatest norm; 0 leaves it as it is

    Returns: the norm before clipping
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients).item() / count
    shrink = clip / norm if 0 < clip < norm else 1.0
    torch._foreach_mul_(gradients, shrink / count)
    return norm


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimizer's state as `parameter/what` → tensor."""
    return {
        f"{name}/{what}": value
        for name, parameter in model.named_parameters()
        for what, value in optimizer.state.get(parameter, {}).items()
    }


def put_optimizer_tensors(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]
) -> None:
    """Restore what `optimizer_tensors` gave."""
    parameters = dict(model.named_parameters())
    optimizer.state.clear()
    for key, value in tensors.items():
        name, what = key.rsplit("/", 1)
        if name not in parameters:
            raise ValueError(f"the optimizer's state is of another model, which has {name}")
        optimizer.state[parameters[name]][what] = value.clone()
