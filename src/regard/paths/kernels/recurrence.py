"""A recurrent layer over whole sentences, alone or with additive attention, as one operation.

Only what must wait for the step before is done step by step, in one kernel for all steps. The
gradients of all weights are products over all steps at once.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from .additive_compiled import Sums
from .additive_twin import fresh
from .factors import factors
from .loops import additive_step as preparing
from .loops import recurrence as loops
from .recurrence_twin import recur

BLOCK = 256  # bytes of a row that the kernel multiplies by at once


class Recurrence(torch.autograd.Function):
    """From a first state those after each step, (B, T, H), the last, its cell, and the weights.

    The cell is an LSTM if it has a state, else a GRU. All sizes are whole vectors.

    Args:
        x: (B, T, gates · H), what the inputs give to the gates, in torch's order
        first, cell: (B, H); the cell of a GRU is (B, 0)
        weight: (A + gates · H, H), what a state gives to its query and to the gates
        bias: (gates · H,), of the latter; both in the order of `loops.cell`
        key: (B, N, A), projected; (B, 0, 0) without attention
        value: (B, N, gates · H), what each key gives to the gates
        vector: (A,)
        counts: int64 (B,), how many steps of a sentence are real; it keeps its state in others
        lengths: int64 (B,), how many keys of it are real
        reverse: whether the first step is at the end
    """

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        *tensors, reverse = inputs
        x, first, cell, weight, bias, key, value, vector, counts, lengths = (
            tensor.detach().contiguous() for tensor in tensors
        )
        batch, steps, _ = x.shape
        begin, end = (steps, 0) if reverse else (0, steps)
        states, cells = (x.new_empty(batch, steps + 1, part.shape[1]) for part in (first, cell))
        states[:, begin], cells[:, begin] = first, cell
        kept = x.new_empty(batch, steps, key.shape[2] + 4 * first.shape[1])
        weights = x.new_empty(batch, steps, key.shape[1])
        f, tops = torch.empty_like(key), x.new_empty(batch)
        ahead = _arrays(x, packed(weight.t()), bias, counts)
        filled = _arrays(states, cells, kept, weights)
        if key.numel():
            preparing.prepare(key.numel(), *_arrays(key, lengths, tops, f))
            asked = _arrays(key, f, tops, vector, lengths, value)
            loops.attend_forth(_work(kept, key), *ahead, reverse, *filled, *asked)
        else:
            loops.forth(kept.numel(), *ahead, reverse, *filled)
        ctx.save_for_backward(*tensors, f, tops, states, cells, kept, weights)
        ctx.reverse = reverse
        after = states[:, :-1] if reverse else states[:, 1:]
        return after, states[:, end].clone(), cells[:, end].clone(), weights

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        *tensors, f, tops, states, cells, kept, weights = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _differentiable(ctx, tensors, grads)
        _, _, _, weight, _, key, value, vector, counts, lengths = (
            tensor.detach().contiguous() for tensor in tensors
        )
        steps, asked = kept.shape[1], key.shape[2]
        toward, grad, cell_grad, toward_weights = (grad.contiguous() for grad in grads)
        grad, cell_grad = grad.clone(), cell_grad.clone()
        slopes, sloped = torch.empty_like(kept), torch.empty_like(weights)
        ahead = _arrays(kept, packed(weight), counts)
        filled = _arrays(
            states, cells, toward, grad, cell_grad, slopes, weights, toward_weights, sloped
        )
        if key.numel():
            questions = _arrays(key, f, tops, vector, lengths, value)
            loops.attend_back(_work(kept, key), *ahead, ctx.reverse, *filled, *questions)
        else:
            loops.back(kept.numel(), *ahead, ctx.reverse, *filled)
        past = states[:, 1:] if ctx.reverse else states[:, :-1]
        given = slopes[..., : len(weight)].flatten(0, 1)  # of what the states gave
        dx = slopes[..., asked - len(weight) :]
        dweight = given.t() @ past.reshape(len(given), -1)
        found = dx, grad, cell_grad, dweight, given[:, asked:].sum(0)
        if not key.numel():
            return *found, *[None] * 6
        high = lengths.unsqueeze(1).expand(-1, steps)
        asking = factors(kept[..., :asked], key, None, high)
        sums = Sums(asking, 0)
        nothing = kept.new_empty(*weights.shape[:2], 0).numpy()
        sums.add(asking, sloped.numpy(), sloped.numpy(), nothing, 0)
        _, dkey, dvector, _ = sums.gradients(vector)
        return *found, dkey, torch.bmm(weights.mT, dx), dvector, None, None, None


def packed(weight: Tensor) -> Tensor:
    """A matrix (depth, columns) in blocks of columns, (blocks, depth, width), as kernels read it.

    >>> packed(torch.zeros(3, 100)).shape
    torch.Size([2, 3, 64])
    """
    width = BLOCK // weight.element_size()
    missing = -weight.shape[1] % width
    whole = pad(weight, (0, missing)) if missing else weight
    return whole.unflatten(1, (-1, width)).transpose(0, 1).contiguous()


def _differentiable(ctx: Any, tensors: list[Tensor], grads: tuple[Tensor, ...]) -> Any:
    """The gradients by the twin, so that they can be differentiated."""
    wanted = [i for i, needed in enumerate(ctx.needs_input_grad) if needed]
    inputs = [fresh(t, True) if i in wanted else t for i, t in enumerate(tensors)]
    outputs = recur(*inputs, ctx.reverse)  # type: ignore[call-arg, arg-type]
    moved = [i for i, output in enumerate(outputs) if output.requires_grad]
    found = torch.autograd.grad(
        [outputs[i] for i in moved],
        [inputs[i] for i in wanted],
        [grads[i] for i in moved],
        create_graph=True,
        materialize_grads=True,
    )
    answer: list[Tensor | None] = [None] * len(ctx.needs_input_grad)
    for i, gradient in zip(wanted, found, strict=True):
        answer[i] = gradient
    return tuple(answer)


def _work(kept: Tensor, key: Tensor) -> int:
    return kept.numel() + kept.shape[1] * key.numel()


def _arrays(*tensors: Tensor) -> tuple:
    return tuple(tensor.numpy() for tensor in tensors)
