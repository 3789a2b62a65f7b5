"""A recurrent layer over whole sentences, alone or with additive attention, as one operation.

Only what depends on the previous step is computed step by step, in one kernel for all steps. The
gradients of all weights are products over all steps at once.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.core.normalize import softmax

from .additive_compiled import Sums
from .custom_operator import differentiable_copies
from .factors import factors
from .loops import additive_step as preparing
from .loops import recurrence as loops

BLOCK = 256  # bytes of a row that the kernel multiplies by at once


class Recurrence(torch.autograd.Function):
    """The states after each step, (B, T, H), the last state and cell, and the attention weights.

    An LSTM if `cell` is not empty, else a GRU. All sizes are multiples of the vector width.

    Args:
        x: (B, T, gates · H), the inputs' part of the gates, in torch's order
        first, cell: the initial state and cell, (B, H); the cell of a GRU is (B, 0)
        weight: (A + gates · H, H), projects a state to its query and to its part of the gates
        bias: (gates · H,), of the gates; both in the order of `loops.cell`
        key: (B, N, A), projected; (B, 0, 0) without attention
        value: (B, N, gates · H), each key's part of the gates
        vector: (A,)
        counts: int64 (B,), the number of real steps of a sentence; later ones keep its state
        lengths: int64 (B,), the number of real keys
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
        factor, tops = torch.empty_like(key), x.new_empty(batch)
        if key.numel():
            preparing.prepare(key.numel(), *_arrays(key, lengths, tops, factor))
        loops.forward(
            _work(kept, key),
            *_arrays(x, packed(weight.t()), bias, counts),
            reverse,
            *_arrays(states, cells, kept, weights, key, factor, tops, vector, lengths, value),
        )
        ctx.save_for_backward(*tensors, factor, tops, states, cells, kept, weights)
        ctx.reverse = reverse
        after = states[:, :-1] if reverse else states[:, 1:]
        return after, states[:, end].clone(), cells[:, end].clone(), weights

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        *tensors, factor, tops, states, cells, kept, weights = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _differentiable(ctx, tensors, grads)
        _, _, _, weight, _, key, value, vector, counts, lengths = (
            tensor.detach().contiguous() for tensor in tensors
        )
        steps, width = kept.shape[1], key.shape[2]
        state_grads, grad, cell_grad, weight_grads = (grad.contiguous() for grad in grads)
        grad, cell_grad = grad.clone(), cell_grad.clone()
        slopes, score_slopes = torch.empty_like(kept), torch.empty_like(weights)
        loops.backward(
            _work(kept, key),
            *_arrays(kept, packed(weight), counts),
            ctx.reverse,
            *_arrays(states, cells, state_grads, grad, cell_grad, slopes),
            *_arrays(weights, weight_grads, score_slopes),
            *_arrays(key, factor, tops, vector, lengths, value),
        )
        past = states[:, 1:] if ctx.reverse else states[:, :-1]
        projected = slopes[..., : len(weight)].flatten(0, 1)  # of the states' projections
        dx = slopes[..., width - len(weight) :]
        dweight = projected.t() @ past.reshape(len(projected), -1)
        found = dx, grad, cell_grad, dweight, projected[:, width:].sum(0)
        if not key.numel():
            return *found, *[None] * 6
        high = lengths.unsqueeze(1).expand(-1, steps)
        queries = factors(kept[..., :width], key, None, high)
        sums = Sums(queries, 0)
        nothing = kept.new_empty(*weights.shape[:2], 0).numpy()
        sums.add(queries, score_slopes.numpy(), score_slopes.numpy(), nothing, 0)
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
    """The gradients by the formula in plain torch, so that they can be differentiated."""
    wanted = [i for i, needed in enumerate(ctx.needs_input_grad) if needed]
    inputs = list(tensors)
    for i, copy in zip(wanted, differentiable_copies([tensors[i] for i in wanted]), strict=True):
        inputs[i] = copy
    outputs = recur_torch(*inputs, ctx.reverse)  # type: ignore[call-arg, arg-type]
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


def recur_torch(
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
    """The outputs of `Recurrence` in plain torch, step by step, differentiable to any order."""
    steps, width = x.shape[1], key.shape[2]
    seen = torch.arange(key.shape[1], device=key.device) < lengths.unsqueeze(1)
    state, states, maps = first, [], [x.new_zeros(len(x), key.shape[1])] * steps
    for t in reversed(range(steps)) if reverse else range(steps):
        alive = (t < counts).unsqueeze(1)
        query, gates = (state @ weight.t()).split([width, len(weight) - width], dim=-1)
        gates, inputs = gates + bias, x[:, t]
        if width:
            scores = torch.tanh(query.unsqueeze(1) + key) @ vector
            maps[t] = softmax(scores, seen) * alive
            inputs = inputs + torch.bmm(maps[t].unsqueeze(1), value).squeeze(1)
        if cell.shape[1]:
            i, f, g, o = (inputs + gates).chunk(4, dim=-1)
            new = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            cell = torch.where(alive, new, cell)
            new = torch.sigmoid(o) * torch.tanh(new)
        else:
            (m, r, z), (a, b, c) = gates.chunk(3, dim=-1), inputs.chunk(3, dim=-1)
            n, z = torch.tanh(c + torch.sigmoid(a + r) * m), torch.sigmoid(b + z)
            new = (1 - z) * n + z * state
        state = torch.where(alive, new, state)
        states.append(state)
    states = states[::-1] if reverse else states
    return torch.stack(states, 1), state, cell, torch.stack(maps, 1)


def _work(kept: Tensor, key: Tensor) -> int:
    return kept.numel() + kept.shape[1] * key.numel()


def _arrays(*tensors: Tensor) -> tuple:
    return tuple(tensor.numpy() for tensor in tensors)
