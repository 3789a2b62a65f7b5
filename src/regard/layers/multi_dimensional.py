"""Multi-dimensional attention: a score for every feature of every pair."""

from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Attended, attend, attend_features
from regard.attention.observer import observed
from regard.core.mask import Mask
from regard.layers.checks import check_inputs, check_sizes
from regard.layers.masking import mask_over_heads, padding_mask, zero_hidden_inputs, zero_padding


class MultiDimensionalAttention(nn.Module):
    """Attend feature by feature, token to token.

        s_ij = c · tanh((W₁ q_i + W₂ k_j + b) / c),  P_ij = softmax over j of each feature of s_ij
        o_i = Σ_j P_ij ⊙ v_j

    Shen et al. 2018 (DiSAN), sections 3.2 (token2token) and 3.3. The values are not projected: a
    feature of the output is an average of that feature of the values. The paper's directional
    masks are `regard.causal(offset=-1)` and `~regard.causal()`.

    >>> import torch
    >>> layer = MultiDimensionalAttention(5)
    >>> output, map = layer(torch.randn(2, 7, 5), return_map=True)
    >>> output.shape, map.shape
    (torch.Size([2, 7, 5]), torch.Size([2, 5, 7, 7]))

    Args:
        dim: width of the queries
        key_dim: width of the keys, `dim` if not given
        value_dim: width of the values and of the output, `key_dim` if not given
        scale: c, the bound of the scores
    """

    def __init__(
        self,
        dim: int,
        *,
        key_dim: int | None = None,
        value_dim: int | None = None,
        scale: float = 5.0,
    ) -> None:
        super().__init__()
        key_dim = dim if key_dim is None else key_dim
        value_dim = key_dim if value_dim is None else value_dim
        check_sizes(dim=dim, key_dim=key_dim, value_dim=value_dim)
        if not scale > 0:
            raise ValueError(f"scale, the bound of the scores, must be above 0, got {scale}")
        self.query_projection = nn.Linear(dim, value_dim)  # W₁, b
        self.key_projection = nn.Linear(key_dim, value_dim, bias=False)  # W₂
        self.scale = scale

    @observed
    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        return_map: bool = False,
    ) -> Tensor | Attended:
        """Attend to keys, or to the queries themselves.

        Args:
            query: (B, M, dim)
            key: (B, N, key_dim), the query if not given
            value: (B, N, value_dim), the key if not given
            mask: a Mask, or bool (M, N) or (B, M, N) with True = may attend
            return_map: also return the lazy map, (B, value_dim, M, N): features are like heads

        Returns: (B, M, value_dim), or `Attended(output, map)`
        """
        key = query if key is None else key
        value = key if value is None else value
        self._check(query, key, value)
        if mask is not None:
            query, key, value = zero_hidden_inputs(query, key, value, mask_over_heads(mask))
        return attend_features(
            self.query_projection(query).to(value.dtype),
            self.key_projection(key).to(value.dtype),
            value,
            mask=mask,
            scale=self.scale,
            return_map=return_map,
        )

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        value_dim, dim = self.query_projection.weight.shape
        widths = {"query": dim, "key": self.key_projection.in_features, "value": value_dim}
        check_inputs(widths, query=query, key=key, value=value)

    def extra_repr(self) -> str:
        return f"scale={self.scale:g}"


class SourceToToken(nn.Module):
    """Pool a sequence to one vector, feature by feature.

        s_j = Wᵀ σ(W₁ x_j + b₁) + b,  P_j = softmax over j of each feature of s_j
        o = Σ_j P_j ⊙ x_j

    Shen et al. 2018 (DiSAN), section 3.2 (source2token), with ELU as σ. A sequence without a real
    position gives zeros.

    >>> import torch
    >>> pool = SourceToToken(5)
    >>> pool(torch.randn(2, 7, 5), mask=torch.tensor([7, 0])).shape
    torch.Size([2, 5])

    Args:
        dim: width of the positions, and number of scores of each
        hidden: width between W₁ and W, `dim` if not given
    """

    def __init__(self, dim: int, hidden: int | None = None) -> None:
        super().__init__()
        hidden = dim if hidden is None else hidden
        check_sizes(dim=dim, hidden=hidden)
        self.inner = nn.Linear(dim, hidden)  # W₁, b₁
        self.outer = nn.Linear(hidden, dim)  # W, b

    @observed
    def forward(
        self, x: Tensor, *, mask: Mask | Tensor | None = None, return_map: bool = False
    ) -> Tensor | Attended:
        """Pool over the last dimension but one.

        Args:
            x: (B, L, dim)
            mask: which is real: lengths (B,), bool (B, L) with True = real, or a Mask
            return_map: also return the lazy map, (B, dim, 1, L): features are like heads

        Returns: (B, dim), or `Attended(output, map)`
        """
        if x.dim() != 3 or x.shape[-1] != self.inner.in_features:
            raise ValueError(
                f"x should be (batch, length, {self.inner.in_features}), got {tuple(x.shape)}"
            )
        mask = padding_mask(mask, x)
        x = zero_padding(x, mask)
        scores = self.outer(F.elu(self.inner(x))).to(x.dtype)  # (B, L, dim)
        # each feature is a head with its scores as keys and 1 as its only query
        attended = attend(
            x.new_ones(1, 1, 1, 1),
            scores.mT.unsqueeze(-1),  # (B, dim, L, 1)
            x.mT.unsqueeze(-1),
            score="dot",
            mask=mask,
            return_map=return_map,
        )
        if isinstance(attended, Attended):
            return Attended(attended.output.flatten(-3), attended.map)
        return attended.flatten(-3)
