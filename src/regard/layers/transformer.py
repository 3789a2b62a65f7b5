"""The layers of a Transformer, over whole sequences or step by step.

Each sublayer f, attention or feed-forward network, is inside an Add & Norm, in one of two orders:

    post-norm, Vaswani et al. 2017, section 3.1:   norm(x + dropout(f(x)))
    pre-norm, Xiong et al. 2020, section 3:        x + dropout(f(norm(x)))

Post-norm needs a warm-up of the learning rate; pre-norm trains without it and needs one more norm
after the last layer.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.core.mask import Mask, as_mask, causal
from regard.core.score import Score
from regard.layers.checks import check_dropout, check_sizes
from regard.layers.dropout import drop
from regard.layers.efficient import EfficientAttention, EfficientState
from regard.layers.multi_head import MultiHeadAttention, MultiHeadState
from regard.layers.position import Position
from regard.layers.reorder import BatchReorder, as_reorder

SelfAttention = Callable[[int, int], MultiHeadAttention | EfficientAttention]
"""(dim, heads) -> a self-attention."""

TorchLayer = nn.TransformerEncoderLayer | nn.TransformerDecoderLayer


class PostNorm(nn.Module):
    """norm(x + dropout(f(x)))

    >>> add_norm = PostNorm(5)
    >>> x = torch.randn(2, 3, 5)
    >>> y = add_norm.leave(x, torch.tanh(add_norm.enter(x)))
    >>> torch.equal(y, add_norm.norm(x + torch.tanh(x)))
    True

    Args:
        dim: width of x
        dropout: of the sublayer's output, in train mode
        norm: makes a module from `dim`, such as `nn.LayerNorm` or `nn.RMSNorm`
    """

    def __init__(
        self,
        dim: int,
        dropout: float = 0.0,
        *,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
    ) -> None:
        super().__init__()
        check_dropout(dropout)
        self.norm = norm(dim)
        self.dropout = dropout

    def enter(self, x: Tensor) -> Tensor:
        """The input of the sublayer."""
        return x

    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        """The result, given the sublayer's output y."""
        return self.norm(x + drop(y, self.dropout, self.training))

    def extra_repr(self) -> str:
        return f"dropout={self.dropout}"


class PreNorm(PostNorm):
    """x + dropout(f(norm(x)))"""

    def enter(self, x: Tensor) -> Tensor:
        return self.norm(x)

    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        return x + drop(y, self.dropout, self.training)


AddNorm = Callable[[int, float], PostNorm]
"""(dim, dropout) -> a module with `enter` and `leave`."""


