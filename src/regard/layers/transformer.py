"""The two layers of a Transformer, whole sequences at once or step by step."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.attention import Attended
from regard.core.map import AttentionMap
from regard.core.mask import Mask, as_mask, causal
from regard.core.score import Score
from regard.layers.add_norm import PostNorm, PreNorm
from regard.layers.efficient import EfficientAttention, EfficientState
from regard.layers.feed_forward import FeedForward
from regard.layers.moves import Moves, as_moves
from regard.layers.multi_head import MultiHeadAttention, MultiHeadState
from regard.layers.position import Position

SelfAttention = Callable[[int, int], MultiHeadAttention | EfficientAttention]
"""(dim, heads) -> what attends to itself."""

AddNorm = Callable[[int, float], PostNorm]
"""(dim, dropout) -> a module with `enter` and `leave`."""

TorchLayer = nn.TransformerEncoderLayer | nn.TransformerDecoderLayer


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network, each inside Add & Norm. Vaswani 2017, section 3.1.

    Under `causal()` it is the layer of a decoder-only language model; `start` and `step` then
    give the same one position at a time.

    >>> layer = EncoderLayer(12, heads=3, hidden=24, add_norm=PreNorm)
    >>> layer(torch.randn(2, 5, 12)).shape
    torch.Size([2, 5, 12])

    Args:
        dim: width of the stream
        heads: number of heads, a divisor of `dim`
        hidden: width inside the feed-forward network
        attention: makes another self-attention from dim and heads, such as `EfficientAttention`
        kv_heads, score, position: of the attention, see `MultiHeadAttention`; not of another one
        activation: of the feed-forward network
        dropout: of attention weights, hidden units, and what each sublayer adds
        add_norm: `PostNorm`, `PreNorm`, or anything that makes one from dim and dropout
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        hidden: int,
        *,
        attention: SelfAttention | None = None,
        kv_heads: int | None = None,
        score: str | Score = "scaled_dot",
        position: Position | None = None,
        activation: Callable[[Tensor], Tensor] = torch.relu,
        dropout: float = 0.0,
        add_norm: AddNorm = PostNorm,
    ) -> None:
        super().__init__()
        if attention is None:
            self.attention: MultiHeadAttention | EfficientAttention = MultiHeadAttention(
                dim, heads, kv_heads=kv_heads, score=score, position=position, dropout=dropout
            )
        elif (kv_heads, score, position) != (None, "scaled_dot", None):
            raise ValueError("kv_heads, score and position are of multi-head attention only")
        else:
            self.attention = attention(dim, heads)
        self.feed_forward = FeedForward(dim, hidden, activation=activation, dropout=dropout)
        self.around_attention = add_norm(dim, dropout)
        self.around_feed_forward = add_norm(dim, dropout)

    @classmethod
    def from_torch(cls, layer: nn.TransformerEncoderLayer) -> "EncoderLayer":
        """A layer with a copy of torch's weights, which gives the same numbers, batch first."""
        new = cls(
            layer.self_attn.embed_dim,
            layer.self_attn.num_heads,
            layer.linear1.out_features,
            add_norm=PreNorm if layer.norm_first else PostNorm,
        )
        new.attention = MultiHeadAttention.from_torch(layer.self_attn)
        new.feed_forward = _feed_forward(layer)
        new.around_attention = _around(layer, layer.norm1, layer.dropout1)
        new.around_feed_forward = _around(layer, layer.norm2, layer.dropout2)
        return new.train(layer.training)

    def forward(
        self, x: Tensor, *, mask: Mask | Tensor | None = None, return_map: bool = False
    ) -> Tensor | Attended:
        """One layer further.

        Args:
            x: (batch, length, dim)
            mask: a Mask, or bool with True = may attend, as for `MultiHeadAttention`
            return_map: also return the lazy map of the attention, (batch, heads, M, M)

        Returns: (batch, length, dim), or `Attended(output, map)`
        """
        around = self.around_attention
        y, map = _parts(self.attention(around.enter(x), mask=mask, return_map=return_map))
        x = self._feed(around.leave(x, y))
        return x if map is None else Attended(x, map)

    def start(self, batch: int) -> MultiHeadState | EfficientState:
        """The state before the first step of the pass under `causal()`."""
        return self.attention.start(batch)

    def step(
        self, x: Tensor, state: Any, *, return_map: bool = False
    ) -> tuple[Tensor | Attended, Any]:
        """One position, x (batch, 1, dim), of the pass under `causal()`, and the new state."""
        around = self.around_attention
        attended, state = self.attention.step(around.enter(x), state, return_map=return_map)
        y, map = _parts(attended)
        x = self._feed(around.leave(x, y))
        return (x if map is None else Attended(x, map)), state

    def _feed(self, x: Tensor) -> Tensor:
        around = self.around_feed_forward
        return around.leave(x, self.feed_forward(around.enter(x)))


class Decoded(NamedTuple):
    """What a decoder layer gives, and the maps of its two attentions."""

    output: Tensor
    map: AttentionMap  # over the sequence itself, (batch, heads, M, M)
    memory_map: AttentionMap  # over the memory, (batch, heads, M, N)


