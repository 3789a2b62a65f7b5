"""Efficient attention: softmax over the features of Q and the positions of K, then Q (Kᵀ V)."""

from functools import partial

from torch import Tensor

from regard.attention.dispatch import Attended, Computation, dispatch, weigh
from regard.core.map import AttentionMap
from regard.core.mask import Mask
from regard.core.request import Request, make_request
from regard.core.score import dot
from regard.paths.linear import linear, linear_rows


def attend_linear(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Mask | Tensor | None = None,
    causal: bool = False,
    return_map: bool = False,
) -> Tensor | Attended:
    """Attend in linear time and memory: C = ρ(Q) (ρ(K)ᵀ V). Shen et al. 2018, eq. 4.

    ρ(Q) is the softmax over the features of each query, ρ(K) the softmax over the positions of
    each key feature. The n × n map becomes a d_k × d_v context; with `causal` it runs along.

    >>> import torch, regard
    >>> x = torch.randn(2, 1000, 8)
    >>> regard.attend_linear(x, x, x, causal=True).shape
    torch.Size([2, 1000, 8])

    Args:
        query: (..., M, D)
        key: (..., N, D)
        value: (..., N, Dv)
        mask: which keys are real, for all queries alike: `lengths(keys)`, or a bool tensor
            (..., 1, N)
        causal: no query sees a later key; the last query sits on the last key
        return_map: also return the map that this implies, lazily; its rows sum to one

    Returns: the context (..., M, Dv), or `Attended(output, map)`
    """
    if query.dim() and key.dim() and query.shape[-1] != key.shape[-1]:
        raise ValueError(
            f"query and key must have the same width, got query {tuple(query.shape)} and key "
            f"{tuple(key.shape)}"
        )
    request = make_request(query, key, value, score=dot, mask=mask)
    return dispatch(request, partial(_computation, causal=causal), return_map=return_map)


def _computation(request: Request, causal: bool) -> Computation:
    seen = None
    if request.mask is not None:
        if not request.mask.ignores_queries():
            raise ValueError(
                f"linear attention cannot hide keys from one query and not another, as "
                f"{request.mask} does; hide keys with lengths(keys), later ones with causal=True"
            )
        seen = request.mask.block(slice(0, 1), slice(0, request.keys), request.grid)[..., 0, :]

    def compute(request: Request) -> Tensor:
        return linear(request.query, request.key, request.value, seen=seen, causal=causal)

    def map(request: Request) -> AttentionMap:
        def rows(which: slice) -> Tensor:
            return linear_rows(request.query, request.key, which, seen=seen, causal=causal)

        return AttentionMap(rows, None, (*request.leading, *request.size))

    return Computation("linear", compute, map, weigh, zeroes_hidden=True)
