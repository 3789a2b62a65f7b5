"""Score functions f(q, k): how well a query matches a key.

Each score is a pure function of tensors and, where it needs parameters, a module of the same
name. A score that can be rewritten as a dot product has `as_dot`, one that can be rewritten as
w · tanh(q + k) has `as_additive`; `attend` then takes a fast path. Anything
callable as `(query, key) -> scores` is a score too. Scores of half-precision inputs are float32:
a sum of products soon leaves the range of float16.

| name | formula |
|---|---|
| dot | q · k |
| scaled_dot | q · k / √d |
| general | qᵀ W k |
| biased_general | kᵀ (W q + b) |
| activated_general | act(kᵀ W q + b) |
| additive | wᵀ tanh(W₁ q + W₂ k) |
| concat | wᵀ tanh(W [q ; k]) |
| cosine | β cos(q, k) |
| location | W q, one score per position |

To add one: write the function and a module here, and put the name into `SCORES`, or into
`WITH_PARAMETERS` and `BUILDERS` if it has parameters. Other names that it goes by belong in
`ALIASES` of `names.py`. See ARCHITECTURE.md.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.core.blocks import by_rows
from regard.core.shapes import broadcast

Score = Callable[[Tensor, Tensor], Tensor]
"""(query (..., M, Dq), key (..., N, Dk)) -> scores (..., M, N), each row on its own."""

DotForm = tuple[Tensor, Tensor, float]
"""Queries (..., M, D), keys (..., N, D) and the scale of their dot product."""

AdditiveForm = tuple[Tensor, Tensor, Tensor]
"""Projected queries (..., M, H), projected keys (..., N, H) and the weight (H,)."""


# ------------------------------------------------------------------ pure functions


def dot(query: Tensor, key: Tensor) -> Tensor:
    """Score by the dot product, q · k. Luong et al. 2015, eq. 8.

    >>> dot(torch.ones(2, 3), torch.ones(5, 3))[0, 0]
    tensor(3.)
    """
    _same_dim(query, key)
    dtype = precise(query.dtype)
    return query.to(dtype) @ key.to(dtype).transpose(-1, -2)


def scaled_dot(query: Tensor, key: Tensor) -> Tensor:
    """Score by the dot product over √d, which keeps its variance at 1. Vaswani 2017, eq. 1.

    >>> scaled_dot(torch.ones(2, 4), torch.ones(5, 4))[0, 0]
    tensor(2.)
    """
    return dot(query.to(precise(query.dtype)) * _inverse_root(query), key)


def general(query: Tensor, key: Tensor, weight: Tensor) -> Tensor:
    """Score by a bilinear form, qᵀ W k. Luong et al. 2015, eq. 8.

    Args:
        query: (..., M, Dq)
        key: (..., N, Dk)
        weight: (Dq, Dk)
    """
    return dot(*_bilinear(query, key, weight))


def biased_general(query: Tensor, key: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Score by a bilinear form with a bias on the key's side, kᵀ (W q + b). Sordoni 2016.

    Args:
        weight: (Dk, Dq)
        bias: (Dk,)
    """
    query, key = _bilinear(query, key, weight.T)
    return dot(query + bias, key)


def activated_general(
    query: Tensor,
    key: Tensor,
    weight: Tensor,
    bias: Tensor,
    activation: Callable[[Tensor], Tensor] = torch.tanh,
) -> Tensor:
    """Score by an activated bilinear form, act(kᵀ W q + b). Ma et al. 2017.

    Args:
        weight: (Dk, Dq)
        bias: a scalar, ()
    """
    return activation(general(query, key, weight.T) + bias)


def additive(query: Tensor, key: Tensor, weight: Tensor) -> Tensor:
    """Score by a one-layer network, w · tanh(q + k). Bahdanau et al. 2015, A.1.2.

    Large inputs are computed in blocks of queries, so that M × N × H never exists.

    >>> additive(torch.zeros(2, 3), torch.zeros(5, 3), torch.ones(3)).shape
    torch.Size([2, 5])

    Args:
        query: projected queries, (..., M, H)
        key: projected keys, (..., N, H)
        weight: (H,)
    """
    _same_dim(query, key)
    dtype = precise(query.dtype)
    query, key, weight = query.to(dtype), key.to(dtype), weight.to(dtype)

    def rows(block: Tensor, _: slice) -> Tensor:
        return torch.tanh(block.unsqueeze(-2) + key.unsqueeze(-3)) @ weight

    wide = broadcast(query.shape[:-2], key.shape[:-2])
    elements = math.prod(wide) * key.shape[-2] * key.shape[-1]
    return by_rows(rows, query, elements=elements)


