"""Transformer layers on top of each other: the encoder's, and the decoder's."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

from torch import Tensor, nn

from regard.attention import Attended
from regard.core.mask import Mask
from regard.core.names import did_you_mean
from regard.layers.add_norm import PostNorm, PreNorm
from regard.layers.multi_head import MultiHeadAttention, MultiHeadState
from regard.layers.role import DECODER_SELF, ENCODER_DECODER, SELF, AttentionRole
from regard.layers.transformer import Decoded, DecoderLayer, DecoderState, EncoderLayer
from regard.models.embedding import check_sizes
from regard.models.memory import Maps

NORMS: dict[str, type[PostNorm]] = {"post": PostNorm, "pre": PreNorm}
"""Where the norm of a layer is, by name."""


class EncoderStack(nn.Module):
    """Layers of self-attention. Vaswani et al. 2017, section 3.1, or under `causal()` a decoder.

    >>> import torch
    >>> stack = EncoderStack(2, 12, norm="pre", heads=3, hidden=24)
    >>> stack(torch.randn(2, 5, 12))[0].shape
    torch.Size([2, 5, 12])

    Args:
        layers: number of layers
        dim: width of the stream
        norm: "post" as in the paper, or "pre", which wants one more norm at the end
        attention_dropout: of the attention weights, in train mode; `dropout` if None. Efficient
            attention has no weights to drop
        options: of `EncoderLayer`
    """

    def __init__(
        self,
        layers: int,
        dim: int,
        *,
        norm: str = "post",
        attention_dropout: float | None = None,
        role: AttentionRole = SELF,
        **options: Any,
    ) -> None:
        super().__init__()
        check_sizes(layers=layers)
        made = [EncoderLayer(dim, add_norm=find_norm(norm), **options) for _ in range(layers)]
        self.layers = nn.ModuleList(made)
        self.norm = last_norm(norm, dim)
        if attention_dropout is not None:
            for layer in made:
                if isinstance(layer.attention, MultiHeadAttention):
                    layer.attention.dropout = attention_dropout
        self.set_role(role)

    def set_role(self, role: AttentionRole) -> "EncoderStack":
        """Name the attention of every layer, for traces."""
        for layer in self.layers:
            layer.attention.role = role  # type: ignore
        return self

    @classmethod
    def from_torch(cls, stack: nn.TransformerEncoder) -> "EncoderStack":
        """A stack with a copy of torch's weights, which gives the same numbers, batch first."""
        first = stack.layers[0].self_attn
        new = cls(1, first.embed_dim, heads=first.num_heads, hidden=1)
        new.layers = nn.ModuleList(EncoderLayer.from_torch(layer) for layer in stack.layers)
        new.norm = nn.Identity() if stack.norm is None else deepcopy(stack.norm)
        return new.set_role(SELF).train(stack.training)

    def forward(
        self, x: Tensor, *, mask: Mask | Tensor | None = None, return_map: bool = False
    ) -> tuple[Tensor, Maps]:
        """x (batch, length, dim) through all layers, and the maps if asked, by name."""
        maps: Maps = {}
        for index, layer in enumerate(self.layers):
            x = layer(x, mask=mask, return_map=return_map)
            if isinstance(x, Attended):
                x, maps[f"layers.{index}.attention"] = x
        return self.norm(x), maps

    def start(self, batch: int) -> tuple[MultiHeadState, ...]:
        """The states of all layers before the first step of the pass under `causal()`."""
        return tuple(layer.start(batch) for layer in self.layers)  # type: ignore

    def step(
        self, x: Tensor, states: Sequence[MultiHeadState], *, return_map: bool = False
    ) -> tuple[Tensor, tuple[MultiHeadState, ...], dict[str, Tensor]]:
        """One position x (batch, 1, dim): the output, the new states, the weights if asked."""
        after = []
        weights: dict[str, Tensor] = {}
        for index, (layer, state) in enumerate(zip(self.layers, states, strict=True)):
            x, state = layer.step(x, state, return_map=return_map)  # type: ignore
            if isinstance(x, Attended):
                weights[f"layers.{index}.attention"] = x.map[..., 0, :]
                x = x.output
            after.append(state)
        return self.norm(x), tuple(after), weights


