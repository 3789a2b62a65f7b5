"""Keys prepared once and asked at every step of a decoder."""

from typing import Literal, overload

import torch
from torch import Tensor

from regard.attention import observer
from regard.attention.attend import Attended, attend, map_of
from regard.core.blocks import can_inspect_values
from regard.core.mask import Mask
from regard.core.mask import lengths as real
from regard.core.normalize import softmax
from regard.core.process import limit_threads_after_fork
from regard.core.request import Request, make_request
from regard.core.score import Additive
from regard.paths import kernels


def prepare(
    score: Additive, key: Tensor, value: Tensor, *, lengths: Tensor | None = None
) -> "Prepared":
    """Prepare keys and values to be asked by an additive score, step by step.

    >>> import torch, regard
    >>> score = regard.Additive(3, 5, hidden=7)
    >>> states, count = torch.randn(2, 11, 5), torch.tensor([11, 4])
    >>> prepared = prepare(score, states, states, lengths=count)
    >>> query = torch.randn(2, 1, 3)
    >>> same = regard.attend(query, states, states, score=score, mask=regard.lengths(count))
    >>> torch.allclose(prepared.attend(query), same, atol=1e-6)
    True

    Args:
        score: its parameters are taken as they are now
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
    return Prepared(score, score.project(key), value, lengths)


class Prepared:
    """Projected keys and values that a decoder asks at every step. Bahdanau et al. 2015, A.1.2.

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
        """Other sequences: entry i is what entry index[i] was."""
        key, value = self.key.index_select(0, index), self.value.index_select(0, index)
        lengths = None if self.lengths is None else self.lengths.index_select(0, index)
        return Prepared(self.score, key, value, lengths)

    @overload
    def attend(self, query: Tensor, *, return_map: Literal[False] = ...) -> Tensor: ...

    @overload
    def attend(self, query: Tensor, *, return_map: bool) -> Tensor | Attended: ...

    def attend(self, query: Tensor, *, return_map: bool = False) -> Tensor | Attended:
        """The contexts (B, M, Dv) of queries (B, M, Dq), or (B, Dv) of one query each, (B, Dq).

        Args:
            query: (B, M, Dq) or (B, Dq)
            return_map: also return the lazy map, (B, M, N), where M is 1 for queries (B, Dq)
        """
        if query.dim() not in (2, 3) or len(query) != len(self.key):
            raise ValueError(
                f"query should be ({len(self.key)}, M, Dq) or ({len(self.key)}, Dq), got shape "
                f"{tuple(query.shape)}"
            )
        told = observer.observers() if observer.observing else ()
        if (
            self._compiled is None
            or not _can_run(query, self.key.dtype)
            or observer.any_edits(told)
        ):
            return self._attend(query, return_map=return_map)
        output = self._compiled.attend(self.score.project_query(query))
        if not told and not return_map:
            return output
        if told:
            self.tell(query, output)
        return Attended(output, map_of(self._request(query))) if return_map else output

    def tell(self, query: Tensor, output: Tensor) -> None:
        """Tell those who watch of contexts that compiled code found for queries."""
        rows = output if output.dim() == 3 else output.unsqueeze(1)
        observer.notify_request(
            observer.observers(), self._request(query), rows, "additive_kernel", map_of
        )

    def _attend(self, query: Tensor, *, return_map: bool) -> Tensor | Attended:
        """The same by `attend`."""
        rows = query if query.dim() == 3 else query.unsqueeze(1)
        score, mask = self.score.projected(), self._mask()
        attended = attend(rows, self.key, self.value, score=score, mask=mask, return_map=return_map)
        if query.dim() == 3:
            return attended
        if isinstance(attended, Attended):
            return attended._replace(output=attended.output.squeeze(1))
        return attended.squeeze(1)

    def _request(self, query: Tensor) -> Request:
        return make_request(
            query if query.dim() == 3 else query.unsqueeze(1),
            self.key,
            self.value,
            score=self.score.projected(),
            mask=self._mask(),
            bias=None,
            normalize=softmax,
            dropout=0.0,
        )

    def _mask(self) -> Mask | None:
        return None if self.lengths is None else real(self.lengths)


def _can_run(tensor: Tensor, dtype: torch.dtype) -> bool:
    """Whether the compiled step can take a tensor, here and now."""
    return (
        can_inspect_values()
        and tensor.dtype == dtype
        and dtype in (torch.float32, torch.float64)
        and kernels.available(tensor)
        and tensor.numel() > 0
    )
