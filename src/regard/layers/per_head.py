"""A separate score for every head."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.core.lower import is_dot
from regard.core.names import find_score
from regard.core.score import DotForm, Score


class PerHead(nn.Module):
    """Head h is scored by the h-th of several scores.

    >>> import regard
    >>> score = PerHead(["dot", regard.Additive(5, 5, 7)])
    >>> score(torch.randn(3, 2, 11, 5), torch.randn(3, 2, 13, 5)).shape
    torch.Size([3, 2, 11, 13])

    Args:
        scores: a name, a module or a callable for each head
    """

    def __init__(self, scores: Sequence[str | Score] | nn.ModuleList) -> None:
        super().__init__()
        self.others: dict[int, str | Score] = {}  # names and callables, which hold no parameters
        for head, score in enumerate(scores):
            find_score(score)  # raises for an unknown name
            if isinstance(score, nn.Module):
                self.add_module(str(head), score)
            else:
                self.others[head] = score

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """(batch, heads, M, D), (batch, heads, N, D) -> (batch, heads, M, N).

        Heads may be (key heads, group) for the query and (key heads, 1) for the key.
        """
        scores = [score(q, k) for score, q, k in self._each(query, key)]
        return torch.stack(scores, dim=1).unflatten(1, query.shape[1:-2])

    def _each(self, query: Tensor, key: Tensor) -> Iterator[tuple[Any, Tensor, Tensor]]:
        """Each head's score, queries (batch, M, D) and keys (batch, N, D)."""
        queries, keys = query.flatten(1, -3), key.flatten(1, -3)
        heads, key_heads = queries.shape[1], keys.shape[1]
        for head in range(heads):
            own = getattr(self, str(head), None)
            score = find_score(self.others[head]) if own is None else own
            yield score, queries[:, head], keys[:, head * key_heads // heads]


class PerHeadDot(PerHead):
    """Scores that can all be rewritten as dot products, and so can be fused."""

    def as_dot(self, query: Tensor, key: Tensor) -> DotForm:
        forms = [score.as_dot(q, k) for score, q, k in self._each(query, key)]
        queries = torch.stack([q * scale for q, _, scale in forms], dim=1)
        keys = torch.stack([k.expand(len(query), *k.shape[1:]) for _, k, _ in forms], dim=1)
        heads = query.shape[1:-2]
        return queries.unflatten(1, heads), keys.unflatten(1, heads), 1.0


def per_head(scores: Sequence[str | Score] | nn.ModuleList, heads: int) -> PerHead:
    """One score for each of `heads` heads, fused if all of them can be."""
    if len(scores) != heads:
        raise ValueError(
            f"score has {len(scores)} scores for {heads} heads; give one for each head, or a "
            "single one for all"
        )
    fusable = all(is_dot(find_score(score)) for score in scores)
    return PerHeadDot(scores) if fusable else PerHead(scores)
