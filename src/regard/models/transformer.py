"""The Transformer: attention is all it needs."""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, overload

import torch
from torch import Tensor, nn

from regard.core.names import did_you_mean
from regard.core.score import Score
from regard.layers.dropout import check_dropout, drop
from regard.layers.moves import Moves, as_moves
from regard.layers.multi_head import MultiHeadAttention
from regard.layers.role import ENCODER_SELF
from regard.layers.transformer import DecoderState
from regard.models.embedding import Frames, Tokens, reader, tied
from regard.models.memory import Maps, Memory, real, without_padding
from regard.models.position import positions
from regard.models.self_attention import find_self_attention
from regard.models.stack import DecoderStack, EncoderStack
from regard.models.summary import summary

TIES = ("none", "output", "all")


class TransformerState(NamedTuple):
    """What a Transformer remembers between two steps. A value, like `State`."""

    layers: tuple[DecoderState, ...]
    length: int  # steps taken
    weights: dict[str, Tensor] | None  # the last step's, (batch, heads, S); None if nobody asked

    def reorder(self, index: Tensor | Moves) -> "TransformerState":
        """The state of other beams: entry i becomes what entry index[i] was."""
        moves = as_moves(index, self.layers[0].past.batch)
        weights = self.weights
        if weights is not None:
            weights = {n: tensor.index_select(0, moves.index) for n, tensor in weights.items()}
        layers = tuple(layer.reorder(moves) for layer in self.layers)
        return TransformerState(layers, self.length, weights)


