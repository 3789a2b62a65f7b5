"""Keys and values that are asked again and again, as a decoder does: what is the same for all
queries is computed once, before the first and, in backward, after the last of them.

The gradients of keys, values and weight are sums over all queries. Added up query by query they
would be read and written each time; so each query notes its share, and the shares of up to
`TOGETHER` queries are added by one kernel.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .additive_compiled import Sums
from .factors import cut, factors, whole
from .loops import additive_step as step

TOGETHER = 64
_ONE = torch.eye(TOGETHER).unbind()

Notes = dict[int, tuple[Tensor, Tensor, Tensor, Tensor]]
"""By the order of the calls: queries, weights, and the gradients of scores and contexts."""


class PreparedKeys:
    """Projected keys (B, N, hidden) and values (B, N, Dv), to be asked by w · tanh(q + k).

    >>> keys = PreparedKeys(torch.zeros(2, 5, 3), torch.ones(2, 5, 7), torch.ones(3), None)
    >>> keys.ask(torch.zeros(2, 1, 3)).shape
    torch.Size([2, 1, 7])

    Args:
        key, value, weight: of one dtype, float32 or float64
        lengths: int64 (B,), how many keys of each sequence are real; all if None
    """

    def __init__(self, key: Tensor, value: Tensor, weight: Tensor, lengths: Tensor | None) -> None:
        self.inputs = key, value, weight
        self.tracked = any(tensor.requires_grad for tensor in self.inputs)
        self.size = value.shape[2]
        batch, keys, _ = key.shape
        high = torch.full((batch,), keys) if lengths is None else lengths.long().contiguous()
        self.high = high.numpy()
        padded_key, padded_value, padded_weight = whole(key), whole(value), whole(weight)
        self.key, self.value, self.weight = (
            tensor.numpy() for tensor in (padded_key, padded_value, padded_weight)
        )
        # torch aligns memory to 64 bytes, numpy to 16, with which every load touches two lines
        self.factors = torch.empty_like(padded_key).numpy()
        self.tops = torch.empty(batch, dtype=key.dtype).numpy()
        step.prepare(self.key.size, self.key, self.high, self.tops, self.factors)
        self.calls = 0  # that may be differentiated
        self.notes: Notes = {}
        self.receipt: Tensor | None = None

    def ask(self, query: Tensor) -> Tensor:
        """The contexts (B, M, Dv) of projected queries (B, M, hidden); M may be left out."""
        if torch.is_grad_enabled() and (self.tracked or query.requires_grad):
            place = self.calls % TOGETHER
            self.calls += 1
            if place == 0:
                self.notes = {}
                self.receipt = _Sum.apply(*self.inputs, self.high, self.notes)
            return _Ask.apply(query, self.receipt, self, self.notes, place)
        return self.shaped(self.attend(self.rows(query), keep=False)[0], query)

    def rows(self, query: Tensor) -> Tensor:
        """Queries as the kernel reads them."""
        return whole(query if query.dim() == 3 else query.unsqueeze(1))

    def shaped(self, context: Tensor, query: Tensor) -> Tensor:
        """Contexts as the queries were."""
        context = cut(context, self.size)
        return context if query.dim() == 3 else context.squeeze(1)

    def attend(self, query: Tensor, *, keep: bool) -> tuple[Tensor, Tensor]:
        """Context, and weights (B, M, N) if they are kept, of padded queries."""
        batch, queries, _ = query.shape
        keys = self.key.shape[1]
        context = torch.empty(batch, queries, self.value.shape[2], dtype=query.dtype)
        weights = torch.empty(batch, queries, keys if keep else 0, dtype=query.dtype)
        step.ask(
            query.numel() * keys,
            query.numpy(), self.key, self.factors, self.tops, self.weight, self.high, self.value,
            context.numpy(), weights.numpy(),
        )  # fmt: skip
        return context, weights

    def trace(self, query: Tensor, grad: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of the scores (B, M, N) and of the padded queries."""
        slopes, gradient = torch.empty_like(weights), torch.empty_like(query)
        step.trace(
            query.numel() * self.key.shape[1],
            query.numpy(), self.key, self.factors, self.tops, self.weight, self.high, self.value,
            grad.numpy(), weights.numpy(), slopes.numpy(), gradient.numpy(),
        )  # fmt: skip
        return slopes, gradient


class _Ask(torch.autograd.Function):
    """One call. Its gradient for the receipt says which; its share of the others is noted."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, receipt: Tensor, keys: PreparedKeys, notes: Notes, place: int
    ) -> Tensor:
        rows = keys.rows(query)
        context, weights = keys.attend(rows, keep=True)
        ctx.save_for_backward(rows, weights)
        ctx.keys, ctx.notes, ctx.place, ctx.shape = keys, notes, place, query.shape
        return keys.shaped(context, query)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError("prepared keys are differentiated once; for more, use attend()")
        query, weights = ctx.saved_tensors
        grad = ctx.keys.rows(grad)
        slopes, gradient = ctx.keys.trace(query, grad, weights)
        if ctx.needs_input_grad[1]:
            ctx.notes[ctx.place] = query, weights, slopes, grad
        gradient = cut(gradient, ctx.shape[-1]).view(ctx.shape)
        return gradient, _ONE[ctx.place], None, None, None


class _Sum(torch.autograd.Function):
    """The receipt that many calls take as an input, so that its backward comes after theirs.

    What it gets there is a one for each call that took part in this backward pass: what others
    noted in an earlier pass is not counted.
    """

    @staticmethod
    def forward(
        ctx: Any, key: Tensor, value: Tensor, weight: Tensor, high: np.ndarray, notes: Notes
    ) -> Tensor:
        ctx.save_for_backward(key, value, weight)
        ctx.high, ctx.notes = high, notes
        return torch.zeros(TOGETHER)

    @staticmethod
    def backward(ctx: Any, took_part: Tensor) -> Any:
        key, value, weight = ctx.saved_tensors
        places = took_part.nonzero().flatten().tolist()
        shares = zip(*[ctx.notes.pop(place) for place in places], strict=True)
        query, weights, slopes, grad = (torch.cat(parts, 1) for parts in shares)
        high = torch.from_numpy(ctx.high).unsqueeze(1).expand(-1, query.shape[1])
        f = factors(query, whole(key), None, high)
        sums = Sums(f, grad.shape[2])
        sums.add(f, weights.numpy(), slopes.numpy(), grad.numpy(), 0)
        _, dk, dw, dv = sums.gradients(weight)
        return dk, cut(dv, value.shape[2]), dw, None, None