class DecoderStack(nn.Module):
    """Layers of masked self-attention and attention to a memory. Vaswani 2017, section 3.1.

    >>> import torch
    >>> stack = DecoderStack(2, 12, heads=3, hidden=24)
    >>> stack(torch.randn(2, 5, 12), torch.randn(2, 7, 12))[0].shape
    torch.Size([2, 5, 12])

    Args: those of `EncoderStack`, with the options of `DecoderLayer`
    """

    def __init__(
        self,
        layers: int,
        dim: int,
        *,
        norm: str = "post",
        attention_dropout: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        check_sizes(layers=layers)
        made = [DecoderLayer(dim, add_norm=find_norm(norm), **options) for _ in range(layers)]
        self.layers = nn.ModuleList(made)
        self.norm = last_norm(norm, dim)
        if attention_dropout is not None:
            for layer in made:
                layer.attention.dropout = layer.memory_attention.dropout = attention_dropout
        self._set_roles()

    def _set_roles(self) -> "DecoderStack":
        for layer in self.layers:
            layer.attention.role = DECODER_SELF  # type: ignore
            layer.memory_attention.role = ENCODER_DECODER  # type: ignore
        return self

    @classmethod
    def from_torch(cls, stack: nn.TransformerDecoder) -> "DecoderStack":
        """A stack with a copy of torch's weights: the same numbers under a causal `tgt_mask`."""
        first = stack.layers[0].self_attn
        new = cls(1, first.embed_dim, heads=first.num_heads, hidden=1)
        new.layers = nn.ModuleList(DecoderLayer.from_torch(layer) for layer in stack.layers)
        new.norm = nn.Identity() if stack.norm is None else deepcopy(stack.norm)
        return new._set_roles().train(stack.training)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        *,
        memory_mask: Mask | Tensor | None = None,
        return_map: bool = False,
    ) -> tuple[Tensor, Maps]:
        """x (batch, T, dim) through all layers, and the maps if asked, by name."""
        maps: Maps = {}
        for index, layer in enumerate(self.layers):
            x = layer(x, memory, memory_mask=memory_mask, return_map=return_map)
            if isinstance(x, Decoded):
                name = f"layers.{index}"
                x, maps[f"{name}.attention"], maps[f"{name}.memory_attention"] = x
        return self.norm(x), maps

    def start(self, memory: Tensor, memory_mask: Mask | None) -> tuple[DecoderState, ...]:
        """The states of all layers before the first step; the memory is projected here, once."""
        return tuple(layer.start(len(memory), memory, memory_mask) for layer in self.layers)  # type: ignore

    def step(
        self, x: Tensor, states: Sequence[DecoderState], *, return_map: bool = False
    ) -> tuple[Tensor, tuple[DecoderState, ...], dict[str, Tensor]]:
        """One position x (batch, 1, dim): the output, the new states, weights over the memory."""
        after = []
        weights: dict[str, Tensor] = {}
        for index, (layer, state) in enumerate(zip(self.layers, states, strict=True)):
            x, state = layer.step(x, state, return_map=return_map)  # type: ignore
            if isinstance(x, Decoded):
                weights[f"layers.{index}.memory_attention"] = x.memory_map[..., 0, :]
                x = x.output
            after.append(state)
        return self.norm(x), tuple(after), weights


def find_norm(norm: str) -> Callable[[int, float], PostNorm]:
    """Where the norm of a layer is, by name."""
    if norm not in NORMS:
        raise ValueError(f"unknown norm {norm!r}{did_you_mean(norm, NORMS)}")
    return NORMS[norm]


def last_norm(norm: str, dim: int) -> nn.Module:
    """What comes after the last layer: a norm if the layers have theirs in front."""
    return nn.LayerNorm(dim) if norm == "pre" else nn.Identity()