class Transformer(nn.Module):
    """Encoder and decoder of attention and feed-forward layers. Vaswani et al. 2017.

    The defaults are the paper's base model: 6 + 6 layers, width 512, 8 heads, 2048 hidden units,
    post-norm, sinusoids, and embeddings multiplied by √dim.

    >>> model = Transformer(13, 17, dim=12, heads=3, hidden=24, layers=2, dropout=0.0)
    >>> source, target = torch.randint(13, (2, 7)), torch.randint(17, (2, 4))
    >>> memory = model.encode(source, torch.tensor([7, 4]))
    >>> features = model.decode(memory, target)
    >>> first, state = model.step(target[:, 0], model.start(memory))
    >>> torch.allclose(first, features[:, 0], atol=1e-5), model.output(features).shape
    (True, torch.Size([2, 4, 17]))

    Args:
        source_vocabulary: number of source tokens; None with `frames`
        target_vocabulary: number of target tokens
        dim: width of the stream
        heads: number of heads, a divisor of `dim`
        hidden: width inside the feed-forward networks
        layers: number of layers of the encoder, and of the decoder
        decoder_layers: number of layers of the decoder, if it is another
        frames: width of float frames, for a source that is not tokens
        norm: "post" or "pre"
        position: "sinusoidal", "learned", "rotary", "alibi" or "none"
        max_length: how many learned positions there are
        tie: "none"; "output", which shares the matrix of the target's embedding; or "all", in
            which the source's embedding is the same, too (section 3.4)
        dropout: of embeddings, hidden units, and what each sublayer adds
        attention_dropout: of the attention weights; `dropout` if None
        encoder_attention: "dot", or "efficient", which is linear in the length of the source and
            takes positions that are added to embeddings only. Shen et al. 2018
        kv_heads, score: of the layers with dot-product attention
        activation: of the layers
    """

    def __init__(
        self,
        source_vocabulary: int | None,
        target_vocabulary: int,
        *,
        dim: int = 512,
        heads: int = 8,
        hidden: int = 2048,
        layers: int = 6,
        decoder_layers: int | None = None,
        frames: int | None = None,
        norm: str = "post",
        position: str = "sinusoidal",
        max_length: int = 512,
        tie: str = "none",
        dropout: float = 0.1,
        attention_dropout: float | None = None,
        encoder_attention: str = "dot",
        kv_heads: int | None = None,
        score: str | Score = "scaled_dot",
        activation: Callable[[Tensor], Tensor] = torch.relu,
    ) -> None:
        super().__init__()
        check_dropout(dropout)
        check_dropout(dropout if attention_dropout is None else attention_dropout)
        self.source = reader(source_vocabulary, frames, dim, scale=math.sqrt(dim))
        self.target = Tokens(target_vocabulary, dim, scale=math.sqrt(dim))
        options: dict[str, Any] = {
            "heads": heads,
            "hidden": hidden,
            "norm": norm,
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "activation": activation,
        }
        self.source_position, own = positions(position, dim, heads, max_length)
        self.target_position, _ = positions(position, dim, heads, max_length)
        dot: dict[str, Any] = {"kv_heads": kv_heads, "score": score, "position": own}
        make = find_self_attention(encoder_attention)
        if make is not MultiHeadAttention and own is not None:
            raise ValueError(
                f"position={position!r} works on the scores of a dot product, which "
                f"encoder_attention={encoder_attention!r} does not have; use position='sinusoidal'"
            )
        inner = dot if make is MultiHeadAttention else {"attention": make}
        self.encoder = EncoderStack(layers, dim, role=ENCODER_SELF, **inner, **options)
        count = layers if decoder_layers is None else decoder_layers
        self.decoder = DecoderStack(count, dim, **dot, **options)
        self.output = nn.Linear(dim, target_vocabulary)
        self.dropout = dropout
        self._tie(tie)

    @classmethod
    def from_torch(
        cls, model: nn.Transformer, source_vocabulary: int, target_vocabulary: int, **options: Any
    ) -> "Transformer":
        """A model whose layers have a copy of `nn.Transformer`'s weights, and give its numbers.

        Torch's model has no embeddings, positions or output: those are new, by `options`.
        """
        first = model.encoder.layers[0].self_attn
        options = {"dropout": 0.0, **options, "dim": first.embed_dim, "heads": first.num_heads}
        new = cls(source_vocabulary, target_vocabulary, layers=1, hidden=1, **options)
        new = new.to(first.out_proj.weight)
        new.encoder = EncoderStack.from_torch(model.encoder).set_role(ENCODER_SELF)
        new.decoder = DecoderStack.from_torch(model.decoder)
        return new.train(model.training)

    @overload
    def encode(
        self,
        source: Tensor,
        source_lengths: Tensor | None = ...,
        *,
        return_map: Literal[False] = ...,
    ) -> Memory: ...

    @overload
    def encode(
        self, source: Tensor, source_lengths: Tensor | None = ..., *, return_map: Literal[True]
    ) -> tuple[Memory, Maps]: ...

    def encode(
        self,
        source: Tensor,
        source_lengths: Tensor | None = None,
        *,
        return_map: bool = False,
    ) -> Memory | tuple[Memory, Maps]:
        """Read the source: ids (batch, S) or frames (batch, S, width), with lengths (batch,).

        With `return_map` also the maps by the name of their module, (batch, heads, S, S) each.
        """
        counts = real(source, source_lengths)
        if source.is_floating_point():
            source = without_padding(source, counts)
        x = self._drop(self.source_position(self.source(source)))
        mask = Memory(x, counts, None).mask()
        x, maps = self.encoder(x, mask=mask, return_map=return_map)
        memory = Memory(x if mask is None else without_padding(x, counts), counts, None)
        return (memory, _named("encoder", maps)) if return_map else memory

    @overload
    def decode(
        self, memory: Memory, target: Tensor, *, return_map: Literal[False] = ...
    ) -> Tensor: ...

    @overload
    def decode(
        self, memory: Memory, target: Tensor, *, return_map: Literal[True]
    ) -> tuple[Tensor, Maps]: ...

    def decode(
        self, memory: Memory, target: Tensor, *, return_map: bool = False
    ) -> Tensor | tuple[Tensor, Maps]:
        """Teacher forced: features (batch, T, dim) after each of the target ids (batch, T).

        With `return_map` also the maps by name, (batch, heads, T, T) and (batch, heads, T, S).
        """
        x = self._drop(self.target_position(self.target(target)))
        x, maps = self.decoder(x, memory.states, memory_mask=memory.mask(), return_map=return_map)
        return (x, _named("decoder", maps)) if return_map else x

    def start(self, memory: Memory, *, return_map: bool = False) -> TransformerState:
        """The state before the first step; with `return_map` steps leave their weights in it."""
        layers = self.decoder.start(memory.states, memory.mask())
        return TransformerState(layers, 0, {} if return_map else None)

    def step(self, tokens: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """Features (batch, dim) after tokens (batch,), and the new state.

        `state.weights`, if asked for at the start, are by name, (batch, heads, S) each.
        """
        x = self.target_position(self.target(tokens.unsqueeze(1)), state.length)
        asked = state.weights is not None
        x, layers, weights = self.decoder.step(self._drop(x), state.layers, return_map=asked)
        kept = _named("decoder", weights) if asked else None
        return x.squeeze(1), TransformerState(layers, state.length + 1, kept)

    def forward(
        self,
        source: Tensor,
        source_lengths: Tensor | None,
        target: Tensor,
        *,
        return_map: bool = False,
    ) -> Tensor | tuple[Tensor, Maps]:
        """`encode`, then `decode`; with `return_map` also the maps of both."""
        if not return_map:
            return self.decode(self.encode(source, source_lengths), target)
        memory, maps = self.encode(source, source_lengths, return_map=True)
        features, more = self.decode(memory, target, return_map=True)
        return features, maps | more

    def summary(self) -> str:
        """Its parts with their numbers of parameters, as a table."""
        return summary(self)

    def _tie(self, tie: str) -> None:
        if tie not in TIES:
            raise ValueError(f"unknown tie {tie!r}{did_you_mean(tie, TIES)}")
        if tie != "none":
            tied(self.output, self.target)
        if tie == "all":
            if isinstance(self.source, Frames):
                raise ValueError("tie='all' shares an embedding with the source, which is frames")
            if self.source.weight.shape != self.target.weight.shape:
                raise ValueError(
                    "tie='all' needs one vocabulary for both sides, got "
                    f"{len(self.source.weight)} source and {len(self.target.weight)} target "
                    "tokens; use a joint tokenizer, or tie='output'"
                )
            self.source.weight = self.target.weight

    def _drop(self, x: Tensor) -> Tensor:
        return drop(x, self.dropout, self.training)

    def extra_repr(self) -> str:
        return f"dropout={self.dropout}"


def _named(prefix: str, maps: dict) -> dict:
    """Maps by the name of the module in the whole model."""
    return {f"{prefix}.{name}": map for name, map in maps.items()}
