"""Keys and values that a decoder attends to at every step.

What is the same for all queries is computed once: before the first query and, in backward, after
the last. The gradients of keys, values and weight are sums over all queries. Added query by query
they would be read and written each time, so each query only stores its terms, and one kernel adds
those of up to `TOGETHER` queries.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .additive_compiled import Sums
from .factors import factors, pad_lanes, unpad
from .loops import additive_step as step

TOGETHER = 64
_ONE_HOT = np.eye(TOGETHER, dtype=np.float32)

Terms = dict[int, tuple[Tensor, Tensor, Tensor, Tensor]]
"""By the number of the call: queries, weights, and the gradients of scores and contexts."""


class PreparedKeys:
    """Projected keys (B, N, hidden) and values (B, N, Dv), attended to by w · tanh(q + k).

    >>> keys = PreparedKeys(torch.zeros(2, 5, 3), torch.ones(2, 5, 7), torch.ones(3), None)
    >>> keys.attend(torch.zeros(2, 1, 3)).shape
    torch.Size([2, 1, 7])

    Args:
        key, value, weight: of one dtype, float32 or float64
        lengths: int64 (B,), the number of real keys of each sequence; all if None
    """

    def __init__(self, key: Tensor, value: Tensor, weight: Tensor, lengths: Tensor | None) -> None:
        self.inputs = key, value, weight
        self.tracked = any(tensor.requires_grad for tensor in self.inputs)
        self.size = value.shape[2]
        batch, keys, _ = key.shape
        high = (
            key.new_full((batch,), keys, dtype=torch.int64)
            if lengths is None
            else lengths.long().contiguous()
        )
        self.high = high.numpy()
        padded = pad_lanes(key)
        self.key, self.value, self.weight = (
            t.numpy() for t in (padded, pad_lanes(value), pad_lanes(weight))
        )
        # torch aligns memory to 64 bytes, numpy to 16, with which every load touches two lines
        self.factors = torch.empty_like(padded).numpy()
        self.tops = key.new_empty(batch).numpy()
        step.prepare(self.key.size, self.key, self.high, self.tops, self.factors)
        self.calls = 0  # that may be differentiated
        self.terms: Terms = {}
        self.token: Tensor | None = None

    def attend(self, query: Tensor) -> Tensor:
        """The contexts (B, M, Dv) of projected queries (B, M, hidden); M may be left out."""
        if torch.is_grad_enabled() and (self.tracked or query.requires_grad):
            number = self.calls % TOGETHER
            self.calls += 1
            if number == 0:
                self.terms = {}
                self.token = _Sum.apply(*self.inputs, self.high, self.terms)
            return _Attend.apply(query, self.token, self, self.terms, number)
        return self.shaped(self.forward(self.rows(query), keep=False)[0], query)

    def rows(self, query: Tensor) -> Tensor:
        """Queries as the kernel reads them: 3-D and padded."""
        return pad_lanes(query if query.dim() == 3 else query.unsqueeze(1))

    def shaped(self, context: Tensor, query: Tensor) -> Tensor:
        """Contexts of as many dimensions as the queries have, without padding."""
        context = unpad(context, self.size)
        return context if query.dim() == 3 else context.squeeze(1)

    def forward(self, query: Tensor, *, keep: bool) -> tuple[Tensor, Tensor]:
        """Context, and weights (B, M, N) if they are kept, of padded queries."""
        batch, queries, _ = query.shape
        keys = self.key.shape[1]
        context = query.new_empty(batch, queries, self.value.shape[2])
        weights = query.new_empty(batch, queries, keys if keep else 0)
        step.forward(
            query.numel() * keys,
            query.numpy(), self.key, self.factors, self.tops, self.weight, self.high, self.value,
            context.numpy(), weights.numpy(),
        )  # fmt: skip
        return context, weights

    def backward(self, query: Tensor, grad: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of the scores (B, M, N) and of the padded queries."""
        slopes, gradient = torch.empty_like(weights), torch.empty_like(query)
        step.backward(
            query.numel() * self.key.shape[1],
            query.numpy(), self.key, self.factors, self.tops, self.weight, self.high, self.value,
            grad.numpy(), weights.numpy(), slopes.numpy(), gradient.numpy(),
        )  # fmt: skip
        return slopes, gradient


class _Attend(torch.autograd.Function):
    """One call. Its gradient of the token identifies the call; its other terms are stored."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, token: Tensor, keys: PreparedKeys, terms: Terms, number: int
    ) -> Tensor:
        rows = keys.rows(query)
        context, weights = keys.forward(rows, keep=True)
        ctx.save_for_backward(rows, weights)
        ctx.keys, ctx.terms, ctx.number, ctx.shape = keys, terms, number, query.shape
        return keys.shaped(context, query)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "prepared keys have no second derivative; use attend() to differentiate twice"
            )
        query, weights = ctx.saved_tensors
        grad = ctx.keys.rows(grad)
        slopes, gradient = ctx.keys.backward(query, grad, weights)
        if ctx.needs_input_grad[1]:
            ctx.terms[ctx.number] = query, weights, slopes, grad
        gradient = unpad(gradient, ctx.shape[-1]).view(ctx.shape)
        return gradient, torch.from_numpy(_ONE_HOT[ctx.number].copy()), None, None, None


class _Sum(torch.autograd.Function):
    """A token that many calls take as an input, so that its backward runs after theirs.

    Its gradient has a one for each call of this backward pass, so that terms which other calls
    stored in an earlier pass are not added.
    """

    @staticmethod
    def forward(
        ctx: Any, key: Tensor, value: Tensor, weight: Tensor, high: np.ndarray, terms: Terms
    ) -> Tensor:
        ctx.save_for_backward(key, value, weight)
        ctx.high, ctx.terms = high, terms
        return torch.zeros(TOGETHER, device="cpu")

    @staticmethod
    def backward(ctx: Any, calls: Tensor) -> Any:
        key, value, weight = ctx.saved_tensors
        numbers = calls.nonzero().flatten().tolist()
        stored = zip(*[ctx.terms.pop(number) for number in numbers], strict=True)
        query, weights, slopes, grad = (torch.cat(parts, 1) for parts in stored)
        high = torch.from_numpy(ctx.high).unsqueeze(1).expand(-1, query.shape[1])
        f = factors(query, pad_lanes(key), None, high)
        sums = Sums(f, grad.shape[2])
        sums.add(f, weights.numpy(), slopes.numpy(), grad.numpy(), 0)
        _, dk, dw, dv = sums.gradients(weight)
        return dk, unpad(dv, value.shape[2]), dw, None, None
