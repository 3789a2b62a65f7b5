"""Multi-head latent attention: keys and values of all heads from one small vector per position."""

import torch
from torch import Tensor, nn

from regard.attention import Attended, attend
from regard.attention.observer import observed
from regard.core.mask import Mask, causal
from regard.layers.cache import Past
from regard.layers.checks import check_heads
from regard.layers.masking import mask_over_heads, zero_hidden_inputs
from regard.layers.rotary import Rotary


class LatentAttention(nn.Module):
    """Self-attention whose cache holds `latent + rotary` numbers per position, whatever the heads.

        c_t = norm(W_DKV x_t),  k_t,i = [W_UK,i c_t ; RoPE(W_KR x_t)],  v_t,i = W_UV,i c_t

    DeepSeek-V2 (2024, arXiv 2405.04434), eq. 9-19. A step never makes keys and values: W_UK is
    absorbed into the query and W_UV into the output, so that all heads attend to the latents.

    >>> layer = LatentAttention(12, heads=3, latent=5, head_dim=4, rotary=2)
    >>> x = torch.randn(2, 7, 12)
    >>> layer(x, mask=causal()).shape
    torch.Size([2, 7, 12])
    >>> y, state = layer.step(x[:, :1], layer.start(2))
    >>> torch.allclose(y, layer(x, mask=causal())[:, :1], atol=1e-6), state.tensors[0].shape[-1]
    (True, 7)

    Args:
        dim: width of input and output
        heads: number of heads
        latent: width of the latent vector that keys and values are made from
        head_dim: width of a head without positions, `dim / heads` if not given
        rotary: width of the part of a key that carries the position, shared by all heads; even
        query_latent: width of a latent for the queries; None projects them directly
        dropout: of the weights, in train mode
        base: of the rotary frequencies
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        latent: int,
        head_dim: int | None = None,
        rotary: int,
        query_latent: int | None = None,
        dropout: float = 0.0,
        base: float = 10_000.0,
    ) -> None:
        super().__init__()
        if head_dim is None:
            check_heads(dim, heads)
            head_dim = dim // heads
        if latent < 1 or rotary < 2 or rotary % 2:
            raise ValueError(
                f"latent must be at least 1 and rotary an even number from 2 on, got {latent} "
                f"and {rotary}"
            )
        self.heads, self.head_dim, self.rotary_dim = heads, head_dim, rotary
        self.dropout = dropout
        width = heads * (head_dim + rotary)
        self.query_projection: nn.Module = nn.Linear(dim, width, bias=False)
        if query_latent is not None:
            down, up = (
                nn.Linear(dim, query_latent, bias=False),
                nn.Linear(query_latent, width, bias=False),
            )
            self.query_projection = nn.Sequential(down, nn.RMSNorm(query_latent), up)
        self.down_projection = nn.Linear(dim, latent + rotary, bias=False)
        self.latent_norm = nn.RMSNorm(latent)
        self.key_projection = nn.Linear(latent, heads * head_dim, bias=False)
        self.value_projection = nn.Linear(latent, heads * head_dim, bias=False)
        self.output_projection = nn.Linear(heads * head_dim, dim, bias=False)
        self.rotary = Rotary(rotary, base=base)

    @observed
    def forward(
        self, x: Tensor, *, mask: Mask | Tensor | None = None, return_map: bool = False
    ) -> Tensor | Attended:
        """Attend among the positions of x.

        Args:
            x: (batch, N, dim)
            mask: a Mask, or bool with True = may attend
            return_map: also return the lazy map, (batch, heads, N, N)

        Returns: (batch, N, dim), or `Attended(output, map)`
        """
        mask = None if mask is None else mask_over_heads(mask)
        queries, keys, _ = zero_hidden_inputs(x, x, x, mask)
        query, (latents, position) = self._queries(queries, 0), self._latents(keys, 0)
        key, value = (
            projection(latents).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for projection in (self.key_projection, self.value_projection)
        )  # (batch, heads, N, head_dim)
        key = torch.cat([key, position.unsqueeze(1).expand(-1, self.heads, -1, -1)], -1)
        dropout = self.dropout if self.training else 0.0
        context, map = attend(query, key, value, mask=mask, dropout=dropout, return_map=True)
        output = self.output_projection(context.transpose(1, 2).flatten(-2))
        return Attended(output, map) if return_map else output

    def start(self, batch: int) -> Past:
        """The state before the first step: an empty cache."""
        return Past(batch)

    @observed
    def step(self, x: Tensor, state: Past) -> tuple[Tensor, Past]:
        """One or more positions of the pass under `causal()`.

        Args:
            x: (batch, steps, dim)
            state: from `start` or the last step; it stays valid

        Returns: (batch, steps, dim) and the new state
        """
        offset = state.length
        query = self._queries(x, offset)
        state = state.append(torch.cat(self._latents(x, offset), -1))
        (cached,) = state.tensors  # (batch, N, latent + rotary)
        up = self.key_projection.weight.unflatten(0, (self.heads, -1))  # (heads, head_dim, latent)
        absorbed = query[..., : self.head_dim] @ up
        scale = ((absorbed.shape[-1] + self.rotary_dim) / query.shape[-1]) ** 0.5
        query = torch.cat([absorbed, query[..., self.head_dim :]], -1) * scale
        key = cached.unsqueeze(1)  # one key for all heads
        value = key[..., : absorbed.shape[-1]]
        context = attend(query, key, value, mask=causal() if x.shape[1] > 1 else None)
        down = self.value_projection.weight.unflatten(0, (self.heads, -1))
        context = context @ down.transpose(-1, -2)  # (batch, heads, steps, head_dim)
        return self.output_projection(context.transpose(1, 2).flatten(-2)), state

    def _queries(self, x: Tensor, offset: int) -> Tensor:
        """(batch, heads, steps, head_dim + rotary)."""
        query = self.query_projection(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        plain, turned = query.split([self.head_dim, self.rotary_dim], -1)
        return torch.cat([plain, self.rotary.rotate(turned, offset)], -1)

    def _latents(self, x: Tensor, offset: int) -> tuple[Tensor, Tensor]:
        """The latents (batch, steps, latent) and the keys' positions (batch, steps, rotary)."""
        latents, position = self.down_projection(x).split(
            [self.latent_norm.normalized_shape[0], self.rotary_dim], -1
        )
        return self.latent_norm(latents), self.rotary.rotate(position, offset)