def concat(query: Tensor, key: Tensor, weight: Tensor, vector: Tensor) -> Tensor:
    """Score by a network on the joined pair, w · tanh(W [q ; k]). Luong et al. 2015, eq. 8.

    With W = [W₁ W₂] this is `additive` of W₁ q and W₂ k, and is computed so.

    Args:
        weight: (H, Dq + Dk)
        vector: (H,)
    """
    if query.shape[-1] + key.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"this concat score takes {weight.shape[1]} numbers for query and key together, got "
            f"query {tuple(query.shape)} and key {tuple(key.shape)}"
        )
    query_weight, key_weight = weight.split([query.shape[-1], key.shape[-1]], dim=1)
    return additive(query @ query_weight.T, key @ key_weight.T, vector)


def cosine(query: Tensor, key: Tensor, beta: Tensor | float = 1.0) -> Tensor:
    """Score by the angle, β cos(q, k). Graves et al. 2014, eq. 6. A zero vector scores 0.

    >>> cosine(torch.tensor([[3.0, 0.0]]), torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
    tensor([[1., 0., 0.]])
    """
    _same_dim(query, key)
    return dot(_unit(query, beta), _unit(key))


def location(query: Tensor, key: Tensor, weight: Tensor) -> Tensor:
    """Score positions from the query alone, W q. Luong et al. 2015, eq. 8.

    Args:
        key: (..., N, Dk), of which only N matters
        weight: (positions, Dq), with positions ≥ N
    """
    return dot(_sized(query, weight.shape[1], "query"), _positions(key, weight))


# ------------------------------------------------------------------ modules


class Dot(nn.Module):
    """q · k"""

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return dot(query, key)

    def as_dot(self, query: Tensor, key: Tensor) -> DotForm:
        _same_dim(query, key)
        return query, key, 1.0


class ScaledDot(nn.Module):
    """q · k / √d"""

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return scaled_dot(query, key)

    def as_dot(self, query: Tensor, key: Tensor) -> DotForm:
        _same_dim(query, key)
        return query, key, _inverse_root(query)


class General(nn.Module):
    """qᵀ W k, with a learned W.

    Args:
        query_dim, key_dim: widths
        scale: factor of the score. Layers and models that build this score by name have
            4 / √(query_dim · key_dim) here and entries of size ¼ in W: Adam moves each of the
            query_dim · key_dim entries by up to the learning rate, so that without a scale, with
            entries of size 1 / √(query_dim · key_dim), one step can change a score by several
            units. With entries of size 1, maps stay less sharp than those of the additive score.
    """

    def __init__(self, query_dim: int, key_dim: int, *, scale: float = 1.0) -> None:
        super().__init__()
        self.weight = _form(query_dim, key_dim, scale)
        self.scale = scale

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return general(query * self.scale, key, self.weight)

    def as_dot(self, query: Tensor, key: Tensor) -> DotForm:
        return *_bilinear(query, key, self.weight), self.scale

    def extra_repr(self) -> str:
        return f"scale={self.scale:.3g}"


class BiasedGeneral(General):
    """kᵀ (W q + b), with learned W and b. Args: those of `General`."""

    def __init__(self, query_dim: int, key_dim: int, *, scale: float = 1.0) -> None:
        super().__init__(key_dim, query_dim, scale=scale)
        self.bias = nn.Parameter(torch.zeros(key_dim))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return biased_general(query, key * self.scale, self.weight, self.bias)

    def as_dot(self, query: Tensor, key: Tensor) -> DotForm:
        query, key = _bilinear(query, key, self.weight.T)
        return query + self.bias, key, self.scale


