"""AdamW in one fused pass over the parameters, with a state stored by their names.

It calls torch's own kernel, as in `torch.optim.AdamW(fused=True)`. That class imports the compiler,
which takes seconds, and passes over gradients twice where they are scaled and clipped. The kernel
is a private function of torch; without it the public function `adamw` is used.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.adamw import adamw

from regard.system import torch_internals
from regard.training.config import Training
from regard.training.processes import world
from regard.training.weights import copy_into, local_part

VECTOR = 16
"""Numbers that a processor computes at once, at most: AVX-512 in float32."""


class AdamW:
    """Adam with decoupled weight decay. Loshchilov & Hutter 2019, algorithm 2.

    Only matrices decay; vectors (biases, the scales of norms) do not.

    Args:
        model: its parameters are optimized
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
        scalar: dict[str, Any] = {"size": (), "dtype": torch.float32}
        self.steps = {name: torch.zeros(device=p.device, **scalar) for name, p in parameters}

    @torch.no_grad()
    def step(self, lr: float, count: float) -> float:
        """Update the parameters by the gradients of a summed loss, and clear the gradients.

        g = gradient / n · min(1, clip / |gradient / n|) goes into Adam. Clipping: Pascanu et al.
        2013, algorithm 1.

        Args:
            count: n, the number of terms in the sum

        Returns: |gradient / n|; if it is not finite, nothing was changed
        """
        gradients = {n: p.grad for n, p in self.parameters.items() if p.grad is not None}
        total = _norm(list(gradients.values()))
        norm = total.item() / count
        if norm < float("inf"):
            clip = self.options.clip
            times = count * max(1.0, norm / clip) if clip else count
            divisor = torch.tensor(times, dtype=torch.float32, device=total.device)
            for matrices in (True, False):
                group = {name: g for name, g in gradients.items() if (g.dim() > 1) == matrices}
                if group:
                    decay = self.options.weight_decay if matrices else 0.0
                    self._update(group, lr, decay, divisor)
        for parameter in self.parameters.values():
            parameter.grad = None
        return norm

    def _update(
        self, gradients: dict[str, Tensor], lr: float, decay: float, divisor: Tensor
    ) -> None:
        tables = (self.parameters, gradients, self.means, self.squares, self.steps)
        parameters, grads, means, squares, steps = (
            [local_part(table[name]) for name in gradients] for table in tables
        )
        options: dict[str, Any] = {
            "amsgrad": False,
            "lr": lr,
            "beta1": self.options.betas[0],
            "beta2": self.options.betas[1],
            "weight_decay": decay,
            "eps": self.options.eps,
            "maximize": False,
        }
        kernels = torch_internals.functions("fused AdamW")
        if kernels is None or divisor.device.type not in ("cpu", "cuda"):
            scaled = [gradient / divisor for gradient in grads]
            adamw(parameters, scaled, means, squares, [], steps, foreach=False, **options)
            return
        fused, add = kernels
        add(steps, 1)
        kernel = partial(fused, grad_scale=divisor, **options)
        tensors = (parameters, grads, means, squares)
        if divisor.is_cpu and world() > 1:
            _in_whole_vectors(kernel, tensors, steps)
        else:
            kernel(*tensors, [], steps)

    def tensors(self) -> dict[str, Tensor]:
        """The state by name, as in "mean/output.weight"."""
        kinds = {"mean": self.means, "square": self.squares, "step": self.steps}
        return {f"{kind}/{n}": t for kind, tensors in kinds.items() for n, t in tensors.items()}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `tensors` returned.

        Raises:
            ValueError: if it is of another model
        """
        own = self.tensors()
        for name in [*own, *tensors]:
            if name not in own or name not in tensors or own[name].shape != tensors[name].shape:
                raise ValueError(f"the optimizer's state is of another model: {name} differs")
        for name, tensor in own.items():
            copy_into(tensor, tensors[name])


def _in_whole_vectors(
    kernel: Callable[..., None], tables: Sequence[list[Tensor]], steps: list[Tensor]
) -> None:
    """Call a fused kernel so that it rounds each number alike, wherever it is in its tensor.

    The CPU kernel computes the last numbers of a tensor, which fill no vector, by other
    instructions, which round differently: a shard would not get the bits of the whole tensor. They
    are computed in padded copies instead.

    Args:
        kernel: takes the tables, an empty list and the steps
        tables: parameters, gradients, means and squares
    """
    block = VECTOR * torch.get_num_threads()  # each thread takes an equal part
    cut = [_cut(table, block) for table in tables]
    padded = [[F.pad(tail, (0, block - len(tail))) for tail in tails] for _, tails in cut]
    own = [step for step, tensor in zip(steps, tables[0], strict=True) if tensor.numel() % block]
    kernel(*([*cut[n][0], *padded[n]] for n in range(len(tables))), [], [*steps, *own])
    for (_, tails), computed in zip(cut, padded, strict=True):
        for tail, result in zip(tails, computed, strict=True):
            tail.copy_(result[: len(tail)])


def _cut(tensors: list[Tensor], block: int) -> tuple[list[Tensor], list[Tensor]]:
    """Views of the memory of tensors: the whole blocks of each, and the tails, where there are."""
    bodies, tails = list(tensors), []
    for number, tensor in enumerate(tensors):
        if rest := tensor.numel() % block:
            size = tensor.numel() - rest
            bodies[number] = tensor.as_strided((size,), (1,))
            tails.append(tensor.as_strided((rest,), (1,), tensor.storage_offset() + size))
    return bodies, tails


def _norm(gradients: list[Tensor]) -> Tensor:
    """The norm of all gradients together, sharded or not.

    With several processes it is a sum in float64, which hardly depends on its order, so that the
    same gradients are clipped alike however they are sharded.
    """
    parts = [local_part(gradient) for gradient in gradients]
    precise = torch.float64 if world() > 1 and parts[0].device.type != "mps" else None
    norms = [torch.linalg.vector_norm(part, dtype=precise) for part in parts]
    total = torch.linalg.vector_norm(torch.stack(norms))
    if any(part is not gradient for part, gradient in zip(parts, gradients, strict=True)):
        total = total.square_()
        dist.all_reduce(total)
        total = total.sqrt_()
    return total
