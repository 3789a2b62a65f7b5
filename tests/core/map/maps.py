"""Small maps, and a score that counts the rows it computes."""

from typing import Any

import torch
from torch import Tensor

import regard
from regard.core.map import AttentionMap

B, H, M, N, D, E = 2, 3, 5, 7, 11, 13


def numbers(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def inputs(*leading: int, grad: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    shapes = ((*leading, M, D), (*leading, N, D), (*leading, N, E))
    q, k, v = (numbers(*shape, seed=i).requires_grad_(grad) for i, shape in enumerate(shapes))
    return q, k, v


def a_map(*leading: int, **more: Any) -> AttentionMap:
    return regard.attend(*inputs(*leading), return_map=True, **more).map


class Counting:
    """A dot product that counts the query rows of its calls."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        self.rows.append(query.shape[-2])
        return query @ key.transpose(-1, -2)