class ActivatedGeneral(nn.Module):
    """act(kᵀ W q + b), with learned W and scalar b. Args: those of `General`, and `activation`."""

    def __init__(
        self,
        query_dim: int,
        key_dim: int,
        *,
        scale: float = 1.0,
        activation: Callable[[Tensor], Tensor] = torch.tanh,
    ) -> None:
        super().__init__()
        self.weight = _form(key_dim, query_dim, scale)
        self.bias = nn.Parameter(torch.zeros(()))
        self.scale, self.activation = scale, activation

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return activated_general(query * self.scale, key, self.weight, self.bias, self.activation)


class Additive(nn.Module):
    """wᵀ tanh(W₁ q + W₂ k), with learned W₁, W₂ and w."""

    def __init__(self, query_dim: int, key_dim: int, hidden: int) -> None:
        super().__init__()
        self.query_weight = _matrix(hidden, query_dim)
        self.key_weight = _matrix(hidden, key_dim)
        self.vector = _matrix(1, hidden, squeeze=True)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return additive(*self.as_additive(query, key))

    def as_additive(self, query: Tensor, key: Tensor) -> AdditiveForm:
        return self.project_query(query), self.project(key), self.vector

    def project_query(self, query: Tensor) -> Tensor:
        """W₁ q."""
        return _project(query, self.query_weight, "query")

    def project(self, key: Tensor) -> Tensor:
        """W₂ k, for keys that many later queries read: see `projected`."""
        return _project(key, self.key_weight, "key")

    def projected(self) -> "ProjectedAdditive":
        """The same score for keys that `project` has returned."""
        return ProjectedAdditive(self)


class ProjectedAdditive:
    """wᵀ tanh(W₁ q + k), for keys projected once and read at every decoding step."""

    def __init__(self, score: Additive) -> None:
        self.score = score

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        return additive(*self.as_additive(query, key))

    def as_additive(self, query: Tensor, key: Tensor) -> AdditiveForm:
        key = _sized(key, self.score.vector.shape[0], "key")
        return self.score.project_query(query), key, self.score.vector


class Concat(nn.Module):
    """wᵀ tanh(W [q ; k]), with learned W and w."""

    def __init__(self, query_dim: int, key_dim: int, hidden: int) -> None:
        super().__init__()
        self.query_dim = query_dim
        self.weight = _matrix(hidden, query_dim + key_dim)
        self.vector = _matrix(1, hidden, squeeze=True)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return additive(*self.as_additive(query, key))

    def as_additive(self, query: Tensor, key: Tensor) -> AdditiveForm:
        query_weight, key_weight = self.weight.tensor_split([self.query_dim], dim=1)
        projected = _project(query, query_weight, "query"), _project(key, key_weight, "key")
        return *projected, self.vector


class Cosine(nn.Module):
    """β cos(q, k), with a learned sharpness β."""

    def __init__(self, beta: float = 1.0) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.tensor(float(beta)))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return cosine(query, key, self.beta)

    def as_dot(self, query: Tensor, key: Tensor) -> DotForm:
        _same_dim(query, key)
        return _unit(query, self.beta), _unit(key), 1.0


class PlainCosine(nn.Module):
    """cos(q, k), without a parameter, which would get the device and mode of the import."""

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return cosine(query, key)

    def as_dot(self, query: Tensor, key: Tensor) -> DotForm:
        _same_dim(query, key)
        return _unit(query), _unit(key), 1.0


class Location(nn.Module):
    """W q, one learned score per position; keys beyond `max_length` are an error."""

    def __init__(self, query_dim: int, max_length: int) -> None:
        super().__init__()
        self.weight = _matrix(max_length, query_dim)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return location(query, key, self.weight)

    def as_dot(self, query: Tensor, key: Tensor) -> DotForm:
        query = _sized(query, self.weight.shape[1], "query")
        return query, _positions(key, self.weight), 1.0


SCORES: dict[str, nn.Module] = {
    "dot": Dot(),
    "scaled_dot": ScaledDot(),
    "cosine": PlainCosine(),
}
"""Scores that need no parameters, by name; they take queries and keys of one width."""

WITH_PARAMETERS = {
    "general": "General(query_dim, key_dim)",
    "biased_general": "BiasedGeneral(query_dim, key_dim)",
    "activated_general": "ActivatedGeneral(query_dim, key_dim)",
    "additive": "Additive(query_dim, key_dim, hidden)",
    "concat": "Concat(query_dim, key_dim, hidden)",
    "location": "Location(query_dim, max_length)",
}
"""The module to pass instead of the name of a score with parameters."""