class DecoderState(NamedTuple):
    """What a decoder layer remembers between steps."""

    past: MultiHeadState
    memory: MultiHeadState

    def reorder(self, index: Tensor | Moves) -> "DecoderState":
        """The state of other beams: entry i becomes what entry index[i] was."""
        moves = as_moves(index, self.past.batch)
        return DecoderState(self.past.reorder(moves), self.memory.reorder(moves))


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to a memory, and a feed-forward network.

    Each is inside Add & Norm. No position sees a later one. Vaswani et al. 2017, section 3.1.

    >>> layer = DecoderLayer(12, heads=3, hidden=24)
    >>> x, memory = torch.randn(2, 5, 12), torch.randn(2, 7, 12)
    >>> output = layer(x, memory)
    >>> y, state = layer.step(x[:, :1], layer.start(2, memory))
    >>> torch.allclose(y, output[:, :1], atol=1e-6)
    True

    Args:
        dim: width of the stream
        heads: number of heads, a divisor of `dim`
        hidden: width inside the feed-forward network
        memory_dim: width of the memory, `dim` if None
        kv_heads, score: of both attentions, see `MultiHeadAttention`
        position: of the self-attention
        activation: of the feed-forward network
        dropout: of attention weights, hidden units, and what each sublayer adds
        add_norm: `PostNorm`, `PreNorm`, or anything that makes one from dim and dropout
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        hidden: int,
        *,
        memory_dim: int | None = None,
        kv_heads: int | None = None,
        score: str | Score = "scaled_dot",
        position: Position | None = None,
        activation: Callable[[Tensor], Tensor] = torch.relu,
        dropout: float = 0.0,
        add_norm: AddNorm = PostNorm,
    ) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(
            dim, heads, kv_heads=kv_heads, score=score, position=position, dropout=dropout
        )
        self.memory_attention = MultiHeadAttention(
            dim, heads, kv_heads=kv_heads, key_dim=memory_dim, score=score, dropout=dropout
        )
        self.feed_forward = FeedForward(dim, hidden, activation=activation, dropout=dropout)
        self.around_attention = add_norm(dim, dropout)
        self.around_memory_attention = add_norm(dim, dropout)
        self.around_feed_forward = add_norm(dim, dropout)

    @classmethod
    def from_torch(cls, layer: nn.TransformerDecoderLayer) -> "DecoderLayer":
        """A layer with a copy of torch's weights, batch first.

        It gives the same numbers as torch's does under a causal `tgt_mask`.
        """
        new = cls(
            layer.self_attn.embed_dim,
            layer.self_attn.num_heads,
            layer.linear1.out_features,
            add_norm=PreNorm if layer.norm_first else PostNorm,
        )
        new.attention = MultiHeadAttention.from_torch(layer.self_attn)
        new.memory_attention = MultiHeadAttention.from_torch(layer.multihead_attn)
        new.feed_forward = _feed_forward(layer)
        new.around_attention = _around(layer, layer.norm1, layer.dropout1)
        new.around_memory_attention = _around(layer, layer.norm2, layer.dropout2)
        new.around_feed_forward = _around(layer, layer.norm3, layer.dropout3)
        return new.train(layer.training)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        *,
        mask: Mask | Tensor | None = None,
        memory_mask: Mask | Tensor | None = None,
        return_map: bool = False,
    ) -> Tensor | Decoded:
        """One layer further.

        Args:
            x: (batch, M, dim)
            memory: what the encoder gave, (batch, N, memory_dim)
            mask: what positions of x may see of those before, on top of `causal()`
            memory_mask: what they may see of the memory, such as `lengths(...)`
            return_map: also return both lazy maps

        Returns: (batch, M, dim), or `Decoded(output, map, memory_map)`
        """
        own = causal() if mask is None else causal() & as_mask(mask)
        around = self.around_attention
        y, map = _parts(self.attention(around.enter(x), mask=own, return_map=return_map))
        x = around.leave(x, y)
        around = self.around_memory_attention
        attended = self.memory_attention(
            around.enter(x), memory, mask=memory_mask, return_map=return_map
        )
        y, memory_map = _parts(attended)
        x = self._feed(around.leave(x, y))
        return x if map is None or memory_map is None else Decoded(x, map, memory_map)

    def start(
        self, batch: int, memory: Tensor, memory_mask: Mask | Tensor | None = None
    ) -> DecoderState:
        """The state before the first step; the memory is projected here, once.

        Args: those of `MultiHeadAttention.start`
        """
        past = self.attention.start(batch)
        return DecoderState(past, self.memory_attention.start(batch, memory, memory_mask))

    def step(
        self, x: Tensor, state: DecoderState, *, return_map: bool = False
    ) -> tuple[Tensor | Decoded, DecoderState]:
        """One position, x (batch, 1, dim), and the new state."""
        around = self.around_attention
        attended, past = self.attention.step(around.enter(x), state.past, return_map=return_map)
        y, map = _parts(attended)
        x = around.leave(x, y)
        around = self.around_memory_attention
        attended, memory = self.memory_attention.step(
            around.enter(x), state.memory, return_map=return_map
        )
        y, memory_map = _parts(attended)
        x = self._feed(around.leave(x, y))
        state = DecoderState(past, memory)
        if map is None or memory_map is None:
            return x, state
        return Decoded(x, map, memory_map), state

    def _feed(self, x: Tensor) -> Tensor:
        around = self.around_feed_forward
        return around.leave(x, self.feed_forward(around.enter(x)))


def _parts(attended: Tensor | Attended) -> tuple[Tensor, AttentionMap | None]:
    return (attended, None) if isinstance(attended, Tensor) else attended


def _feed_forward(layer: TorchLayer) -> FeedForward:
    """The feed-forward network of torch's layer."""
    inner, outer = deepcopy(layer.linear1), deepcopy(layer.linear2)
    new = FeedForward(inner.in_features, inner.out_features, dropout=layer.dropout.p)
    new.inner, new.outer, new.activation = inner, outer, layer.activation
    return new


def _around(layer: TorchLayer, norm: nn.LayerNorm, dropout: nn.Dropout) -> PostNorm:
    """An Add & Norm of torch's layer."""
    new = (PreNorm if layer.norm_first else PostNorm)(norm.normalized_shape[0], dropout.p)
    new.norm = deepcopy(norm)
    return new
