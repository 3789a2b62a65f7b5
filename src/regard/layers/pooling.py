"""Pooling by attention: learned queries turn a set of any size into a fixed number of vectors."""

import torch
from torch import Tensor, nn

from regard.attention import Attended
from regard.core.mask import Mask
from regard.layers.checks import check_sizes
from regard.layers.multi_head import MultiHeadAttention


class PoolingAttention(nn.Module):
    """Pool a set with several heads of attention from learned queries S.

        output = MultiHead(S, X, X),  S ∈ R^(queries × dim)

    This is the attention of PMA (Lee et al. 2019, eq. 11) and of the Perceiver's latent array
    (Jaegle et al. 2021, section 3.1); both put norms and a feed-forward layer around it. It costs
    queries · N, and the order of the set does not matter. An empty set gives `output_projection`
    of zeros.

    >>> import regard
    >>> pool = PoolingAttention(12, heads=3, queries=2)
    >>> pool(torch.randn(5, 7, 12), mask=regard.lengths([7, 3, 1, 0, 5])).shape
    torch.Size([5, 2, 12])

    Args:
        dim: width of the queries and the output
        heads: number of heads, a divisor of `dim`
        queries: the number of vectors that a set becomes
        input_dim: width of the set, `dim` if None
        dropout: of the weights, in train mode
        bias: whether the projections have one
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        queries: int = 1,
        input_dim: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_sizes(queries=queries)
        self.attention = MultiHeadAttention(
            dim, heads, key_dim=input_dim, dropout=dropout, bias=bias
        )
        self.queries = nn.Parameter(torch.empty(queries, dim))
        nn.init.xavier_uniform_(self.queries)

    def forward(
        self, x: Tensor, *, mask: Mask | Tensor | None = None, return_map: bool = False
    ) -> Tensor | Attended:
        """Pool.

        Args:
            x: (batch, N, input_dim)
            mask: which of the set each query may see: `lengths` for padding, or bool with
                True = may attend, (queries, N), (batch, queries, N) or (batch, 1, N)
            return_map: also return the lazy map, (batch, heads, queries, N)

        Returns: (batch, queries, dim), or `Attended(output, map)`
        """
        queries = self.queries.expand(len(x), *self.queries.shape)
        return self.attention(queries, x, mask=mask, return_map=return_map)