MAX_LOCATIONS = 512
"""Positions that a location score made by name has weights for."""


def _unsized(kind: type[nn.Module], query_dim: int, key_dim: int) -> nn.Module:
    return kind()


def _bilinear_form(kind: type[nn.Module], query_dim: int, key_dim: int) -> nn.Module:
    return kind(query_dim, key_dim, scale=4 / math.sqrt(query_dim * key_dim))


BUILDERS: dict[str, Callable[[int, int], nn.Module]] = {
    **{name: partial(_unsized, type(score)) for name, score in SCORES.items()},
    "cosine": lambda query_dim, key_dim: Cosine(),
    "general": partial(_bilinear_form, General),
    "biased_general": partial(_bilinear_form, BiasedGeneral),
    "activated_general": partial(_bilinear_form, ActivatedGeneral),
    "additive": lambda query_dim, key_dim: Additive(query_dim, key_dim, query_dim),
    "concat": lambda query_dim, key_dim: Concat(query_dim, key_dim, query_dim),
    "location": lambda query_dim, key_dim: Location(query_dim, MAX_LOCATIONS),
}
"""From query_dim and key_dim to a score with its own parameters, for layers and models."""


def precise(dtype: torch.dtype) -> torch.dtype:
    """float32 for half precision, else the dtype itself."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _inverse_root(query: Tensor) -> float:
    return 1.0 / math.sqrt(max(query.shape[-1], 1))


def _unit(vector: Tensor, length: Tensor | float = 1.0) -> Tensor:
    """The vector with another length; a zero vector stays zero and gets no gradient."""
    exact = vector.to(precise(vector.dtype))
    square = exact.square().sum(-1, keepdim=True)
    zero = square == 0
    shrink = square.masked_fill(zero, 1.0).rsqrt().masked_fill(zero, 0.0) * length
    return (exact * shrink).to(vector.dtype)


def _bilinear(query: Tensor, key: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """qᵀ W and k, for a W of shape (Dq, Dk)."""
    query_dim, key_dim = weight.shape
    return _sized(query, query_dim, "query") @ weight, _sized(key, key_dim, "key")


def _project(tensor: Tensor, weight: Tensor, name: str) -> Tensor:
    """W x, for a W of shape (hidden, D)."""
    return F.linear(_sized(tensor, weight.shape[1], name), weight)


def _sized(tensor: Tensor, dim: int, name: str) -> Tensor:
    """The tensor, if its last dimension is the one that the score was built for."""
    if tensor.shape[-1] != dim:
        raise ValueError(
            f"this score takes {name} of shape (..., length, {dim}), got {tuple(tensor.shape)}; "
            f"build it with {name}_dim={tensor.shape[-1]}, or project the {name} first"
        )
    return tensor


def _same_dim(query: Tensor, key: Tensor) -> None:
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            f"this score takes query and key of the same last dimension, got query "
            f"{tuple(query.shape)} and key {tuple(key.shape)}; project one of them, or use "
            f"score=regard.General({query.shape[-1]}, {key.shape[-1]})"
        )


def _positions(key: Tensor, weight: Tensor) -> Tensor:
    """The rows of `weight` that are used as keys, (1, ..., N, Dq)."""
    length, most = key.shape[-2], weight.shape[0]
    if length > most:
        raise ValueError(
            f"this location score has {most} positions but there are {length} keys; "
            f"build it with max_length={length} or more"
        )
    return weight[:length].expand(*(1,) * (key.dim() - 2), length, weight.shape[1])


def _form(rows: int, columns: int, scale: float) -> nn.Parameter:
    """The weight of a bilinear form: its scores begin with variance 1, as those of scaled dot."""
    return nn.Parameter(torch.randn(rows, columns) / (scale * math.sqrt(rows * columns)))


def _matrix(rows: int, columns: int, *, squeeze: bool = False) -> nn.Parameter:
    """A weight with entries of variance 2 / (rows + columns): Glorot & Bengio 2010, eq. 16."""
    weight = nn.init.xavier_uniform_(torch.empty(rows, columns))
    return nn.Parameter(weight[0] if squeeze else weight)
