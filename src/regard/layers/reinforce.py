"""Learning from a reward: the loss of a sampled choice, and a baseline that calms it."""

import torch
from torch import Tensor, nn


class MovingBaseline(nn.Module):
    """What reward to expect: the moving average of those seen. Xu et al. 2015, section 4.1.

        b_k = 0.9 · b_(k−1) + 0.1 · mean reward

    Call it once per training step. It remembers the average, so it is a module: it belongs to
    the training, not to the attention.

    >>> baseline = MovingBaseline(decay=0.5)
    >>> baseline(torch.tensor([1.0, 3.0])), baseline(torch.tensor([4.0]))
    (tensor(0.), tensor(1.))

    Args:
        decay: how much of the old average stays, 0.9 in the paper
    """

    value: Tensor

    def __init__(self, decay: float = 0.9) -> None:
        super().__init__()
        if not 0.0 <= decay < 1.0:
            raise ValueError(f"decay must be at least 0 and below 1, got {decay}")
        self.decay = decay
        self.register_buffer("value", torch.zeros(()))

    def forward(self, reward: Tensor) -> Tensor:
        """The baseline before this reward, a scalar; in train mode the reward then moves it."""
        before = self.value.clone()
        if self.training:
            self.value.lerp_(reward.detach().mean().to(self.value.dtype), 1.0 - self.decay)
        return before


def reinforce_loss(
    log_probability: Tensor,
    reward: Tensor,
    *,
    baseline: Tensor | float = 0.0,
    entropy: Tensor | None = None,
    entropy_weight: float = 0.0,
) -> Tensor:
    """A loss whose gradient raises the probability of choices that were rewarded.

        −mean[ (R − b) · log p(choice) + λ · H ]

    Williams 1992; with the entropy term, Xu et al. 2015, eq. 12. Add it to the loss of the task.

    >>> log_probability = torch.tensor([-1.0, -2.0], requires_grad=True)
    >>> loss = reinforce_loss(log_probability, reward=torch.tensor([1.0, 0.0]), baseline=0.5)
    >>> loss.backward(); log_probability.grad
    tensor([-0.2500,  0.2500])

    Args:
        log_probability: of the choices, (batch, ...)
        reward: R, higher is better, (batch, ...) with as many of the dimensions as it has: one
            reward for a sequence of choices is shared by them
        baseline: b, broadcast to the reward
        entropy: H, like `log_probability`; keeps the choice from settling too early
        entropy_weight: λ

    Returns: a scalar
    """
    if reward.shape != log_probability.shape[: reward.dim()]:
        raise ValueError(
            f"reward should be {tuple(log_probability.shape)} like log_probability, or its first "
            f"dimensions, got {tuple(reward.shape)}"
        )
    advantage = (reward - baseline).detach()
    advantage = advantage.reshape(*reward.shape, *(1,) * (log_probability.dim() - reward.dim()))
    loss = -(advantage * log_probability).mean()
    if entropy is not None:
        loss = loss - entropy_weight * entropy.mean()
    return loss
