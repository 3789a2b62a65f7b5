"""Keys projected once, for the queries of every step of a decoder."""

from typing import Literal, overload

import torch
from torch import Tensor

from regard.attention import observer
from regard.attention.dispatch import (
    Attended,
    Computation,
    by_path,
    dispatch,
    map_of,
    weigh,
)
from regard.core.blocks import can_inspect_values
from regard.core.mask import lengths as real
from regard.core.request import Request, make_request
from regard.core.score import Additive
from regard.paths import kernels
from regard.system.process import limit_threads_after_fork


def prepare(
    score: Additive, key: Tensor, value: Tensor, *, lengths: Tensor | None = None
) -> "Prepared":
    """Prepare keys and values for the queries of an additive score, step by step.

    >>> import torch, regard
    >>> score = regard.Additive(3, 5, hidden=7)
    >>> states, count = torch.randn(2, 11, 5), torch.tensor([11, 4])
    >>> prepared = prepare(score, states, states, lengths=count)
    >>> query = torch.randn(2, 1, 3)
    >>> same = regard.attend(query, states, states, score=score, mask=regard.lengths(count))
    >>> torch.allclose(prepared.attend(query), same, atol=1e-6)
    True

    Args:
        score: with its present parameters
        key: (B, N, Dk)
        value: (B, N, Dv)
        lengths: (B,), how many keys of each sequence are real; all if None
    """
    if key.dim() != 3 or value.dim() != 3 or key.shape[:2] != value.shape[:2]:
        raise ValueError(
            "key and value should be (batch, N, Dk) and (batch, N, Dv), got "
            f"{tuple(key.shape)} and {tuple(value.shape)}"
        )
    if lengths is not None and lengths.shape != key.shape[:1]:
        raise ValueError(
            f"lengths should be ({len(key)},), one for each sequence, got {tuple(lengths.shape)}"
        )
    return Prepared(score, score.project(key).to(value.dtype), value, lengths)


class Prepared:
    """Projected keys and values for every step of a decoder. Bahdanau et al. 2015, A.1.2.

    With E = exp(2 W₁q) and F = exp(2 W₂k), tanh(W₁q + W₂k) = 1 − 2 / (1 + E F): F is the same at
    every step and is computed once. The gradients of keys and values are sums over the steps and
    are added up for many steps together. They can be differentiated once; for a second derivative
    use `attend`.
    """

    def __init__(self, score: Additive, key: Tensor, value: Tensor, lengths: Tensor | None) -> None:
        self.score, self.key, self.value, self.lengths = score, key, value, lengths
        self._compiled = None
        limit_threads_after_fork()
        if all(_can_run(tensor, key.dtype) for tensor in (key, value, score.vector)):
            from regard.paths.kernels.prepared import PreparedKeys

            self._compiled = PreparedKeys(key, value, score.vector, lengths)

    def select(self, index: Tensor) -> "Prepared":
        """The keys and values with entry index[i] as entry i."""
        key, value = self.key.index_select(0, index), self.value.index_select(0, index)
        lengths = None if self.lengths is None else self.lengths.index_select(0, index)
        return Prepared(self.score, key, value, lengths)

    @overload
    def attend(self, query: Tensor, *, return_map: Literal[False] = ...) -> Tensor: ...

    @overload
    def attend(self, query: Tensor, *, return_map: bool) -> Tensor | Attended: ...

    def attend(self, query: Tensor, *, return_map: bool = False) -> Tensor | Attended:
        """Return the contexts (B, M, Dv) of queries (B, M, Dq), or (B, Dv) of queries (B, Dq).

        Args:
            return_map: also return the lazy map, (B, M, N), where M is 1 for queries (B, Dq)
        """
        if query.dim() not in (2, 3) or query.shape[0] != self.key.shape[0]:
            raise ValueError(
                f"query should be ({len(self.key)}, M, Dq) or ({len(self.key)}, Dq), got shape "
                f"{tuple(query.shape)}"
            )
        rows = query if query.dim() == 3 else query.unsqueeze(1)
        attended: Tensor | Attended
        compiled = self._compiled
        if compiled is not None and _can_run(query, self.key.dtype):
            q = self.score.project_query(rows).to(self.key.dtype)  # autocast may change it
            if not observer.observing and not return_map:  # a step takes no longer than dispatch
                limit_threads_after_fork()
                attended = compiled.attend(q)
            else:
                how = Computation("additive_kernel", lambda _: compiled.attend(q), map_of, weigh)
                attended = self._dispatch(rows, how, return_map=return_map)
        else:
            attended = dispatch(self._request(rows), by_path, return_map=return_map)
        if query.dim() == 3:
            return attended
        if isinstance(attended, Attended):
            return attended._replace(output=attended.output.squeeze(1))
        return attended.squeeze(1)

    def notify(self, query: Tensor, output: Tensor) -> None:
        """Notify observers of contexts (B, M, Dv) that compiled code computed for queries."""
        how = Computation("additive_kernel", lambda _: output, map_of, weigh)
        self._dispatch(query, how)

    def _dispatch(
        self, query: Tensor, how: Computation, *, return_map: bool = False
    ) -> Tensor | Attended:
        inputs = query, self.key, self.value
        return dispatch(lambda: self._request(query), how, inputs=inputs, return_map=return_map)

    def _request(self, query: Tensor) -> Request:
        mask = None if self.lengths is None else real(self.lengths)
        return make_request(query, self.key, self.value, score=self.score.projected(), mask=mask)


def _can_run(tensor: Tensor, dtype: torch.dtype) -> bool:
    """Whether the compiled step can take a tensor here."""
    return (
        can_inspect_values(tensor)
        and tensor.dtype == dtype
        and dtype in (torch.float32, torch.float64)
        and kernels.available(tensor)
        and tensor.numel() > 0
    )
