"""A stack of Transformer layers: an encoder's, a decoder's, or a language model's."""

from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.core.mask import Mask
from regard.layers.checks import check_sizes
from regard.layers.multi_head import MultiHeadAttention
from regard.layers.reorder import BatchReorder, as_reorder
from regard.layers.role import DECODER_SELF, ENCODER_DECODER, SELF, AttentionRole
from regard.layers.transformer import DecoderLayer, EncoderLayer
from regard.models.options import find_norm

ADDING = ("value_projection", "output_projection", "feed_forward")
"""Parameters that determine the size of what a sublayer adds to its input."""


class StackState(NamedTuple):
    """States of all layers between two steps; a step returns a new one."""

    layers: tuple[Any, ...]
    length: int  # steps taken
    batch: int

    def reorder(self, index: Tensor | BatchReorder) -> "StackState":
        """The state of other beams: entry i becomes what entry index[i] was."""
        order = as_reorder(index, self.batch)
        return StackState(
            tuple(each.reorder(order) for each in self.layers), self.length, len(order)
        )


class Stack(nn.Module):
    """Layers on top of each other. Vaswani et al. 2017, section 3.1.

    Encoder layers have self-attention, and under `causal()` make a decoder-only model; decoder
    layers also attend to a memory.

    >>> import torch
    >>> encoder = Stack(EncoderLayer, 2, 12, norm="pre", heads=3, hidden=24)
    >>> decoder = Stack(DecoderLayer, 2, 12, heads=3, hidden=24)
    >>> decoder(torch.randn(2, 5, 12), encoder(torch.randn(2, 7, 12))).shape
    torch.Size([2, 5, 12])

    Args:
        layer: `EncoderLayer` or `DecoderLayer`
        layers: number of layers
        dim: width of inputs and outputs
        norm: "post" as in the paper, or "pre", which adds a norm after the last layer; with
            "post" what sublayers add starts small
        attention_dropout: of the attention weights, in train mode; `dropout` if None. Efficient
            attention has no weights to drop
        role: of the self-attentions, for traces; that of decoder layers is known
        options: of the layers
    """

    def __init__(
        self,
        layer: type[EncoderLayer | DecoderLayer],
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
        around = find_norm(norm)
        self.layers = nn.ModuleList(layer(dim, add_norm=around, **options) for _ in range(layers))
        self.norm: nn.Module = nn.LayerNorm(dim) if norm == "pre" else nn.Identity()
        if attention_dropout is not None:
            for part in self.layers.modules():
                if isinstance(part, MultiHeadAttention):
                    part.dropout = attention_dropout
        if norm == "post":
            self._start_small((8 * layers) ** -0.25)
        self.set_roles(role)

    @classmethod
    def from_torch(
        cls, stack: nn.TransformerEncoder | nn.TransformerDecoder, role: AttentionRole = SELF
    ) -> "Stack":
        """A stack with a copy of torch's weights, which gives the same numbers, batch first.

        A decoder does so under a causal `tgt_mask`.
        """
        layer = DecoderLayer if isinstance(stack, nn.TransformerDecoder) else EncoderLayer
        first = stack.layers[0].self_attn
        new = cls(layer, 1, first.embed_dim, heads=first.num_heads, hidden=1)
        new.layers = nn.ModuleList(layer.from_torch(each) for each in stack.layers)
        new.norm = nn.Identity() if stack.norm is None else deepcopy(stack.norm)
        new.set_roles(role)
        return new.train(stack.training)

    @torch.no_grad()
    def _start_small(self, gain: float) -> None:
        """Scale the initial weights of what sublayers add. Wang et al. 2022, figure 2.

        If a sublayer adds as much as there is, the norm after it shrinks its input by √2: after
        all layers little is left of a token, and of the gradient of the layers below.
        """
        for name, weight in self.layers.named_parameters():
            if weight.dim() > 1 and any(part in name for part in ADDING):
                weight.mul_(gain)

    def set_roles(self, role: AttentionRole) -> None:
        """Give every attention its role, for traces."""
        for layer in self.layers:
            if isinstance(layer, DecoderLayer):
                layer.attention.role = DECODER_SELF
                layer.memory_attention.role = ENCODER_DECODER
            else:
                layer.attention.role = role  # type: ignore

    def forward(self, x: Tensor, memory: Tensor | None = None, **masks: Mask | None) -> Tensor:
        """x (batch, length, dim) through all layers, with the memory and masks that they take."""
        if memory is None:
            for layer in self.layers:
                x = layer(x, **masks)
            return self.norm(x)
        # A view for each layer: their gradients are summed in the order of the layers, whatever the
        # order in which they are computed, which sharding changes.
        views = memory.expand(len(self.layers), *memory.shape)
        for layer, view in zip(self.layers, views, strict=True):
            x = layer(x, view, **masks)
        return self.norm(x)

    def start(
        self, batch: int, memory: Tensor | None = None, memory_mask: Mask | None = None
    ) -> StackState:
        """The states before the first step; a memory is projected here, once."""
        more = () if memory is None else (memory, memory_mask)
        return StackState(tuple(layer.start(batch, *more) for layer in self.layers), 0, batch)  # type: ignore

    def step(self, x: Tensor, state: StackState) -> tuple[Tensor, StackState]:
        """One position x (batch, 1, dim): the output, and the new state."""
        after = []
        for layer, own in zip(self.layers, state.layers, strict=True):
            x, own = layer.step(x, own)  # type: ignore
            after.append(own)
        return self.norm(x), StackState(tuple(after), state.length + 1, state.batch)