class FeedForward(nn.Module):
    """Two linear layers with a nonlinearity between, the same at every position.

        FFN(x) = max(0, x W₁ + b₁) W₂ + b₂

    Vaswani et al. 2017, eq. 2.

    >>> FeedForward(5, 11)(torch.zeros(2, 3, 5)).shape
    torch.Size([2, 3, 5])

    Args:
        dim: width of input and output
        hidden: width between, 4 · dim in the paper
        activation: any element-wise function or module
        dropout: of the hidden units, in train mode
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        *,
        activation: Callable[[Tensor], Tensor] = torch.relu,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_sizes(dim=dim, hidden=hidden)
        check_dropout(dropout)
        self.inner = nn.Linear(dim, hidden)
        self.outer = nn.Linear(hidden, dim)
        self.activation = activation
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """x (..., dim) to (..., dim)."""
        hidden = self.activation(self.inner(x))  # (..., hidden)
        return self.outer(drop(hidden, self.dropout, self.training))


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network, each inside Add & Norm. Vaswani 2017, section 3.1.

    Under `causal()` it is the layer of a decoder-only language model; `start` and `step` then
    give the same one position at a time.

    >>> layer = EncoderLayer(12, heads=3, hidden=24, add_norm=PreNorm)
    >>> layer(torch.randn(2, 5, 12)).shape
    torch.Size([2, 5, 12])

    Args:
        dim: width of input and output
        heads: number of heads, a divisor of `dim`
        hidden: width inside the feed-forward network
        attention: makes another self-attention from dim and heads, such as `EfficientAttention`
        kv_heads, score, position: of `MultiHeadAttention`, without `attention`
        activation: of the feed-forward network
        dropout: of attention weights, hidden units, and the output of each sublayer
        add_norm: `PostNorm`, `PreNorm`, or any function (dim, dropout) -> one of them
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
            raise ValueError("kv_heads, score and position are options of multi-head attention")
        else:
            self.attention = attention(dim, heads)
        self.feed_forward = FeedForward(dim, hidden, activation=activation, dropout=dropout)
        self.around_attention = add_norm(dim, dropout)
        self.around_feed_forward = add_norm(dim, dropout)

    @classmethod
    def from_torch(cls, layer: nn.TransformerEncoderLayer) -> "EncoderLayer":
        """A layer with a copy of torch's weights, which gives the same numbers, batch first."""
        attention = layer.self_attn
        new = cls(attention.embed_dim, attention.num_heads, layer.linear1.out_features)
        new.attention = MultiHeadAttention.from_torch(attention)
        new.feed_forward = _feed_forward(layer)
        new.around_attention = _add_norm(layer, layer.norm1, layer.dropout1)
        new.around_feed_forward = _add_norm(layer, layer.norm2, layer.dropout2)
        return new.train(layer.training)

    def forward(self, x: Tensor, *, mask: Mask | Tensor | None = None) -> Tensor:
        """x (batch, length, dim) to the same.

        Args:
            mask: a Mask, or bool with True = may attend, as for `MultiHeadAttention`
        """
        around = self.around_attention
        x = around.leave(x, self.attention(around.enter(x), mask=mask))
        around = self.around_feed_forward
        return around.leave(x, self.feed_forward(around.enter(x)))

    def start(self, batch: int) -> MultiHeadState | EfficientState:
        """The state before the first step of the pass under `causal()`."""
        return self.attention.start(batch)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One position, x (batch, 1, dim), of the pass under `causal()`, and the new state."""
        around = self.around_attention
        y, state = self.attention.step(around.enter(x), state)
        x = around.leave(x, y)  # type: ignore[arg-type]
        around = self.around_feed_forward
        return around.leave(x, self.feed_forward(around.enter(x))), state


class DecoderState(NamedTuple):
    """The state of a decoder layer between steps."""

    past: MultiHeadState
    memory: MultiHeadState

    def reorder(self, index: Tensor | BatchReorder) -> "DecoderState":
        """The state of other beams: entry i becomes what entry index[i] was."""
        order = as_reorder(index, self.past.batch)
        return DecoderState(self.past.reorder(order), self.memory.reorder(order))


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to a memory, and a feed-forward network.

    Each is inside Add & Norm. No position attends to a later one. Vaswani et al. 2017, section 3.1.

    >>> layer = DecoderLayer(12, heads=3, hidden=24)
    >>> x, memory = torch.randn(2, 5, 12), torch.randn(2, 7, 12)
    >>> output = layer(x, memory)
    >>> y, state = layer.step(x[:, :1], layer.start(2, memory))
    >>> torch.allclose(y, output[:, :1], atol=1e-6)
    True

    Args:
        dim: width of input and output
        heads: number of heads, a divisor of `dim`
        hidden: width inside the feed-forward network
        memory_dim: width of the memory, `dim` if None
        kv_heads, score: of both attentions, see `MultiHeadAttention`
        position: of the self-attention
        activation: of the feed-forward network
        dropout: of attention weights, hidden units, and the output of each sublayer
        add_norm: `PostNorm`, `PreNorm`, or any function (dim, dropout) -> one of them
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
        options: dict[str, Any] = {"kv_heads": kv_heads, "score": score, "dropout": dropout}
        self.attention = MultiHeadAttention(dim, heads, position=position, **options)
        self.memory_attention = MultiHeadAttention(dim, heads, key_dim=memory_dim, **options)
        self.feed_forward = FeedForward(dim, hidden, activation=activation, dropout=dropout)
        self.around_attention = add_norm(dim, dropout)
        self.around_memory_attention = add_norm(dim, dropout)
        self.around_feed_forward = add_norm(dim, dropout)

    @classmethod
    def from_torch(cls, layer: nn.TransformerDecoderLayer) -> "DecoderLayer":
        """A layer with a copy of torch's weights, batch first.

        It gives the same numbers as torch's does under a causal `tgt_mask`.
        """
        attention = layer.self_attn
        new = cls(attention.embed_dim, attention.num_heads, layer.linear1.out_features)
        new.attention = MultiHeadAttention.from_torch(attention)
        new.memory_attention = MultiHeadAttention.from_torch(layer.multihead_attn)
        new.feed_forward = _feed_forward(layer)
        new.around_attention = _add_norm(layer, layer.norm1, layer.dropout1)
        new.around_memory_attention = _add_norm(layer, layer.norm2, layer.dropout2)
        new.around_feed_forward = _add_norm(layer, layer.norm3, layer.dropout3)
        return new.train(layer.training)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        *,
        mask: Mask | Tensor | None = None,
        memory_mask: Mask | Tensor | None = None,
    ) -> Tensor:
        """x (batch, M, dim) to the same.

        Args:
            memory: the encoder's output, (batch, N, memory_dim)
            mask: of the self-attention, on top of `causal()`
            memory_mask: of the attention to the memory, such as `lengths(...)`
        """
        own = causal() if mask is None else causal() & as_mask(mask)
        around = self.around_attention
        x = around.leave(x, self.attention(around.enter(x), mask=own))
        around = self.around_memory_attention
        x = around.leave(x, self.memory_attention(around.enter(x), memory, mask=memory_mask))
        around = self.around_feed_forward
        return around.leave(x, self.feed_forward(around.enter(x)))

    def start(
        self, batch: int, memory: Tensor, memory_mask: Mask | Tensor | None = None
    ) -> DecoderState:
        """The state before the first step; the memory is projected here, once.

        Args: those of `MultiHeadAttention.start`
        """
        past = self.attention.start(batch)
        return DecoderState(past, self.memory_attention.start(batch, memory, memory_mask))

    def step(self, x: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """One position, x (batch, 1, dim), and the new state."""
        around = self.around_attention
        y, past = self.attention.step(around.enter(x), state.past)
        x = around.leave(x, y)  # type: ignore[arg-type]
        around = self.around_memory_attention
        y, memory = self.memory_attention.step(around.enter(x), state.memory)
        x = around.leave(x, y)  # type: ignore[arg-type]
        around = self.around_feed_forward
        return around.leave(x, self.feed_forward(around.enter(x))), DecoderState(past, memory)


def _feed_forward(layer: TorchLayer) -> FeedForward:
    """The feed-forward network of torch's layer."""
    inner, outer = deepcopy(layer.linear1), deepcopy(layer.linear2)
    new = FeedForward(inner.in_features, inner.out_features, dropout=layer.dropout.p)
    new.inner, new.outer, new.activation = inner, outer, layer.activation
    return new


def _add_norm(layer: TorchLayer, norm: nn.LayerNorm, dropout: nn.Dropout) -> PostNorm:
    """An Add & Norm of torch's layer."""
    new = (PreNorm if layer.norm_first else PostNorm)(norm.normalized_shape[0], dropout.p)
    new.norm = deepcopy(norm)
    return new
