"""AdamW in one fused pass over the parameters, with a state that has their names.

It is torch's own kernel, as in `torch.optim.AdamW(fused=True)`. That class loads the compiler when
it is made, which takes seconds, and goes over gradients twice where they are scaled and clipped.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from regard.training.config import Training


class AdamW:
    """Adam with decoupled weight decay. Loshchilov & Hutter 2019, algorithm 2.

    Only matrices decay; vectors (biases, the scales of norms) are left alone.

    Args:
        model: whose parameters it changes
        options: `betas`, `eps`, `weight_decay` and `clip`
    """

    def __init__(self, model: nn.Module, options: Training) -> None:
        self.options = options
        self.parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
        if not self.parameters:
            raise ValueError("the model has no parameters to train")
        parameters = self.parameters.items()
        self.means = {name: torch.zeros_like(p) for name, p in parameters}
        self.squares = {name: torch.zeros_like(p) for name, p in parameters}
        self.steps = {name: p.new_zeros((), dtype=torch.float32) for name, p in parameters}

    @torch.no_grad()
    def step(self, lr: float, count: int) -> float:
        """Change the parameters by the gradients of a loss that was summed, and forget these.

        g = gradient / n · min(1, clip / |gradient / n|) goes into Adam. Clipping: Pascanu et al.
        2013, algorithm 1.

        Args:
            count: n, what the loss was summed over

        Returns: |gradient / n|; if it is not finite, nothing was changed
        """
        gradients = {n: p.grad for n, p in self.parameters.items() if p.grad is not None}
        norm = torch.nn.utils.get_total_norm(list(gradients.values())).item() / count
        if not norm < float("inf"):
            return norm
        clip = self.options.clip
        divisor = torch.tensor(count * max(1.0, norm / clip) if clip else float(count))
        for matrices in (True, False):
            group = {name: g for name, g in gradients.items() if (g.dim() > 1) == matrices}
            if group:
                self._update(group, lr, self.options.weight_decay if matrices else 0.0, divisor)
        for parameter in self.parameters.values():
            parameter.grad = None
        return norm

    def _update(
        self, gradients: dict[str, Tensor], lr: float, decay: float, divisor: Tensor
    ) -> None:
        names = list(gradients)
        steps = [self.steps[name] for name in names]
        torch._foreach_add_(steps, 1)
        torch._fused_adamw_(
            [self.parameters[name] for name in names],
            list(gradients.values()),
            [self.means[name] for name in names],
            [self.squares[name] for name in names],
            [],
            steps,
            amsgrad=False,
            lr=lr,
            beta1=self.options.betas[0],
            beta2=self.options.betas[1],
            weight_decay=decay,
            eps=self.options.eps,
            maximize=False,
            grad_scale=divisor,
        )

    def tensors(self) -> dict[str, Tensor]:
        """The state, as `what/parameter` → tensor."""
        kinds = {"mean": self.means, "square": self.squares, "step": self.steps}
        return {f"{kind}/{n}": t for kind, tensors in kinds.items() for n, t in tensors.items()}

    def put(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `tensors` gave.

        Raises:
            ValueError: if it is of another model
        """
        own = self.tensors()
        for name in [*own, *tensors]:
            if name not in own or name not in tensors or own[name].shape != tensors[name].shape:
                raise ValueError(f"the optimizer's state is of another model: see {name}")
        for name, tensor in own.items():
            tensor.copy_(tensors[name])
