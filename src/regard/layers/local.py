"""Local attention: each query attends to a window of keys, around its own or a learned position.

Time and memory grow with the window, not with the sequence, for any score, with dropout, and in
backward.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Attended, attend, explain
from regard.attention.dispatch import Computation, dispatch, weigh
from regard.attention.observer import observed
from regard.core.lower import freeze
from regard.core.map import AttentionMap
from regard.core.mask import Mask, window
from regard.core.names import find_score, layer_score
from regard.core.normalize import softmax
from regard.core.request import Request, make_request
from regard.core.score import Location, Score, precise
from regard.layers.cache import Past, SharedMemory, check_step, start
from regard.layers.checks import check_dropout, check_inputs, check_sizes
from regard.layers.masking import computed_map
from regard.layers.role import AttentionRole
from regard.layers.windows import around, in_chunks, interval


class PredictedCenter(nn.Module):
    """The centre of a window, from the query: p = S · sigmoid(v · tanh(W h)). Luong 2015, eq. 9.

    >>> PredictedCenter(5)(torch.zeros(2, 3, 5), torch.tensor([[[8]], [[4]]]))[..., 0].detach()
    tensor([[4., 4., 4.],
            [2., 2., 2.]])

    Args:
        dim: width of the queries
        hidden: width of the layer between, `dim` if None
    """

    def __init__(self, dim: int, hidden: int | None = None) -> None:
        super().__init__()
        hidden = dim if hidden is None else hidden
        self.inner = nn.Linear(dim, hidden, bias=False)
        self.outer = nn.Linear(hidden, 1, bias=False)

    def forward(self, query: Tensor, length: Tensor) -> Tensor:
        """Positions from 0 to S for queries (..., M, dim) and S (..., M or 1, 1), (..., M, 1)."""
        share = self.outer(torch.tanh(self.inner(query)))
        share = share.to(precise(share.dtype)).sigmoid()  # bfloat16 has integers up to 256 only
        return length * share


class LocalAttention(nn.Module):
    """Attend to the 2D + 1 keys around a centre p, [p − D, p + D]. Luong et al. 2015, section 3.2.

    Monotonic (local-m), without `center`: query t attends around its own position, p = t, and its
    weights are the softmax of the scores within the window.

    Predictive (local-p), with a `center`: p is a function of the query, and the weights of the
    softmax decrease away from it (eq. 10), which gives p a gradient:

        w(s) = softmax(scores)(s) · exp(−(s − p)² / 2σ²),  σ = D / 2

    Under a mask S is the end of what the query may attend to: the length of a sentence, or the
    query's own position under `causal()`.

    >>> import regard
    >>> x = torch.randn(3, 7, 5)
    >>> LocalAttention(5, window=2)(x, mask=regard.lengths([7, 5, 0])).shape
    torch.Size([3, 7, 5])
    >>> predictive = LocalAttention(5, window=2, center=PredictedCenter(5))
    >>> predictive(x, torch.randn(3, 11, 5), return_map=True).map.shape
    torch.Size([3, 7, 11])

    Args:
        dim: width of the queries
        window: D, the number of keys on either side of the centre
        key_dim: width of the keys, `dim` if None
        score: a name, a module or a callable; "general" if None
        center: a module (query (B, M, dim), S (B, M, 1)) -> p (B, M, 1), such as
            `PredictedCenter`; the query's own position if None
        dropout: of the weights, in train mode
    """

    role: AttentionRole | None = None  # set by the model

    def __init__(
        self,
        dim: int,
        window: int,
        *,
        key_dim: int | None = None,
        score: str | Score | None = None,
        center: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        key_dim = dim if key_dim is None else key_dim
        check_sizes(dim=dim, key_dim=key_dim)
        least = 0 if center is None else 1
        if window < least:
            raise ValueError(
                f"window, the number of keys on either side of the centre, must be {least} or "
                f"more{' for a predicted centre' if least else ''}, got {window}"
            )
        check_dropout(dropout)
        self.dim, self.key_dim, self.window, self.dropout = dim, key_dim, window, dropout
        self.score = layer_score("general" if score is None else score, dim, key_dim)
        self.center = center

    @observed
    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        offset: int = 0,
        return_map: bool = False,
    ) -> Tensor | Attended:
        """Attend to keys, or to the queries themselves.

        Args:
            query: (batch, M, dim)
            key: (batch, N, key_dim), the query if not given
            value: (batch, N, width), the key if not given
            mask: a Mask, or bool with True = may attend: (M, N) or (batch, M, N)
            offset: position of the first query among the keys, 0 as in the paper: p = t
            return_map: also return the lazy map, (batch, M, N)

        Returns: (batch, M, width), or `Attended(output, map)`
        """
        key = query if key is None else key
        value = key if value is None else value
        self._check(query=query, key=key)
        request = self._request(query, key, value, mask)
        position = torch.arange(offset, offset + request.queries, device=query.device)
        compute = self._around if self.center else lambda request, _: self._along(request, offset)
        return self._attend(request, position.unsqueeze(-1), compute, return_map)

    # -------------------------------------------------------------- decoding

    def start(
        self,
        batch: int,
        memory: Tensor | None = None,
        memory_mask: Mask | Tensor | None = None,
    ) -> Past | SharedMemory:
        """The state before the first step, as of `MultiHeadAttention`."""
        if memory is not None:
            self._check(key=memory)
        near = self.center is None and not isinstance(self.score, Location)  # position from 0
        keep = self.window + 1 if near else None
        return start(batch, memory, memory_mask, lambda memory: (memory,), keep=keep)

    @observed
    def step(
        self, x: Tensor, state: Past | SharedMemory, *, return_map: bool = False
    ) -> tuple[Tensor | Attended, Past | SharedMemory]:
        """One position of the pass under `causal()`, or of the pass over the memory.

        Args:
            x: (batch, 1, dim)
            state: from `start` or the last step; it stays valid

        Returns: (batch, 1, key_dim) or `Attended(output, map)`, and the new state. The map is
            over the keys that the state keeps.
        """
        self._check(query=x)
        check_step(x, state, self.dim)
        if isinstance(state, Past):
            self._check(key=x)
            state = state.append(x)
            (key,) = state.tensors
            request = self._request(x, key, key, None)
            position = key.shape[1] - 1
        else:
            (key,) = state.tensors
            visible = None if state.visible is None else state.visible[:, 0]
            request = self._request(state.grouped(x), key, key, visible)
            position = state.length
        own = torch.full((*request.leading, request.queries, 1), position, device=x.device)
        attended = self._attend(request, own, self._around, return_map)
        if isinstance(state, SharedMemory):
            if isinstance(attended, Attended):
                map = computed_map(attended.map, state.ungrouped)
                attended = Attended(state.ungrouped(attended.output), map)
            else:
                attended = state.ungrouped(attended)
            state = state.stepped(1)
        return attended, state

    # -------------------------------------------------------------- parts

    def _attend(
        self,
        request: Request,
        position: Tensor,
        compute: Callable[[Request, Tensor], Tensor],
        return_map: bool,
    ) -> Tensor | Attended:
        """One attention call, computed in chunks around positions or predicted centres."""
        centers: list[Tensor] = []

        def run(request: Request) -> Tensor:
            centers.append(position if self.center is None else self._predicted(request))
            return compute(request, centers[0])

        combine = None if self._drop() else weigh
        how = Computation("local", run, lambda request: self._map(request, centers[0]), combine)
        return dispatch(request, how, return_map=return_map)

    def _along(self, request: Request, offset: int) -> Tensor:
        """Attend around each query's own position.

        Most scores have a path that skips hidden keys; others, and dropout, are done in chunks.
        """
        near = window(self.window, self.window, offset=offset)
        tensors = (request.query, request.key, request.value)
        mask = near if request.mask is None else near & request.mask
        options: dict[str, Any] = {"score": self.score, "mask": mask, "dropout": self._drop()}
        if not torch.compiler.is_compiling() and explain(*tensors, **options).path != "blockwise":
            return attend(*tensors, **options)
        return in_chunks(request, self.window, offset, self._drop())

    def _around(self, request: Request, center: Tensor) -> Tensor:
        return around(request, self.window, center, self._fade, self._drop())

    def _drop(self) -> float:
        return self.dropout if self.training else 0.0

    def _request(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask | Tensor | None
    ) -> Request:
        score = find_score(self.score)
        request = make_request(query, key, value, score=score, mask=mask)
        if len(request.leading) > 1:
            raise ValueError(
                f"mask should be (M, N) or (batch, M, N), without heads, got {request.mask} for "
                f"query {tuple(query.shape)}"
            )
        return request

    def _predicted(self, request: Request) -> Tensor:
        """The predicted centres p, (B, M, 1)."""
        assert self.center is not None
        return self.center(request.query, interval(request).high)

    def _fade(self, distance: Tensor) -> Tensor | None:
        """The factor of a weight at a distance from a predicted centre: exp(−d² / 2σ²)."""
        if self.center is None:
            return None
        return torch.exp(-2.0 * (distance / self.window).square())  # σ = D / 2

    def _map(self, request: Request, center: Tensor) -> AttentionMap:
        held = freeze(request)
        key = torch.arange(request.keys, device=request.key.device)

        def scores(rows: slice) -> Tensor:
            return held.scores(held.query[..., rows, :], None)

        def weights(rows: slice) -> Tensor:
            distance = key - center[..., rows, :]
            visible, mask = distance.abs() <= self.window, held.visible(rows)
            found = softmax(scores(rows), visible if mask is None else visible & mask)
            fade = self._fade(distance)
            return (found if fade is None else found * fade).to(request.value.dtype)

        return request.lazy_map(weights, scores)

    def _check(self, **inputs: Tensor) -> None:
        check_inputs({"query": self.dim, "key": self.key_dim}, **inputs)

    def extra_repr(self) -> str:
        score = f", score={self.score!r}" if isinstance(self.score, str) else ""
        return f"{self.dim}, window={self.window}{score}, dropout={self.dropout}"
